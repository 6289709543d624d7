package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/lobsink/lobsink/lobwriter"
)

// MoveCheckpoint implements lobwriter.Checkpointer.
func (op *Operator) MoveCheckpoint(ctx context.Context, m lobwriter.CheckpointMove) (f lobwriter.Fence, err error) {
	s := op.store
	err = s.write(ctx, "move the checkpoint", func(tx *sql.Tx) (err error) {
		if f, err = s.fence(ctx, tx, m.Partition); err != nil {
			return err
		}
		if f.Life != m.Life || f.Checkpoint != m.From {
			return &lobwriter.FencedError{Stored: f}
		}
		purged, err := op.purged(ctx, tx, m.Partition)
		if err == nil {
			err = m.BelowPurged(purged)
		}
		if err != nil {
			return err
		}
		f.Epoch++
		f.ClaimID, f.Flush, f.Checkpoint = m.ClaimID, 0, m.To
		if m.To.Seq > f.Highest.Seq {
			f.Highest = m.To
		}
		if err := s.putFence(ctx, tx, m.Partition, f); err != nil || m.Reason == "" {
			return err
		}
		const mark = `update lobsink_documents set state = ?, reason = ?, updated_at = ? where partition = ? and state = ?`
		values := []any{lobwriter.Incomplete, m.Reason, s.o.Now(), m.Partition, lobwriter.Open}
		if m.Keys == nil {
			return s.exec(ctx, tx, mark, values...)
		}
		for _, key := range m.Keys {
			if err := s.exec(ctx, tx, mark+` and doc_key = ?`, append(values, key)...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return lobwriter.Fence{}, err
	}
	return f, nil
}

// Rebind implements lobwriter.Checkpointer.
func (op *Operator) Rebind(ctx context.Context, r lobwriter.Rebinding) error {
	return op.store.write(ctx, "rebind", func(tx *sql.Tx) error {
		b, err := readBinding(ctx, tx, op.store.o.Prefix)
		switch {
		case err != nil:
			return err
		case b != r.From:
			return &lobwriter.FencedError{Stored: lobwriter.Fence{Life: b.Life}}
		case r.From.Partitions != r.To.Partitions:
			if err := op.unleased(ctx, tx); err != nil {
				return err
			}
		}
		for _, step := range []func(context.Context, *sql.Tx, lobwriter.Rebinding) error{op.rebindFences, op.rebindDocuments, op.restart} {
			if err := step(ctx, tx, r); err != nil {
				return err
			}
		}
		return op.store.exec(ctx, tx, `update lobsink_binding set created = ?, partitions = ?, life = ?`, r.To.Created, r.To.Partitions, r.To.Life)
	})
}

// unleased returns a Held error if a lease has not ended.
func (op *Operator) unleased(ctx context.Context, tx *sql.Tx) error {
	var held int
	err := tx.QueryRowContext(ctx, withPrefix(`select count(*) from lobsink_leases where lease_until > ?`, op.store.o.Prefix), op.store.o.Now()).Scan(&held)
	if err == nil && held > 0 {
		err = &lobwriter.Error{Kind: lobwriter.Held, Op: "rebind", Err: fmt.Errorf("%d partitions are owned", held), Hint: "stop all instances first"}
	}
	return err
}

func (op *Operator) rebindFences(ctx context.Context, tx *sql.Tx, r lobwriter.Rebinding) error {
	for p := range r.To.Partitions {
		f, err := op.store.fence(ctx, tx, p)
		if err != nil {
			return err
		}
		f = lobwriter.Fence{Life: r.To.Life, Epoch: f.Epoch + 1, ClaimID: r.ClaimID, Checkpoint: r.Checkpoint, Highest: r.Checkpoint}
		if err := op.store.putFence(ctx, tx, p, f); err != nil {
			return err
		}
	}
	return op.store.exec(ctx, tx, `delete from lobsink_fences where partition >= ?`, r.To.Partitions)
}

// rebindDocuments gives documents their new partitions.
func (op *Operator) rebindDocuments(ctx context.Context, tx *sql.Tx, r lobwriter.Rebinding) error {
	if r.PartitionOf == nil {
		return nil
	}
	moved := map[int64]int{}
	result, err := tx.QueryContext(ctx, withPrefix(`select id, doc_key, partition from lobsink_documents`, op.store.o.Prefix))
	if err != nil {
		return err
	}
	defer result.Close()
	for result.Next() {
		var id int64
		var key string
		var partition int
		if err := result.Scan(&id, &key, &partition); err != nil {
			return err
		}
		if p := r.PartitionOf(key); p != partition {
			moved[id] = p
		}
	}
	if err := result.Err(); err != nil {
		return err
	}
	// Of all partitions together, since documents of each go to each.
	if err := op.store.exec(ctx, tx, `
		with recursive n (p) as (select 0 union all select p + 1 from n where p + 1 < ?)
		insert or replace into lobsink_purged (partition, life, seq)
		select p, life, seq from n, (select life, seq from lobsink_purged order by life desc, seq desc limit 1)`, r.To.Partitions); err != nil {
		return err
	}
	for id, p := range moved {
		if err := op.store.exec(ctx, tx, `update lobsink_documents set partition = ? where id = ?`, p, id); err != nil {
			return err
		}
	}
	return nil
}

// restart empties open and incomplete documents.
func (op *Operator) restart(ctx context.Context, tx *sql.Tx, r lobwriter.Rebinding) error {
	if !r.Restart {
		return nil
	}
	const open = `(select id from lobsink_documents where state in (1, 3))`
	for _, table := range []string{"lobsink_chunks", "lobsink_repairs"} {
		if err := op.store.exec(ctx, tx, `delete from `+table+` where document in `+open); err != nil {
			return err
		}
	}
	return op.store.exec(ctx, tx, `
		update lobsink_documents
		   set generation = generation + 1, state = 1, life = ?, seq = 0, first_seq = 0, fragments = 0, holes = 0, late = 0,
		       bytes = 0, units = 0, chunks = 0, crc = 0, reason = '', updated_at = ?
		 where state in (1, 3)`, r.To.Life, op.store.o.Now())
}
