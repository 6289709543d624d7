package postgres

import (
	"context"
	"database/sql"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/schema"
)

// Version returns the version that the tables have, 0 where there are none, and
// the one that this program needs. It changes nothing.
func Version(ctx context.Context, o Options) (have, want int64, err error) {
	o = o.withDefaults()
	err = withDB(ctx, o, func(db *sql.DB) (err error) {
		have, want, err = schema.Version(ctx, db, schema.PostgreSQL, deploy.PostgreSQL(), o.Prefix)
		return err
	})
	return have, want, classify("read the version of the tables", err)
}
