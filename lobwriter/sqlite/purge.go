package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/lobsink/lobsink/lobwriter"
)

// Purge implements lobwriter.Purger.
func (op *Operator) Purge(ctx context.Context, p lobwriter.Purge) (done lobwriter.Purged, err error) {
	err = op.store.write(ctx, "purge", func(tx *sql.Tx) error {
		done = lobwriter.Purged{}
		fence, err := op.store.fence(ctx, tx, p.Partition)
		if err != nil {
			return err
		}
		checkpoint := lobwriter.Mark{Life: fence.Life, Seq: fence.Checkpoint.Seq}
		before := op.store.o.Now() - int64(p.Older)
		beyond := false
		purged, err := op.purged(ctx, tx, p.Partition)
		if err != nil {
			return err
		}
		for _, key := range p.Keys {
			id, d, err := op.find(ctx, tx, key)
			switch {
			case errors.Is(err, lobwriter.ErrNotFound):
				continue
			case err != nil:
				return err
			case d.Partition != p.Partition || d.State != p.State || d.UpdatedAt > before:
				continue
			case checkpoint.Before(d.Mark):
				done.Above++
				continue
			}
			done.Documents++
			done.Bytes += d.Bytes
			if p.DryRun {
				continue
			}
			beyond = beyond || purged.Before(d.Mark)
			for _, statement := range []string{
				`delete from lobsink_chunks where document = ?`,
				`delete from lobsink_repairs where document = ?`,
				`delete from lobsink_documents where id = ?`,
			} {
				if err := op.store.exec(ctx, tx, statement, id); err != nil {
					return err
				}
			}
		}
		if !beyond {
			return nil
		}
		fence.Flush += 2
		return errors.Join(
			op.store.exec(ctx, tx, `insert or replace into lobsink_purged (partition, life, seq) values (?,?,?)`, p.Partition, checkpoint.Life, checkpoint.Seq),
			op.store.putFence(ctx, tx, p.Partition, fence))
	})
	if err != nil {
		return lobwriter.Purged{}, err
	}
	return done, nil
}

// purged returns the checkpoint at which documents of a partition were purged; zero:
// none was.
func (op *Operator) purged(ctx context.Context, tx *sql.Tx, partition int) (m lobwriter.Mark, err error) {
	err = tx.QueryRowContext(ctx, withPrefix(`select life, seq from lobsink_purged where partition = ?`, op.store.o.Prefix), partition).Scan(&m.Life, &m.Seq)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return m, err
}
