package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/schema"
	"github.com/lobsink/lobsink/lobwriter"
)

// connectTimeout bounds one attempt to connect: a host that swallows packets
// answers never.
const connectTimeout = 5 * time.Second

// poolConfig says how sessions are made. A session makes its own commits
// durable, and gives up waiting long before the lease of its owner ends.
func poolConfig(o Options) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, &lobwriter.Error{Kind: lobwriter.Fatal, Op: "connect", Err: fmt.Errorf("the URL of the database cannot be read"),
			Hint: "write postgres://USER@HOST:PORT/DATABASE"}
	}
	session(cfg.ConnConfig)
	params := cfg.ConnConfig.RuntimeParams
	params["statement_timeout"] = milliseconds(o.FlushTimeout + time.Second)
	params["lock_timeout"] = milliseconds(o.Lease / 3)
	params["idle_in_transaction_session_timeout"] = milliseconds(o.Lease / 3)
	// Off would confirm commits that a crash of the server loses.
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `select set_config('synchronous_commit', 'on', false)
			where current_setting('synchronous_commit') = 'off'`)
		return err
	}
	return cfg, nil
}

// session are the settings of every connection, also of setup's.
func session(cfg *pgx.ConnConfig) {
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "lobsink"
	}
	cfg.RuntimeParams["client_encoding"] = "UTF8"
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// openDB opens the database for package schema, which speaks database/sql.
func openDB(cfg *pgx.ConnConfig) *sql.DB {
	cfg = cfg.Copy()
	for _, limit := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		delete(cfg.RuntimeParams, limit) // migrations take the time that they need
	}
	return stdlib.OpenDB(*cfg)
}

// Setup makes the tables where they are missing, and brings older ones to this
// program's version. It returns the versions before and after: 0 is none.
func Setup(ctx context.Context, o Options) (from, to int64, err error) {
	err = withDB(o, func(db *sql.DB, prefix string) (err error) {
		from, to, err = schema.Apply(ctx, db, schema.PostgreSQL, deploy.PostgreSQL(), prefix)
		return err
	})
	return from, to, classify("set up the database", err)
}

// Remove drops the tables, and with them all documents.
func Remove(ctx context.Context, o Options) error {
	return classify("remove the tables", withDB(o, func(db *sql.DB, prefix string) error {
		return schema.Remove(ctx, db, schema.PostgreSQL, deploy.PostgreSQL(), prefix)
	}))
}

func withDB(o Options, do func(db *sql.DB, prefix string) error) error {
	o = o.withDefaults()
	cfg, err := poolConfig(o)
	if err != nil {
		return err
	}
	db := openDB(cfg.ConnConfig)
	defer db.Close()
	return do(db, o.Prefix)
}
