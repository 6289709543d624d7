package consumer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lobsink/lobsink/lobwriter"
)

// TestStopDuring: a soft stop at any moment ends with the lease given back, and
// whoever comes next is exact.
func TestStopDuring(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"bind", "claim", "fence", "rows", "flush", "renew"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 1)
			g := r.gate()
			hang, hung := hanging(op)
			r.load(1, 300, 3)
			if op == "rows" { // asked only for groups above guessBelow
				r.publish("large", []byte(strings.Repeat("x", 2*guessBelow)), nil)
			}
			g.set(hang, nil)
			r.start()
			<-hung
			close(r.stop)
			g.set(nil, nil)
			if err := r.ends(10 * time.Second); err != nil {
				t.Error(err)
			}
			if _, err := r.store.Claim(t.Context(), lobwriter.ClaimRequest{MemberID: "next", ClaimID: "next", Lease: time.Second}); err != nil && op != "bind" {
				t.Errorf("the lease was not given back: %v", err)
			}
			// A second run takes up what the first left.
			r.cfg.Member.ID = "next"
			r.start()
			r.exact()
			r.halt()
			r.acked()
		})
	}
	t.Run("letters", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, 1)
		r.cfg.DrainTimeout = 500 * time.Millisecond
		r.start()
		r.stored("first", r.publish("first", []byte("good"), nil))
		if err := r.js.DeleteStream(t.Context(), DeadStream(r.spec.Name)); err != nil {
			t.Fatal(err)
		}
		bad := r.publish("k", []byte("\xff"), nil)
		other := r.publish("other", []byte("good"), nil)
		r.stored("other", other)
		close(r.stop)
		if err := r.ends(10 * time.Second); !errors.Is(err, ErrNotDrained) {
			t.Errorf("%v, want %v", err, ErrNotDrained)
		}
		if _, err := CreateDeadStream(t.Context(), r.js, r.spec.Name, 1); err != nil {
			t.Fatal(err)
		}
		r.start()
		r.stored("k", bad)
		r.halt()
		if l := r.deadLetters(); len(l) != 1 || l[0].Sequence != bad {
			t.Errorf("letters %+v", l)
		}
		r.acked()
	})
}

// TestHardStop: when the context ends Run returns within the deadline of one
// attempt, whatever hangs, with the leases given back, and a successor is exact.
func TestHardStop(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"bind", "claim", "fence", "flush", "renew", "attend", "none"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 2)
			g := r.gate()
			hang, hung := hanging(op)
			g.set(hang, nil)
			r.load(2, 300, 5)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r.startUntil(ctx)
			if op != "none" {
				<-hung
			}
			began := time.Now()
			cancel()
			if err := r.ends(10 * time.Second); !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want %v", err, context.Canceled)
			}
			t.Logf("ended after %v", time.Since(began))
			for p := range r.spec.Partitions {
				_, err := r.store.Claim(t.Context(), lobwriter.ClaimRequest{Partition: p, MemberID: "next", ClaimID: "next", Lease: time.Millisecond})
				if lobwriter.KindOf(err) == lobwriter.Held {
					t.Errorf("the lease was not given back: %v", err)
				}
			}
			g.set(nil, nil)
			r.start()
			r.exact()
			r.halt()
			r.acked()
		})
	}
}

// TestDrainTimeout: a drain that the database does not let end says so, and
// loses nothing.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.cfg.DrainTimeout = 300 * time.Millisecond
	g := r.gate()
	hang, hung := hanging("flush")
	g.set(hang, nil)
	r.load(3, 100, 2)
	r.start()
	<-hung
	close(r.stop)
	if err := r.ends(10 * time.Second); !errors.Is(err, ErrNotDrained) {
		t.Errorf("%v, want %v", err, ErrNotDrained)
	}
	g.set(nil, nil)
	r.start()
	r.exact()
	r.halt()
	r.acked()
}

// TestLeave: a member that has left is not seen any more, also when it was about
// to attend.
func TestLeave(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	g := r.gate()
	g.set(nil, func(_ context.Context, op string, _ int) error {
		if op == "leave" {
			time.Sleep(2 * r.cfg.Renew)
		}
		return nil
	})
	r.start()
	r.eventually("a claim", func() bool { return r.epoch() == 1 })
	r.halt()
	live, err := r.store.Attend(t.Context(), lobwriter.Member{ID: "witness"}, time.Second)
	if err != nil || len(live.Members) != 1 {
		t.Errorf("%v live after the end (%v), want the witness alone", live, err)
	}
}

// TestConnectionClosed: a connection that is closed for good, as nats.go does
// when its credentials are refused twice, ends Run, which a service manager
// starts again. It must not keep its leases for ever.
func TestConnectionClosed(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{false, true} {
		r := newRig(t, 2)
		r.cfg.Status = NewStatus()
		if early {
			r.nc.Close()
		}
		r.start()
		if !early {
			r.eventually("both partitions", func() bool { return check(r.cfg.Status, "partitions") == nil })
			r.nc.Close()
		}
		if err := r.ends(10 * time.Second); !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("closed early %v: %v, want %v", early, err, nats.ErrConnectionClosed)
		}
		if early {
			continue
		}
		if _, err := r.store.Claim(t.Context(), lobwriter.ClaimRequest{MemberID: "next", ClaimID: "next", Lease: time.Second}); err != nil {
			t.Errorf("the lease was not given back: %v", err)
		}
	}
}
