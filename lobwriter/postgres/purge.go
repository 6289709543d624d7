package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/lobsink/lobsink/lobwriter"
)

// Purge implements lobwriter.Purger.
func (op *Operator) Purge(ctx context.Context, p lobwriter.Purge) (done lobwriter.Purged, err error) {
	err = use(ctx, op.writers, "purge", func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, withPrefix(`select documents, bytes, above from lobsink_purge_v1($1, $2, $3, $4, $5)`, op.o.Prefix),
			p.Partition, p.Keys, int16(p.State), int64(p.Older), p.DryRun).Scan(&done.Documents, &done.Bytes, &done.Above)
	})
	if err != nil {
		return lobwriter.Purged{}, err
	}
	return done, nil
}
