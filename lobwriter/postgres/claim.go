package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lobsink/lobsink/lobwriter"
)

// within runs do in one transaction. After an error of do nothing was written;
// after one of the commit the outcome is unknown.
func (s *Store) within(ctx context.Context, op string, do func(tx pgx.Tx) error) error {
	return classify(op, pgx.BeginFunc(ctx, s.pool, do))
}

// Bind implements lobwriter.Store.
func (s *Store) Bind(ctx context.Context, stream lobwriter.Stream) (lobwriter.Binding, error) {
	var b lobwriter.Binding
	err := s.within(ctx, "bind", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql(`
			update lobsink_binding set stream = $1, created = $2, partitions = $3, life = 1 where stream is null`),
			stream.Name, stream.Created, stream.Partitions); err != nil {
			return err
		}
		var err error
		if b, err = s.readBinding(ctx, tx); err != nil {
			return err
		}
		return b.Serves(stream)
	})
	if err != nil {
		return lobwriter.Binding{}, err
	}
	return b, nil
}

// querier is what one row is read from: a transaction or the pool.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// readBinding returns the binding; its life is 0 before the first Bind.
func (t *tables) readBinding(ctx context.Context, q querier) (b lobwriter.Binding, err error) {
	err = q.QueryRow(ctx, t.sql(`
		select database_id, life, coalesce(stream, ''), coalesce(created, 0), coalesce(partitions, 0) from lobsink_binding`)).
		Scan(&b.DatabaseID, &b.Life, &b.Name, &b.Created, &b.Partitions)
	return b, err
}

// Attend implements lobwriter.Store.
func (s *Store) Attend(ctx context.Context, m lobwriter.Member, lease time.Duration) ([]lobwriter.Member, error) {
	var live []lobwriter.Member
	err := s.within(ctx, "attend", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql(`
			insert into lobsink_members (id, name, version, seen_until) values ($1, $2, $3, lobsink_now() + $4)
			on conflict (id) do update set name = excluded.name, version = excluded.version, seen_until = excluded.seen_until`),
			m.ID, m.Name, m.Version, int64(lease)); err != nil {
			return err
		}
		// Whoever is late to say so is not waited for: skip what is locked.
		if _, err := tx.Exec(ctx, s.sql(`
			delete from lobsink_members where id in
			  (select id from lobsink_members where seen_until <= lobsink_now() order by id for update skip locked)`)); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, s.sql(`
			select id, name, version from lobsink_members where seen_until > lobsink_now() order by id collate "C"`))
		if err != nil {
			return err
		}
		live, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (m lobwriter.Member, err error) {
			return m, row.Scan(&m.ID, &m.Name, &m.Version)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return live, nil
}

// Leave implements lobwriter.Store.
func (s *Store) Leave(ctx context.Context, memberID string) error {
	_, err := s.pool.Exec(ctx, s.sql(`delete from lobsink_members where id = $1`), memberID)
	return classify("leave", err)
}

// Claim implements lobwriter.Store. It locks the lease row first, so that of two
// claims one waits for the other, and then the fence row, which waits for a flush
// of the owner before.
func (s *Store) Claim(ctx context.Context, r lobwriter.ClaimRequest) (lobwriter.Claim, error) {
	c := lobwriter.Claim{Partition: r.Partition, MemberID: r.MemberID}
	err := s.within(ctx, "claim", func(tx pgx.Tx) error {
		b, err := s.readBinding(ctx, tx)
		if err != nil {
			return err
		}
		if r.Partition < 0 || r.Partition >= b.Partitions {
			return &lobwriter.Error{Kind: lobwriter.Invalid, Op: "claim",
				Err:  fmt.Errorf("there is no partition %d of %d", r.Partition, b.Partitions),
				Hint: "the tables are not those that lobsink began with: start it again"}
		}
		for _, missing := range []string{
			`insert into lobsink_leases (partition, member_id, epoch, claim_id, lease_until)
			 select $1::int, '', 0, '', 0 where not exists (select from lobsink_leases where partition = $1) on conflict do nothing`,
			`insert into lobsink_fences (partition, life, epoch, claim_id, flush, checkpoint, checkpoint_time, highest, highest_time)
			 select $1::int, life, 0, '', 0, 0, 0, 0, 0 from lobsink_binding
			  where not exists (select from lobsink_fences where partition = $1) on conflict do nothing`,
		} {
			if _, err := tx.Exec(ctx, s.sql(missing), r.Partition); err != nil {
				return err
			}
		}
		var holder string
		var left int64
		// The clock is read after the lock is there, in a statement of its own.
		if _, err := tx.Exec(ctx, s.sql(`select from lobsink_leases where partition = $1 for update`), r.Partition); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, s.sql(`
			select member_id, lease_until - lobsink_now() from lobsink_leases where partition = $1`), r.Partition).
			Scan(&holder, &left); err != nil {
			return err
		}
		if left > 0 && holder != r.MemberID {
			return &lobwriter.Error{Kind: lobwriter.Held, Op: "claim",
				Err: fmt.Errorf("member %s holds partition %d for another %v", holder, r.Partition, time.Duration(left))}
		}
		if _, err := tx.Exec(ctx, s.sql(`select from lobsink_fences where partition = $1 for update`), r.Partition); err != nil {
			return err
		}
		if c.Fence, err = scanFence(tx.QueryRow(ctx, s.sql(`
			update lobsink_fences set epoch = epoch + 1, claim_id = $2, flush = 0 where partition = $1 returning `+fenceColumns),
			r.Partition, r.ClaimID)); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.sql(`
			update lobsink_leases set member_id = $2, epoch = $3, claim_id = $4, lease_until = lobsink_now() + $5 where partition = $1`),
			r.Partition, r.MemberID, c.Fence.Epoch, r.ClaimID, int64(r.Lease))
		return err
	})
	if err != nil {
		return lobwriter.Claim{}, err
	}
	return c, nil
}

const fenceColumns = `life, epoch, claim_id, flush, checkpoint, checkpoint_time, highest, highest_time`

func scanFence(row pgx.Row) (f lobwriter.Fence, err error) {
	var checkpoint, highest int64
	err = row.Scan(&f.Life, &f.Epoch, &f.ClaimID, &f.Flush, &checkpoint, &f.Checkpoint.Time, &highest, &f.Highest.Time)
	f.Checkpoint.Seq, f.Highest.Seq = uint64(checkpoint), uint64(highest)
	return f, err
}

// Renew implements lobwriter.Store. It only touches the lease row, which a flush
// does not.
func (s *Store) Renew(ctx context.Context, c lobwriter.Claim, d time.Duration) (lobwriter.Fence, error) {
	f, err := scanFence(s.pool.QueryRow(ctx, s.sql(`
		with renewed as (
		  update lobsink_leases set lease_until = lobsink_now() + $5
		   where partition = $1 and member_id = $2 and epoch = $3 and claim_id = $4 returning partition)
		select `+fenceColumns+` from lobsink_fences f join renewed using (partition)`),
		c.Partition, c.MemberID, c.Fence.Epoch, c.Fence.ClaimID, int64(d)))
	if errors.Is(err, pgx.ErrNoRows) {
		return f, &lobwriter.Error{Kind: lobwriter.Fenced, Op: "renew",
			Err: fmt.Errorf("the lease of partition %d is no longer of claim %s", c.Partition, c.Fence.ClaimID)}
	}
	return f, classify("renew", err)
}

// Release implements lobwriter.Store.
func (s *Store) Release(ctx context.Context, c lobwriter.Claim) error {
	_, err := s.pool.Exec(ctx, s.sql(`
		update lobsink_leases set lease_until = 0, claim_id = '' where partition = $1 and member_id = $2 and epoch = $3 and claim_id = $4`),
		c.Partition, c.MemberID, c.Fence.Epoch, c.Fence.ClaimID)
	return classify("release", err)
}

// Fence implements lobwriter.Store and lobwriter.Reader.
func (t *tables) Fence(ctx context.Context, partition int) (lobwriter.Fence, error) {
	f, err := scanFence(t.pool.QueryRow(ctx, t.sql(`select `+fenceColumns+` from lobsink_fences where partition = $1`), partition))
	if errors.Is(err, pgx.ErrNoRows) {
		b, err := t.readBinding(ctx, t.pool)
		return lobwriter.Fence{Life: b.Life}, classify("fence", err)
	}
	return f, classify("fence", err)
}
