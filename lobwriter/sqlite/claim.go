package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// rows is what one row is read from: a transaction, a connection or a pool.
type rows interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *Store) exec(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
	_, err := tx.ExecContext(ctx, withPrefix(query, s.o.Prefix), args...)
	return err
}

// Bind implements lobwriter.Store.
func (s *Store) Bind(ctx context.Context, stream lobwriter.Stream) (lobwriter.Binding, error) {
	var b lobwriter.Binding
	err := s.write(ctx, "bind", func(tx *sql.Tx) (err error) {
		b, err = readBinding(ctx, tx, s.o.Prefix)
		switch {
		case err != nil:
			return err
		case b.Life == 0:
			b.Stream, b.Life = stream, 1
			return s.exec(ctx, tx, `update lobsink_binding set stream = ?, created = ?, partitions = ?, life = ?`,
				b.Name, b.Created, b.Partitions, b.Life)
		}
		return b.Serves(stream)
	})
	if err != nil {
		return lobwriter.Binding{}, err
	}
	return b, nil
}

// readBinding returns the binding; its life is 0 before the first Bind.
func readBinding(ctx context.Context, db rows, prefix string) (b lobwriter.Binding, err error) {
	err = db.QueryRowContext(ctx, withPrefix(`
		select database_id, life, coalesce(stream, ''), coalesce(created, 0), coalesce(partitions, 0)
		  from lobsink_binding`, prefix)).Scan(&b.DatabaseID, &b.Life, &b.Name, &b.Created, &b.Partitions)
	return b, err
}

// Attend implements lobwriter.Store.
func (s *Store) Attend(ctx context.Context, m lobwriter.Member, lease time.Duration) (lobwriter.Roster, error) {
	var roster lobwriter.Roster
	err := s.write(ctx, "attend", func(tx *sql.Tx) error {
		now := s.o.Now()
		if err := s.exec(ctx, tx, `insert or replace into lobsink_members (id, name, version, seen_until) values (?,?,?,?)`,
			m.ID, m.Name, m.Version, now+int64(lease)); err != nil {
			return err
		}
		err := s.exec(ctx, tx, `delete from lobsink_members where seen_until <= ?`, now)
		if err != nil {
			return err
		}
		roster, err = s.roster(ctx, tx, now)
		return err
	})
	if err != nil {
		return lobwriter.Roster{}, err
	}
	return roster, nil
}

// roster reads the roster; an exclusive store knows the renewals that are in no
// row.
func (s *Store) roster(ctx context.Context, tx *sql.Tx, now int64) (lobwriter.Roster, error) {
	r, err := readRoster(ctx, tx, s.o.Prefix, now)
	for i := range r.Leases {
		l := &r.Leases[i]
		if until, ok := s.renewed.Load(l.Partition); ok && until.(lease).memberID == l.MemberID {
			l.Left = max(l.Left, time.Duration(until.(lease).until-now))
		}
	}
	return r, err
}

func readRoster(ctx context.Context, tx *sql.Tx, prefix string, now int64) (r lobwriter.Roster, err error) {
	each := func(query string, row func(scan func(...any) error) error) error {
		found, err := tx.QueryContext(ctx, withPrefix(query, prefix))
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			if err := row(found.Scan); err != nil {
				return err
			}
		}
		return found.Err()
	}
	var until int64
	err = each(`select id, name, version, seen_until from lobsink_members order by id`, func(scan func(...any) error) error {
		var m lobwriter.Presence
		err := scan(&m.ID, &m.Name, &m.Version, &until)
		if m.Left = time.Duration(until - now); m.Left > 0 {
			r.Members = append(r.Members, m)
		}
		return err
	})
	if err != nil {
		return r, err
	}
	err = each(`select partition, member_id, lease_until from lobsink_leases order by partition`, func(scan func(...any) error) error {
		var l lobwriter.Lease
		err := scan(&l.Partition, &l.MemberID, &until)
		l.Left = time.Duration(until - now)
		r.Leases = append(r.Leases, l)
		return err
	})
	return r, err
}

// Leave implements lobwriter.Store.
func (s *Store) Leave(ctx context.Context, memberID string) error {
	return s.write(ctx, "leave", func(tx *sql.Tx) error {
		return errors.Join(
			s.exec(ctx, tx, `delete from lobsink_members where id = ?`, memberID),
			s.exec(ctx, tx, `delete from lobsink_leases where member_id = ?`, memberID))
	})
}

// Claim implements lobwriter.Store. It waits for a flush under way because that
// holds the only write lock.
func (s *Store) Claim(ctx context.Context, r lobwriter.ClaimRequest) (lobwriter.Claim, error) {
	c := lobwriter.Claim{Partition: r.Partition, MemberID: r.MemberID}
	err := s.write(ctx, "claim", func(tx *sql.Tx) error {
		b, err := readBinding(ctx, tx, s.o.Prefix)
		if err != nil {
			return err
		}
		if r.Partition < 0 || r.Partition >= b.Partitions {
			return &lobwriter.Error{Kind: lobwriter.Invalid, Op: "claim",
				Err:  fmt.Errorf("there is no partition %d of %d", r.Partition, b.Partitions),
				Hint: "the tables are not those that lobsink began with: start it again"}
		}
		l, err := s.readLease(ctx, tx, r.Partition)
		if err != nil {
			return err
		}
		now := s.o.Now()
		if l.until > now && l.memberID != r.MemberID {
			return &lobwriter.Error{Kind: lobwriter.Held, Op: "claim",
				Err: fmt.Errorf("member %s holds partition %d for another %v", l.memberID, r.Partition, time.Duration(l.until-now))}
		}
		c.Fence, err = s.fence(ctx, tx, r.Partition)
		if err != nil {
			return err
		}
		c.Fence.Epoch++
		c.Fence.ClaimID = r.ClaimID
		c.Fence.Flush = 0
		if err := s.putFence(ctx, tx, r.Partition, c.Fence); err != nil {
			return err
		}
		return s.exec(ctx, tx, `
			insert or replace into lobsink_leases (partition, member_id, epoch, claim_id, lease_until) values (?,?,?,?,?)`,
			r.Partition, r.MemberID, c.Fence.Epoch, r.ClaimID, now+int64(r.Lease))
	})
	if err != nil {
		return lobwriter.Claim{}, err
	}
	return c, nil
}

// Renew implements lobwriter.Store. In an exclusive store it only reads, since the
// lock of the file is what keeps others out, and remembers the new end itself.
// Otherwise it writes, and that waits for the transaction of a flush under way.
func (s *Store) Renew(ctx context.Context, c lobwriter.Claim, d time.Duration) (lobwriter.Fence, error) {
	var f lobwriter.Fence
	check := func(tx *sql.Tx) error {
		l, err := s.readLease(ctx, tx, c.Partition)
		if err != nil {
			return err
		}
		if f, err = s.fence(ctx, tx, c.Partition); err != nil {
			return err
		}
		if !l.of(c) {
			return &lobwriter.FencedError{Stored: f}
		}
		return nil
	}
	var err error
	if s.o.Exclusive {
		if err = s.file.read(ctx, "renew", check); err == nil {
			s.renewed.Store(c.Partition, lease{memberID: c.MemberID, claimID: c.Fence.ClaimID, until: s.o.Now() + int64(d)})
		}
	} else {
		err = s.write(ctx, "renew", func(tx *sql.Tx) error {
			if err := check(tx); err != nil {
				return err
			}
			return s.exec(ctx, tx, `update lobsink_leases set lease_until = ? where partition = ?`, s.o.Now()+int64(d), c.Partition)
		})
	}
	if err != nil {
		return lobwriter.Fence{}, err
	}
	return f, nil
}

// Release implements lobwriter.Store.
func (s *Store) Release(ctx context.Context, c lobwriter.Claim) error {
	return s.write(ctx, "release", func(tx *sql.Tx) error {
		return s.exec(ctx, tx, `
			delete from lobsink_leases where partition = ? and member_id = ? and epoch = ? and claim_id = ?`,
			c.Partition, c.MemberID, c.Fence.Epoch, c.Fence.ClaimID)
	})
}

// freeLeases ends what members left behind that cannot be running any more.
func (s *Store) freeLeases(ctx context.Context) error {
	return s.write(ctx, "free leases", func(tx *sql.Tx) error {
		return errors.Join(
			s.exec(ctx, tx, `delete from lobsink_leases`),
			s.exec(ctx, tx, `delete from lobsink_members`))
	})
}

// lease is the lease row of a partition. The zero lease is none.
type lease struct {
	memberID string
	epoch    int64
	claimID  string
	until    int64
}

func (l lease) of(c lobwriter.Claim) bool {
	return l.memberID == c.MemberID && l.epoch == c.Fence.Epoch && l.claimID == c.Fence.ClaimID
}

func (s *Store) readLease(ctx context.Context, db rows, partition int) (l lease, err error) {
	err = db.QueryRowContext(ctx, withPrefix(`
		select member_id, epoch, claim_id, lease_until from lobsink_leases where partition = ?`, s.o.Prefix),
		partition).Scan(&l.memberID, &l.epoch, &l.claimID, &l.until)
	if errors.Is(err, sql.ErrNoRows) {
		return lease{}, nil
	}
	if r, ok := s.renewed.Load(partition); ok && r.(lease).claimID == l.claimID {
		l.until = r.(lease).until
	}
	return l, err
}

// Fence implements lobwriter.Store. Reading does not wait for a flush.
func (s *Store) Fence(ctx context.Context, partition int) (lobwriter.Fence, error) {
	return s.file.fence(ctx, partition)
}

func (s *Store) fence(ctx context.Context, tx *sql.Tx, partition int) (lobwriter.Fence, error) {
	return readFence(ctx, tx, s.o.Prefix, partition)
}

// readFence returns the fence row of a partition. One that was never claimed has
// the epoch 0, and the life of the binding.
func readFence(ctx context.Context, db rows, prefix string, partition int) (f lobwriter.Fence, err error) {
	err = db.QueryRowContext(ctx, withPrefix(`
		select life, epoch, claim_id, flush, checkpoint, checkpoint_time, highest, highest_time
		  from lobsink_fences where partition = ?`, prefix), partition).
		Scan(&f.Life, &f.Epoch, &f.ClaimID, &f.Flush, &f.Checkpoint.Seq, &f.Checkpoint.Time, &f.Highest.Seq, &f.Highest.Time)
	if errors.Is(err, sql.ErrNoRows) {
		b, err := readBinding(ctx, db, prefix)
		return lobwriter.Fence{Life: b.Life}, err
	}
	return f, err
}

func (s *Store) putFence(ctx context.Context, tx *sql.Tx, partition int, f lobwriter.Fence) error {
	return s.exec(ctx, tx, `
		insert or replace into lobsink_fences
		  (partition, life, epoch, claim_id, flush, checkpoint, checkpoint_time, highest, highest_time)
		values (?,?,?,?,?,?,?,?,?)`,
		partition, f.Life, f.Epoch, f.ClaimID, f.Flush,
		f.Checkpoint.Seq, f.Checkpoint.Time, f.Highest.Seq, f.Highest.Time)
}
