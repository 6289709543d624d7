package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lobsink/lobsink/lobwriter"
)

// Bind implements lobwriter.Store.
func (s *Store) Bind(ctx context.Context, stream lobwriter.Stream) (lobwriter.Binding, error) {
	var b lobwriter.Binding
	err := use(ctx, s.leases, "bind", func(conn *pgx.Conn) (err error) {
		if _, err := conn.Exec(ctx, withPrefix(`
			update lobsink_binding set stream = $1, created = $2, partitions = $3, life = 1 where stream is null`, s.o.Prefix),
			stream.Name, stream.Created, stream.Partitions); err != nil {
			return err
		}
		if b, err = readBinding(ctx, conn, s.o.Prefix); err != nil {
			return err
		}
		return b.Serves(stream)
	})
	if err != nil {
		return lobwriter.Binding{}, err
	}
	return b, nil
}

// readBinding returns the binding; its life is 0 before the first Bind.
func readBinding(ctx context.Context, conn *pgx.Conn, prefix string) (b lobwriter.Binding, err error) {
	err = conn.QueryRow(ctx, withPrefix(`
		select database_id, life, coalesce(stream, ''), coalesce(created, 0), coalesce(partitions, 0)
		  from lobsink_binding`, prefix)).Scan(&b.DatabaseID, &b.Life, &b.Name, &b.Created, &b.Partitions)
	return b, err
}

// Attend implements lobwriter.Store.
func (s *Store) Attend(ctx context.Context, m lobwriter.Member, lease time.Duration) (r lobwriter.Roster, err error) {
	err = use(ctx, s.leases, "attend", func(conn *pgx.Conn) error {
		// A batch is one round trip and one transaction.
		b := &pgx.Batch{}
		b.Queue(withPrefix(`
			insert into lobsink_members (id, name, version, seen_until) values ($1, $2, $3, lobsink_now() + $4)
			on conflict (id) do update set name = excluded.name, version = excluded.version, seen_until = excluded.seen_until`,
			s.o.Prefix), m.ID, m.Name, m.Version, int64(lease))
		// Members that tidy up at once do not wait for each other.
		b.Queue(withPrefix(`
			delete from lobsink_members
			 where id in (select id from lobsink_members where seen_until <= lobsink_now() for update skip locked)`, s.o.Prefix))
		queueRoster(b, s.o.Prefix, &r)
		return conn.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return lobwriter.Roster{}, err
	}
	return r, nil
}

// queueRoster reads the roster, in two statements of a batch.
func queueRoster(b *pgx.Batch, prefix string, r *lobwriter.Roster) {
	b.Queue(withPrefix(`
		select id, name, version, seen_until - now from lobsink_members, lobsink_now() now
		 where seen_until > now order by id collate "C"`, prefix)).
		Query(func(rows pgx.Rows) (err error) {
			var p lobwriter.Presence
			_, err = pgx.ForEachRow(rows, []any{&p.ID, &p.Name, &p.Version, (*int64)(&p.Left)}, func() error {
				r.Members = append(r.Members, p)
				return nil
			})
			return err
		})
	b.Queue(withPrefix(`
		select partition, member_id, lease_until - now from lobsink_leases, lobsink_now() now order by partition`, prefix)).
		Query(func(rows pgx.Rows) (err error) {
			var l lobwriter.Lease
			_, err = pgx.ForEachRow(rows, []any{&l.Partition, &l.MemberID, (*int64)(&l.Left)}, func() error {
				r.Leases = append(r.Leases, l)
				return nil
			})
			return err
		})
}

// Leave implements lobwriter.Store.
func (s *Store) Leave(ctx context.Context, memberID string) error {
	return use(ctx, s.leases, "leave", func(conn *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(withPrefix(`delete from lobsink_members where id = $1`, s.o.Prefix), memberID)
		b.Queue(withPrefix(`delete from lobsink_leases where member_id = $1`, s.o.Prefix), memberID)
		return conn.SendBatch(ctx, b).Close()
	})
}

// Claim implements lobwriter.Store. If the flush that it waits for takes longer
// than a third of the lease, the error is Transient.
func (s *Store) Claim(ctx context.Context, r lobwriter.ClaimRequest) (lobwriter.Claim, error) {
	c := lobwriter.Claim{Partition: r.Partition, MemberID: r.MemberID}
	err := use(ctx, s.documents, "claim", func(conn *pgx.Conn) error {
		var outcome string
		var holder *string
		var heldFor *int64
		rows, err := conn.Query(ctx, withPrefix(`
			select outcome, holder, held_for, (fence).life, (fence).epoch, (fence).claim_id, (fence).flush,
			       (fence).checkpoint, (fence).checkpoint_time, (fence).highest, (fence).highest_time
			  from lobsink_claim_v1($1, $2, $3, $4)`, s.o.Prefix), r.Partition, r.MemberID, r.ClaimID, int64(r.Lease))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			targets := []any{&outcome, &holder, &heldFor}
			if string(rows.RawValues()[0]) == "claimed" {
				targets = append(targets, fenceFields(&c.Fence)...)
			} else {
				targets = append(targets, make([]any, fenceColumnCount)...)
			}
			if err := rows.Scan(targets...); err != nil {
				return err
			}
		}
		if rows.Err() != nil {
			return rows.Err()
		}
		switch {
		case outcome == "claimed" && c.Fence.ClaimID == r.ClaimID:
			return nil
		case outcome == "held" && holder != nil && heldFor != nil:
			return &lobwriter.Error{Kind: lobwriter.Held, Op: "claim",
				Err: fmt.Errorf("member %s holds partition %d for another %v", *holder, r.Partition, time.Duration(*heldFor))}
		case outcome == "unknown partition":
			return &lobwriter.Error{Kind: lobwriter.Invalid, Op: "claim",
				Err:  fmt.Errorf("there is no partition %d", r.Partition),
				Hint: "the tables are not those that lobsink began with: start it again"}
		}
		return errNoReply
	})
	if err != nil {
		return lobwriter.Claim{}, err
	}
	return c, nil
}

// Renew implements lobwriter.Store. It takes the lock of the lease row only.
func (s *Store) Renew(ctx context.Context, c lobwriter.Claim, lease time.Duration) (lobwriter.Fence, error) {
	var f lobwriter.Fence
	err := use(ctx, s.leases, "renew", func(conn *pgx.Conn) error {
		err := conn.QueryRow(ctx, withPrefix(`
			with renewed as (
			  update lobsink_leases set lease_until = lobsink_now() + $5
			   where partition = $1 and member_id = $2 and epoch = $3 and claim_id = $4
			  returning partition)
			select `+fenceColumns+` from lobsink_fences join renewed using (partition)`, s.o.Prefix),
			c.Partition, c.MemberID, c.Fence.Epoch, c.Fence.ClaimID, int64(lease)).Scan(fenceFields(&f)...)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		// In a statement of its own, which sees the claim that took the lease.
		if f, err = readFence(ctx, conn, s.o.Prefix, c.Partition); err != nil {
			return err
		}
		return &lobwriter.FencedError{Stored: f}
	})
	if err != nil {
		return lobwriter.Fence{}, err
	}
	return f, nil
}

// Release implements lobwriter.Store.
func (s *Store) Release(ctx context.Context, c lobwriter.Claim) error {
	return use(ctx, s.leases, "release", func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, withPrefix(`
			delete from lobsink_leases where partition = $1 and member_id = $2 and epoch = $3 and claim_id = $4`, s.o.Prefix),
			c.Partition, c.MemberID, c.Fence.Epoch, c.Fence.ClaimID)
		return err
	})
}

// Fence implements lobwriter.Store.
func (s *Store) Fence(ctx context.Context, partition int) (f lobwriter.Fence, err error) {
	err = use(ctx, s.leases, "read the fence", func(conn *pgx.Conn) (err error) {
		f, err = readFence(ctx, conn, s.o.Prefix, partition)
		return err
	})
	return f, err
}

// fenceColumns are the columns of a lobwriter.Fence, in the order of fenceFields.
const (
	fenceColumns     = `life, epoch, claim_id, flush, checkpoint, checkpoint_time, highest, highest_time`
	fenceColumnCount = 8
)

func fenceFields(f *lobwriter.Fence) []any {
	return []any{
		&f.Life, &f.Epoch, &f.ClaimID, &f.Flush,
		&f.Checkpoint.Seq, &f.Checkpoint.Time, &f.Highest.Seq, &f.Highest.Time,
	}
}

// readFence returns the fence row of a partition. One that was never claimed has
// the epoch 0, and the life of the binding.
func readFence(ctx context.Context, conn *pgx.Conn, prefix string, partition int) (f lobwriter.Fence, err error) {
	err = conn.QueryRow(ctx, withPrefix(`
		select `+fenceColumns+` from lobsink_fences where partition = $1`, prefix), partition).Scan(fenceFields(&f)...)
	if errors.Is(err, pgx.ErrNoRows) {
		b, err := readBinding(ctx, conn, prefix)
		return lobwriter.Fence{Life: b.Life}, err
	}
	return f, err
}
