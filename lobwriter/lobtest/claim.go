package lobtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// request asks for partition 1 for an hour.
func request(m lobwriter.Member, claimID string) lobwriter.ClaimRequest {
	return lobwriter.ClaimRequest{Partition: 1, MemberID: m.ID, ClaimID: claimID, Lease: Lease}
}

// briefly is a request whose lease ends at once.
func briefly(m lobwriter.Member, claimID string) lobwriter.ClaimRequest {
	r := request(m, claimID)
	r.Lease = time.Millisecond
	return r
}

// Claim IDs of the tests.
const (
	id1 = "1111111111111111"
	id2 = "2222222222222222"
	id3 = "3333333333333333"
)

func claim(t testing.TB, s lobwriter.Store, r lobwriter.ClaimRequest) lobwriter.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), r)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return c
}

var claimRules = []rule{
	{"a free lease is taken", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		before := fence(t, f.Store, 1)
		if before != (lobwriter.Fence{Life: 1}) {
			t.Errorf("before the first claim the fence row is %+v", before)
		}
		c := claim(t, f.Store, request(ada, id1))
		if c.Partition != 1 || c.MemberID != ada.ID || c.Fence.Epoch <= before.Epoch || c.Fence != (lobwriter.Fence{Life: 1, Epoch: c.Fence.Epoch, ClaimID: id1}) {
			t.Errorf("claim %+v", c)
		}
		if got := fence(t, f.Store, 1); got != c.Fence {
			t.Errorf("stored is %+v, the claim says %+v", got, c.Fence)
		}
	}},
	{"a lease that somebody else holds is held", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		stores := f.others(t)
		c := claim(t, stores[0], request(ada, id1))
		_, err := stores[1].Claim(t.Context(), request(bea, id2))
		kind(t, err, lobwriter.Held)
		if got := fence(t, f.Store, 1); got != c.Fence {
			t.Errorf("the refused claim changed the fence row: %+v", got)
		}
	}},
	{"an own lease is taken again, with a new epoch", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		first := claim(t, f.Store, request(ada, id1))
		again := claim(t, f.Store, request(ada, id2))
		if again.Fence.Epoch <= first.Fence.Epoch || again.Fence.ClaimID != id2 {
			t.Errorf("first %+v, again %+v", first, again)
		}
	}},
	{"an expired lease is taken", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		stores := f.others(t)
		first := claim(t, stores[0], briefly(ada, id1))
		eventually(t, "the lease ends", func() bool {
			c, err := stores[1].Claim(t.Context(), request(bea, id2))
			if err != nil {
				kind(t, err, lobwriter.Held)
				return false
			}
			return c.Fence.Epoch > first.Fence.Epoch
		})
	}},
	{"a claim sets the flush number to 0 and keeps the rest", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("k", Text(7, "<a/>")))
		c := claim(t, f.Store, request(ada, id2))
		want := lobwriter.Fence{Life: 1, Epoch: c.Fence.Epoch, ClaimID: id2, Checkpoint: At(7), Highest: At(7)}
		if c.Fence != want || fence(t, f.Store, 1) != want {
			t.Errorf("claim %+v, want %+v", c.Fence, want)
		}
	}},
	{"partitions are claimed apart", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		stores := f.others(t)
		c := claim(t, stores[0], request(ada, id1))
		for p, m := range map[int]lobwriter.Member{0: bea, 2: bea, 3: ada} {
			r := request(m, id2)
			r.Partition = p
			claim(t, stores[1], r)
		}
		if got := fence(t, f.Store, 1); got != c.Fence {
			t.Errorf("other claims changed the fence row: %+v", got)
		}
	}},
	{"a partition that there is not cannot be claimed", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		for _, p := range []int{-1, stream.Partitions} {
			r := request(ada, id1)
			r.Partition = p
			_, err := f.Store.Claim(t.Context(), r)
			kind(t, err, lobwriter.Invalid)
		}
	}},
	{"a claim waits for a flush under way", func(t *testing.T, f Fixture) {
		if f.Hold == nil {
			t.Skip("the store has no way to hold a flush")
		}
		Bind(t, f.Store)
		claim(t, f.Store, request(ada, id1))
		release := f.Hold(t, 1)
		second, done := f.others(t)[1], make(chan error, 1)
		go func() {
			_, err := second.Claim(t.Context(), request(ada, id2))
			done <- err
		}()
		select {
		case err := <-done:
			t.Errorf("the claim did not wait: %v", err)
			release()
			return
		case <-time.After(200 * time.Millisecond):
		}
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}},
	{"nothing of the previous owner is stored after a claim", takeover},
	{"release frees the lease at once", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		stores := f.others(t)
		c := claim(t, stores[0], request(ada, id1))
		if err := stores[0].Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		claim(t, stores[1], request(bea, id2))
	}},
	{"release of a claim that is no longer current does nothing", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		stores := f.others(t)
		old := claim(t, stores[0], request(ada, id1))
		claim(t, stores[0], request(ada, id2))
		if err := stores[0].Release(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		_, err := stores[1].Claim(t.Context(), request(bea, id3))
		kind(t, err, lobwriter.Held)
	}},
}

// takeover claims again and again from an owner that never stops flushing. What
// is stored when a claim returns is what the claim says, and stays.
func takeover(t *testing.T, f Fixture) {
	stores := f.others(t)
	for round := range 10 {
		o := NewOwner(t, stores[0], 1)
		o.Rows["k"] = row(t, f.Store, 1, "k")
		started, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			for n := uint64(0); ; n++ {
				flush := o.NewFlush(o.Append("k", Text(o.Rows["k"].Mark.Seq+1, "<a/>")))
				r, err := o.Store.Flush(t.Context(), flush)
				if err != nil {
					ended <- err
					return
				}
				o.Settle(flush, r)
				if n == 3 {
					close(started)
				}
			}
		}()
		<-started
		c := claim(t, stores[1], request(ada, id2))
		after := row(t, f.Store, 1, "k")
		kind(t, <-ended, lobwriter.Fenced)
		if got := row(t, f.Store, 1, "k"); got != after || got.Mark.Seq != c.Fence.Checkpoint.Seq {
			t.Fatalf("round %d: the claim found checkpoint %d and mark %d, later the mark was %d", round, c.Fence.Checkpoint.Seq, after.Mark.Seq, got.Mark.Seq)
		}
	}
}

var renewRules = []rule{
	{"renew extends the lease", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		stores := f.others(t)
		r := request(ada, id1)
		r.Lease = 300 * time.Millisecond
		c := claim(t, stores[0], r)
		renew(t, stores[0], c, Lease)
		time.Sleep(400 * time.Millisecond)
		_, err := stores[1].Claim(t.Context(), request(bea, id2))
		kind(t, err, lobwriter.Held)
	}},
	{"the lease counts from the renewal", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		stores := f.others(t)
		renew(t, stores[0], claim(t, stores[0], request(ada, id1)), time.Millisecond)
		eventually(t, "the renewed lease ends", func() bool {
			_, err := stores[1].Claim(t.Context(), request(bea, id2))
			return err == nil
		})
	}},
	{"an expired lease that nobody took is renewed", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		stores := f.others(t)
		c := claim(t, stores[0], briefly(ada, id1))
		time.Sleep(20 * time.Millisecond)
		renew(t, stores[0], c, Lease)
		_, err := stores[1].Claim(t.Context(), request(bea, id2))
		kind(t, err, lobwriter.Held)
	}},
	{"renew returns the fence row as it stands", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("k", Text(7, "<a/>")))
		want := o.Claim.Fence
		want.Flush, want.Checkpoint, want.Highest = 1, At(7), At(7)
		if got := renew(t, f.Store, o.Claim, Lease); got != want {
			t.Errorf("fence row %+v, want %+v", got, want)
		}
	}},
	{"renew of a claim that is no longer current is fenced and changes nothing", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		stores := f.others(t)
		old := claim(t, stores[0], request(ada, id1))
		current := claim(t, stores[0], briefly(ada, id2))
		_, err := stores[0].Renew(t.Context(), old, Lease)
		kind(t, err, lobwriter.Fenced)
		if got := fence(t, f.Store, 1); got != current.Fence {
			t.Errorf("the fence row became %+v", got)
		}
		eventually(t, "the current lease ends when it would have", func() bool {
			_, err := stores[1].Claim(t.Context(), request(bea, id3))
			return err == nil
		})
	}},
	{"renew after release is fenced", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		c := claim(t, f.Store, request(ada, id1))
		if err := f.Store.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		_, err := f.Store.Renew(t.Context(), c, Lease)
		kind(t, err, lobwriter.Fenced)
	}},
	{"renew and reading the fence row never wait for a flush", func(t *testing.T, f Fixture) {
		if f.Hold == nil {
			t.Skip("the store has no way to hold a flush")
		}
		Bind(t, f.Store)
		c := claim(t, f.Store, request(ada, id1))
		release := f.Hold(t, 1)
		defer release()
		// Long enough for any machine: waiting for the flush would take for ever.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := f.Store.Renew(ctx, c, Lease); err != nil {
			t.Errorf("renew: %v", err)
		}
		if got, err := f.Store.Fence(ctx, 1); err != nil || got != c.Fence {
			t.Errorf("fence: %+v, %v", got, err)
		}
		if got, err := f.Reader.Fence(ctx, 1); err != nil || got != c.Fence {
			t.Errorf("the reader's fence: %+v, %v", got, err)
		}
	}},
}

func renew(t testing.TB, s lobwriter.Store, c lobwriter.Claim, lease time.Duration) lobwriter.Fence {
	t.Helper()
	f, err := s.Renew(t.Context(), c, lease)
	if err != nil {
		t.Fatalf("renew: %v", err)
	}
	return f
}

// fenced fails the test unless an error is a *FencedError with the stored row.
func fenced(t testing.TB, err error, stored lobwriter.Fence) {
	t.Helper()
	var e *lobwriter.FencedError
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want a *FencedError", err)
	}
	if e.Stored != stored {
		t.Errorf("the error brings %+v, stored is %+v", e.Stored, stored)
	}
}
