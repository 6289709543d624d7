package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/schema"
	"github.com/lobsink/lobsink/lobwriter"
)

const (
	// connectTimeout is how long a host may take to answer, unless the URL says
	// otherwise.
	connectTimeout = 5 * time.Second
	// pingAfter is the age of silence after which a connection is tried before
	// it is used. Below it, a broken one costs a repetition.
	pingAfter = 5 * time.Second
)

// role is what a session is for.
type role int

const (
	// owner: writes for a member, and gives up before its lease ends.
	owner role = iota
	// reader: reads for as long as its caller takes.
	reader
	// migrator: changes the tables, for as long as that takes.
	migrator
)

// connect makes a pool of sessions, none of which is open yet.
func connect(ctx context.Context, o Options, r role, most int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		// Not err: what it quotes may be a password.
		return nil, &lobwriter.Error{Kind: lobwriter.Fatal, Op: "connect", Err: errors.New("the URL of the database cannot be read"),
			Hint: "write postgres://USER@HOST:PORT/DATABASE, with %XX for special characters of the password"}
	}
	cfg.MaxConns = int32(most)
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfter }

	c := cfg.ConnConfig
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "lobsink"
	}
	if r != reader && c.ValidateConnect == nil {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	c.OnNotice = noteNotReplicated
	settings := r.settings(o)
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := checkEncoding(conn); err != nil {
			return err
		}
		types := conn.TypeMap()
		types.TryWrapEncodePlanFuncs = append([]pgtype.TryWrapEncodePlanFunc{planTexts}, types.TryWrapEncodePlanFuncs...)
		_, err := conn.Exec(ctx, setQuery, settings.names, settings.values)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	return pool, classify("connect", err)
}

// setQuery gives the settings of a session their values. With synchronous_commit
// off, a commit would be confirmed before it is durable; every other value of it
// is the operator's choice.
const setQuery = `
	select set_config(name, value, false)
	  from unnest($1::text[], $2::text[]) as s (name, value)
	 where name <> 'synchronous_commit' or current_setting(name) = 'off'`

// settings are those of a session.
type settings struct{ names, values []string }

func (s *settings) set(name, value string) {
	s.names, s.values = append(s.names, name), append(s.values, value)
}

func (r role) settings(o Options) (s settings) {
	wait := func(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }
	s.set("synchronous_commit", "on")
	s.set("client_encoding", "UTF8")
	// The functions count on it that each statement sees the newest rows.
	s.set("default_transaction_isolation", "read committed")
	// Compiling a plan pays for none of these statements.
	s.set("jit", "off")
	if r == owner {
		s.set("statement_timeout", wait(o.FlushTimeout+time.Second))
		s.set("lock_timeout", wait(o.Lease/3))
		s.set("idle_in_transaction_session_timeout", wait(o.Lease/3))
	} else {
		s.set("statement_timeout", "0")
		s.set("lock_timeout", "0")
		s.set("idle_in_transaction_session_timeout", "0")
	}
	return s
}

// checkEncoding refuses a database that cannot hold every text as it is.
func checkEncoding(conn *pgx.Conn) error {
	encoding := conn.PgConn().ParameterStatus("server_encoding")
	if encoding == "UTF8" {
		return nil
	}
	return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "connect",
		Err:  fmt.Errorf("the encoding of database %s is %s, which cannot hold every document", conn.Config().Database, encoding),
		Hint: "make another one: create database NAME encoding 'UTF8' template template0"}
}

// notReplicated marks a connection whose last commit did not wait for the standby
// that it should have waited for.
const notReplicated = "lobsink: not replicated"

// noteNotReplicated marks the connection if the wait of a commit for a standby was
// cancelled. The commit is then reported as a success, with a warning.
func noteNotReplicated(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" { // its text depends on lc_messages
		c.CustomData()[notReplicated] = true
	}
}

// use runs do on a connection of a pool, and gives its error a kind.
func use(ctx context.Context, pool *pgxpool.Pool, op string, do func(*pgx.Conn) error) error {
	c, err := pool.Acquire(ctx)
	if err != nil {
		return classify(op, err)
	}
	defer c.Release()
	conn := c.Conn()
	err = classify(op, do(conn))
	switch {
	case err == nil && conn.PgConn().CustomData()[notReplicated] != nil:
		// A repetition waits for the standby again.
		err = errNotReplicated(op)
		conn.Close(ctx)
	case lobwriter.CodeOf(err) == pgerrcode.ReadOnlySQLTransaction:
		// This server became a standby. The next connection finds the new primary.
		conn.Close(ctx)
	}
	return err
}

func errNotReplicated(op string) error {
	return &lobwriter.Error{Kind: lobwriter.Transient, Op: op,
		Err: errors.New("the commit was told not to wait for its standby any longer")}
}

// checkTables returns a Fatal error unless the tables are of this version.
func checkTables(ctx context.Context, pool *pgxpool.Pool, o Options) error {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	return classify("connect", schema.Check(ctx, db, schema.PostgreSQL, deploy.PostgreSQL(), o.Prefix, setupCommand))
}
