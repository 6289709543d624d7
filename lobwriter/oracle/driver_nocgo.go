//go:build !cgo

package oracle

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/lobsink/lobsink/lobwriter"
)

type driverConn = driver.Conn

// dial says what is missing.
func dial(string, string, string, string) (driverConn, error) {
	return nil, &lobwriter.Error{Kind: lobwriter.Fatal, Op: "connect",
		Err:  errors.New("this lobsink was built without cgo, which the driver for Oracle needs"),
		Hint: "build it with CGO_ENABLED=1 and a C compiler, and install Oracle Instant Client where it runs"}
}

func callOptions(int) []any { return nil }

func statementOptions() []any { return nil }

func tagged(ctx context.Context, _, _ string) context.Context { return ctx }
