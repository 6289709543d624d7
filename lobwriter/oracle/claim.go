package oracle

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// The outcomes of calls about leases.
const (
	leaseTaken   = 1 // claimed, renewed, released
	leaseOthers  = 2 // held by somebody else, or no longer of this claim
	leaseUnknown = 3 // there is no such partition
	leaseBusy    = 4 // another call holds the lease row
)

// bindingOut takes a binding.
type bindingOut struct {
	databaseID, stream        string
	life, created, partitions number
}

func (b *bindingOut) binds() []any {
	return []any{
		out("p_database_id", &b.databaseID), out("p_life", &b.life),
		out("p_stored_stream", &b.stream), out("p_stored_created", &b.created), out("p_stored_partitions", &b.partitions),
	}
}

func (b *bindingOut) binding() (lobwriter.Binding, error) {
	if !given(b.life, b.created, b.partitions) || b.databaseID == "" {
		return lobwriter.Binding{}, errNoReply
	}
	return lobwriter.Binding{
		Stream:     lobwriter.Stream{Name: b.stream, Created: b.created.Int64, Partitions: int(b.partitions.Int64)},
		DatabaseID: b.databaseID, Life: b.life.Int64,
	}, nil
}

// anywhere makes a call that no partition is for: at the first service that
// answers.
func (s *Store) anywhere(ctx context.Context, op string, try func(p *pool) error) (err error) {
	for _, p := range s.services {
		if err = classify(op, try(p)); err == nil || lobwriter.KindOf(err) != lobwriter.Transient || ctx.Err() != nil {
			break
		}
	}
	return err
}

// Bind implements lobwriter.Store.
func (s *Store) Bind(ctx context.Context, stream lobwriter.Stream) (b lobwriter.Binding, err error) {
	err = s.anywhere(ctx, "bind", func(p *pool) error {
		var o bindingOut
		if _, err := call(ctx, s.o, p.leases, "bind", bindBlock, 0, append([]any{
			in("p_stream", stream.Name), in("p_created", stream.Created), in("p_partitions", int64(stream.Partitions)),
		}, o.binds()...)...); err != nil {
			return err
		}
		if b, err = o.binding(); err != nil {
			return err
		}
		return b.Serves(stream)
	})
	if err != nil {
		return lobwriter.Binding{}, err
	}
	return b, nil
}

// Attend implements lobwriter.Store.
func (s *Store) Attend(ctx context.Context, m lobwriter.Member, lease time.Duration) (r lobwriter.Roster, err error) {
	err = s.anywhere(ctx, "attend", func(p *pool) (err error) {
		o := newRosterOut()
		if _, err := call(ctx, s.o, p.leases, "attend", attendBlock, maxLeases, append([]any{
			in("p_id", m.ID), in("p_name", m.Name), in("p_version", m.Version), in("p_lease", int64(lease)),
		}, o.binds()...)...); err != nil {
			return err
		}
		r, err = o.roster(ctx, s.o, p.leases)
		return err
	})
	if err != nil {
		return lobwriter.Roster{}, err
	}
	return r, nil
}

// Leave implements lobwriter.Store.
func (s *Store) Leave(ctx context.Context, memberID string) error {
	return s.anywhere(ctx, "leave", func(p *pool) error {
		_, err := call(ctx, s.o, p.leases, "leave", leaveBlock, 0, in("p_id", memberID))
		return err
	})
}

// Claim implements lobwriter.Store. The database waits 5 s for a flush under way;
// after that the error is Transient.
func (s *Store) Claim(ctx context.Context, r lobwriter.ClaimRequest) (c lobwriter.Claim, err error) {
	ctx, cancel := deadline(ctx, s.o.FlushTimeout)
	defer cancel()
	p := s.of(r.Partition)
	c = lobwriter.Claim{Partition: r.Partition, MemberID: r.MemberID}
	err = busy(ctx, "claim", func() (again bool, err error) {
		var outcome, heldFor number
		var holder string
		var fence fenceOut
		if _, err := call(ctx, s.o, p.documents, "claim", claimBlock, 0, append([]any{
			in("p_partition", int64(r.Partition)), in("p_member_id", r.MemberID), in("p_claim_id", r.ClaimID), in("p_lease", int64(r.Lease)),
			out("p_outcome", &outcome), out("p_holder", &holder), out("p_held_for", &heldFor),
		}, fence.binds()...)...); err != nil {
			return false, err
		}
		if c.Fence, err = fence.fence(); err != nil {
			return false, err
		}
		switch {
		case outcome.Int64 == leaseTaken && c.Fence.ClaimID == r.ClaimID:
			return false, nil
		case outcome.Int64 == leaseOthers && holder != "":
			return false, &lobwriter.Error{Kind: lobwriter.Held, Op: "claim",
				Err: fmt.Errorf("member %s holds partition %d for another %v", holder, r.Partition, time.Duration(heldFor.Int64))}
		case outcome.Int64 == leaseUnknown:
			return false, &lobwriter.Error{Kind: lobwriter.Invalid, Op: "claim", Err: fmt.Errorf("there is no partition %d", r.Partition),
				Hint: "the tables are not those that lobsink began with: start it again"}
		case outcome.Int64 == leaseBusy:
			return true, nil
		}
		return false, errNoReply
	})
	if err != nil {
		return lobwriter.Claim{}, classify("claim", err)
	}
	return c, nil
}

// Renew implements lobwriter.Store. It takes the lock of the lease row only.
func (s *Store) Renew(ctx context.Context, c lobwriter.Claim, lease time.Duration) (f lobwriter.Fence, err error) {
	ctx, cancel := deadline(ctx, s.o.FlushTimeout)
	defer cancel()
	p := s.of(c.Partition)
	err = busy(ctx, "renew", func() (again bool, err error) {
		var outcome number
		var fence fenceOut
		if _, err := call(ctx, s.o, p.leases, "renew", renewBlock, 0, append(append(leaseBinds(c),
			in("p_lease", int64(lease)), out("p_outcome", &outcome)), fence.binds()...)...); err != nil {
			return false, err
		}
		if f, err = fence.fence(); err != nil {
			return false, err
		}
		switch outcome.Int64 {
		case leaseTaken:
			return false, nil
		case leaseOthers:
			return false, &lobwriter.FencedError{Stored: f}
		case leaseBusy:
			return true, nil
		}
		return false, errNoReply
	})
	if err != nil {
		return lobwriter.Fence{}, classify("renew", err)
	}
	return f, nil
}

// leaseBinds say which claim a lease must be of.
func leaseBinds(c lobwriter.Claim) []any {
	return []any{
		in("p_partition", int64(c.Partition)), in("p_member_id", c.MemberID),
		in("p_epoch", c.Fence.Epoch), in("p_claim_id", c.Fence.ClaimID),
	}
}

// Release implements lobwriter.Store.
func (s *Store) Release(ctx context.Context, c lobwriter.Claim) error {
	ctx, cancel := deadline(ctx, s.o.FlushTimeout)
	defer cancel()
	p := s.of(c.Partition)
	return classify("release", busy(ctx, "release", func() (again bool, err error) {
		var outcome number
		if _, err := call(ctx, s.o, p.leases, "release", releaseBlock, 0, append(leaseBinds(c), out("p_outcome", &outcome))...); err != nil {
			return false, err
		}
		switch outcome.Int64 {
		case leaseTaken, leaseOthers:
			return false, nil
		case leaseBusy:
			return true, nil
		}
		return false, errNoReply
	}))
}

// Fence implements lobwriter.Store.
func (s *Store) Fence(ctx context.Context, partition int) (lobwriter.Fence, error) {
	p := s.of(partition)
	return readFence(ctx, s.o, p.leases, partition)
}

func readFence(ctx context.Context, o Options, db *sql.DB, partition int) (lobwriter.Fence, error) {
	var fence fenceOut
	if _, err := call(ctx, o, db, "read the fence", fenceBlock, 0, append([]any{in("p_partition", int64(partition))}, fence.binds()...)...); err != nil {
		return lobwriter.Fence{}, err
	}
	f, err := fence.fence()
	return f, classify("read the fence", err)
}
