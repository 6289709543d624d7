package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/schema"
)

// setupCommand is what an operator runs. The URL is left out: it may have a
// password.
const setupCommand = "lobsink setup --store postgres://..."

// Setup makes the tables where they are missing, and brings older ones to this
// program's version. It returns the versions before and after: 0 is none. It may
// run while a store is open.
func Setup(ctx context.Context, o Options) (from, to int64, err error) {
	o = o.withDefaults()
	err = withDB(ctx, o, func(db *sql.DB) (err error) {
		from, to, err = schema.Apply(ctx, db, schema.PostgreSQL, deploy.PostgreSQL(), o.Prefix)
		return err
	})
	return from, to, classify("set up the database", err)
}

// Remove drops the tables, and with them all documents. The database stays.
// Tables that are not there are no error.
func Remove(ctx context.Context, o Options) error {
	o = o.withDefaults()
	return classify("remove the tables", withDB(ctx, o, func(db *sql.DB) error {
		return schema.Remove(ctx, db, schema.PostgreSQL, deploy.PostgreSQL(), o.Prefix)
	}))
}

// withDB opens the database for package schema, which speaks database/sql: its
// lock takes a connection of its own.
func withDB(ctx context.Context, o Options, do func(*sql.DB) error) error {
	pool, err := connect(ctx, o, migrator, 2)
	if err != nil {
		return err
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	return errors.Join(do(db), db.Close())
}
