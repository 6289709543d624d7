//go:build cgo

package oracle

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/godror/godror"
	"github.com/godror/godror/dsn"
)

// All that knows the driver is in this file.

// driverConn is what a connection of the driver can do and database/sql uses.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// dial opens a session. It does not end with a context: Oracle's client has no
// way to end a logon but the timeouts of its own configuration.
func dial(user, password, connect, clientDir string) (driverConn, error) {
	var p dsn.ConnectionParams
	p.Username, p.Password, p.ConnectString, p.LibDir = user, dsn.NewPassword(password), connect, clientDir
	// Not the session pool of the client library: database/sql has one, and a
	// cancelled statement can exhaust that one for good (godror issue 415).
	p.StandaloneConnection.Bool, p.StandaloneConnection.Valid = true, true
	// A deadline ends a call by the client's call timeout. A break from another
	// goroutine could hit the next call (fixed after 0.50.0 by godror PR 419).
	p.NoBreakOnContextCancel = true
	// Without an explicit one each session begins with a query for it.
	p.Timezone = time.UTC
	c, err := godror.NewConnector(p).Connect(context.Background())
	if err != nil {
		return nil, err
	}
	return c.(driverConn), nil
}

// callOptions are for a call with tables of up to n elements.
func callOptions(n int) []any {
	// NoRetry: repeating is up to lobwriter.Retry, which counts.
	return []any{godror.PlSQLArrays, godror.ArraySize(roundedUp(n)), godror.NoRetry()}
}

// statementOptions are for a statement of an administrator: what compiles with
// errors is one.
func statementOptions() []any { return []any{godror.NoRetry(), godror.WarningAsError()} }

// tagged has the database know what a call is for: MODULE, ACTION and CLIENT_INFO
// go with it.
func tagged(ctx context.Context, action, info string) context.Context {
	return godror.ContextWithTraceTag(ctx, godror.TraceTag{Module: "lobsink", Action: action, ClientInfo: info})
}
