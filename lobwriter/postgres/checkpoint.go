package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lobsink/lobsink/lobwriter"
)

// MoveCheckpoint implements lobwriter.Checkpointer.
func (op *Operator) MoveCheckpoint(ctx context.Context, m lobwriter.CheckpointMove) (f lobwriter.Fence, err error) {
	err = op.change(ctx, "move the checkpoint", func(tx pgx.Tx) error {
		if err := op.lockFences(ctx, tx, m.Partition, m.Partition+1); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, withPrefix(`select `+fenceColumns+` from lobsink_fences where partition = $1`, op.o.Prefix), m.Partition).Scan(fenceFields(&f)...)
		if err != nil {
			return err
		}
		if f.Life != m.Life || f.Checkpoint != m.From {
			return &lobwriter.FencedError{Stored: f}
		}
		var purged lobwriter.Mark
		if err := tx.QueryRow(ctx, withPrefix(`
			select coalesce(max(life), 0), coalesce(max(seq), 0) from lobsink_purged where partition = $1`, op.o.Prefix), m.Partition).
			Scan(&purged.Life, &purged.Seq); err != nil {
			return err
		}
		if err := m.BelowPurged(purged); err != nil {
			return err
		}
		f.Epoch++
		f.ClaimID, f.Flush, f.Checkpoint = m.ClaimID, 0, m.To
		if m.To.Seq > f.Highest.Seq {
			f.Highest = m.To
		}
		if err := op.putFence(ctx, tx, m.Partition, f); err != nil || m.Reason == "" {
			return err
		}
		return op.exec(ctx, tx, `
			update lobsink_documents set state = 3, reason = $2, updated_at = lobsink_now()
			 where partition = $1 and state = 1 and ($3::text[] is null or doc_key = any ($3))`, m.Partition, storable(m.Reason), m.Keys)
	})
	if err != nil {
		return lobwriter.Fence{}, err
	}
	return f, nil
}

// Rebind implements lobwriter.Checkpointer.
func (op *Operator) Rebind(ctx context.Context, r lobwriter.Rebinding) error {
	return op.change(ctx, "rebind", func(tx pgx.Tx) error {
		// Nobody else binds meanwhile.
		if err := op.exec(ctx, tx, `select from lobsink_binding for update`); err != nil {
			return err
		}
		b, err := readBinding(ctx, tx.Conn(), op.o.Prefix)
		switch {
		case err != nil:
			return err
		case b != r.From:
			return &lobwriter.FencedError{Stored: lobwriter.Fence{Life: b.Life}}
		}
		if err := op.lockFences(ctx, tx, 0, max(r.From.Partitions, r.To.Partitions)); err != nil {
			return err
		}
		if r.From.Partitions != r.To.Partitions {
			if err := op.unleased(ctx, tx); err != nil {
				return err
			}
		}
		if err := op.rebindFences(ctx, tx, r); err != nil {
			return err
		}
		if err := op.rebindDocuments(ctx, tx, r); err != nil {
			return err
		}
		if r.Restart {
			if err := op.restart(ctx, tx, r.To.Life); err != nil {
				return err
			}
		}
		return op.exec(ctx, tx, `update lobsink_binding set created = $1, partitions = $2, life = $3`, r.To.Created, r.To.Partitions, r.To.Life)
	})
}

// change runs do in a transaction that may take as long as it takes; a program that
// freezes in it is ended as any other is.
func (op *Operator) change(ctx context.Context, name string, do func(pgx.Tx) error) error {
	return use(ctx, op.writers, name, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `select set_config('statement_timeout', '0', true)`); err != nil {
				return err
			}
			return do(tx)
		})
	})
}

func (op *Operator) exec(ctx context.Context, tx pgx.Tx, query string, args ...any) error {
	_, err := tx.Exec(ctx, withPrefix(query, op.o.Prefix), args...)
	return err
}

// lockFences locks the fence rows of partitions, and makes those that are not there
// yet, so that nobody can claim meanwhile.
func (op *Operator) lockFences(ctx context.Context, tx pgx.Tx, from, to int) error {
	return errors.Join(
		op.exec(ctx, tx, `
			insert into lobsink_fences (partition, life, epoch, claim_id, flush, checkpoint, checkpoint_time, highest, highest_time)
			select p, life, 0, '', 0, 0, 0, 0, 0 from lobsink_binding, generate_series($1::int, $2::int - 1) p
			on conflict do nothing`, from, to),
		op.exec(ctx, tx, `select from lobsink_fences where partition >= $1 and partition < $2 order by partition for update`, from, to))
}

func (op *Operator) putFence(ctx context.Context, tx pgx.Tx, partition int, f lobwriter.Fence) error {
	return op.exec(ctx, tx, `
		update lobsink_fences
		   set life = $2, epoch = $3, claim_id = $4, flush = $5, checkpoint = $6, checkpoint_time = $7, highest = $8, highest_time = $9
		 where partition = $1`,
		partition, f.Life, f.Epoch, f.ClaimID, f.Flush, int64(f.Checkpoint.Seq), f.Checkpoint.Time, int64(f.Highest.Seq), f.Highest.Time)
}

// unleased returns a Held error if a lease has not ended.
func (op *Operator) unleased(ctx context.Context, tx pgx.Tx) error {
	var held int
	err := tx.QueryRow(ctx, withPrefix(`select count(*) from lobsink_leases where lease_until > lobsink_now()`, op.o.Prefix)).Scan(&held)
	if err == nil && held > 0 {
		err = &lobwriter.Error{Kind: lobwriter.Held, Op: "rebind", Err: fmt.Errorf("%d partitions are owned", held), Hint: "stop all instances first"}
	}
	return err
}

func (op *Operator) rebindFences(ctx context.Context, tx pgx.Tx, r lobwriter.Rebinding) error {
	return errors.Join(
		op.exec(ctx, tx, `delete from lobsink_fences where partition >= $1`, r.To.Partitions),
		op.exec(ctx, tx, `
			update lobsink_fences
			   set life = $1, epoch = epoch + 1, claim_id = $2, flush = 0,
			       checkpoint = $3, checkpoint_time = $4, highest = $3, highest_time = $4`,
			r.To.Life, r.ClaimID, int64(r.Checkpoint.Seq), r.Checkpoint.Time))
}

// rebindDocuments gives documents their new partitions.
func (op *Operator) rebindDocuments(ctx context.Context, tx pgx.Tx, r lobwriter.Rebinding) error {
	if r.PartitionOf == nil {
		return nil
	}
	rows, err := tx.Query(ctx, withPrefix(`select id, doc_key, partition from lobsink_documents`, op.o.Prefix))
	if err != nil {
		return err
	}
	var ids []int64
	var partitions []int
	var id int64
	var key string
	var partition int
	_, err = pgx.ForEachRow(rows, []any{&id, &key, &partition}, func() error {
		if p := r.PartitionOf(key); p != partition {
			ids, partitions = append(ids, id), append(partitions, p)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(
		// Of all partitions together, since documents of each go to each.
		op.exec(ctx, tx, `
			insert into lobsink_purged as p (partition, life, seq)
			select n, life, seq from generate_series(0, $1::int - 1) n,
			       (select life, seq from lobsink_purged order by life desc, seq desc limit 1) m
			on conflict (partition) do update set life = excluded.life, seq = excluded.seq`, r.To.Partitions),
		op.exec(ctx, tx, `
		update lobsink_documents d set partition = m.partition from unnest($1::bigint[], $2::int[]) m (id, partition)
		 where d.id = m.id`, ids, partitions))
}

// restart empties open and incomplete documents.
func (op *Operator) restart(ctx context.Context, tx pgx.Tx, life int64) error {
	const open = `(select id from lobsink_documents where state in (1, 3))`
	return errors.Join(
		op.exec(ctx, tx, `delete from lobsink_chunks where document in `+open),
		op.exec(ctx, tx, `delete from lobsink_repairs where document in `+open),
		op.exec(ctx, tx, `
			update lobsink_documents
			   set generation = generation + 1, state = 1, life = $1, seq = 0, first_seq = 0, fragments = 0, holes = 0, late = 0,
			       bytes = 0, units = 0, chunks = 0, crc = 0, reason = '', updated_at = lobsink_now()
			 where state in (1, 3)`, life))
}
