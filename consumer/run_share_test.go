package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/internal/embednats"
	"github.com/lobsink/lobsink/lobwriter"
)

// TestMembersComeAndGo: members that join get their share without a restart, one
// that stops hands over at once, one that dies is replaced; every document is
// exact (O34).
func TestMembersComeAndGo(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 8)
	loading := make(chan struct{})
	go func() {
		defer close(loading)
		c.load(1, 6000, 50)
	}()
	a := c.hire("a")
	c.owns(8)
	b := c.hire("b")
	c.owns(4, 4)
	d := c.hire("d")
	c.owns(3, 3, 2)
	for _, h := range []*hand{a, b, d} {
		if n := h.metric("members"); n != 3 {
			t.Errorf("%s knows %v members, want 3", h.cfg.Member.Name, n)
		}
		if err := check(h.cfg.Status, "partitions"); err != nil {
			t.Errorf("%s: %v", h.cfg.Member.Name, err)
		}
	}
	before := c.epochs()
	b.leaves()
	c.owns(4, 4)
	if n := c.epochs() - before; n > 3 {
		t.Errorf("%d claims for the 3 partitions at most of a member that stopped", n)
	}
	if n := a.metric("takeover_seconds") + d.metric("takeover_seconds"); n != 0 {
		t.Errorf("%v leases ran out, although a member stopped in order", n)
	}
	a.dies()
	c.owns(8)
	if n := d.metric("takeover_seconds"); n != 4 {
		t.Errorf("%v takeovers, want 4", n)
	}
	<-loading
	c.exact()
	d.leaves()
	c.acked()
}

// TestHotStandby: of two members on one partition the second one stands by, is
// ready, asks the database for nothing but the roster, and takes over.
func TestHotStandby(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 1)
	c.cfg.Lease, c.cfg.Renew, c.cfg.FlushTimeout = 8*time.Second, 2*time.Second, 6*time.Second
	a := c.hire("a")
	c.owns(1)
	b := c.hire("b")
	claims := make(chan struct{}, 1000)
	b.gate.set(func(_ context.Context, op string, _ int) error {
		if op == "claim" {
			claims <- struct{}{}
		}
		return nil
	}, nil)
	c.eventually("b to be ready", func() bool { return check(b.cfg.Status, "partitions") == nil })
	c.load(1, 300, 5)
	time.Sleep(c.cfg.Lease)
	if len(claims) > 0 {
		t.Errorf("%d attempts to claim a partition that is owned", len(claims))
	}
	a.dies()
	c.load(2, 300, 5)
	c.exact()
	d := c.hire("d")
	c.eventually("d to be ready", func() bool { return check(d.cfg.Status, "partitions") == nil })
	b.leaves()
	c.load(3, 300, 5)
	c.exact()
	d.leaves()
	c.acked()
}

// TestMembersSameRows: members that flush many documents at once, in orders that
// are reversed, do not wait for each other in a circle; and a deadlock that the
// database reports all the same costs a repetition (O32).
func TestMembersSameRows(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 4)
	c.cfg.MaxAge = 5 * time.Millisecond
	a := c.hire("a")
	c.owns(4)
	b := c.hire("b")
	c.owns(2, 2)
	var injected atomic.Int32
	deadlocked := func(_ context.Context, op string, _ int) error {
		if op == "flush" && injected.Add(1)%10 == 1 {
			return &lobwriter.Error{Kind: lobwriter.Transient, Op: "flush", Code: "40P01", Err: errors.New("deadlock detected")}
		}
		return nil
	}
	var failed atomic.Int32
	for _, h := range []*hand{a, b} {
		h.gate.set(deadlocked, nil)
	}
	var producers sync.WaitGroup
	for order := range 2 {
		producers.Go(func() {
			for round := range 50 {
				for i := range 26 {
					key := i
					if order == 1 {
						key = 25 - i
					}
					token, _ := Token(string(rune('A' + key)))
					if _, err := c.js.Publish(t.Context(), Layout{Root: "fragments"}.Subject(token), fmt.Appendf(nil, "<r p=\"%d\" n=\"%d\"/>", order, round)); err != nil {
						failed.Add(1)
					}
				}
			}
		})
	}
	producers.Wait()
	if n := failed.Load(); n > 0 {
		t.Fatalf("%d publications failed", n)
	}
	c.exact()
	if injected.Load() < 2 {
		t.Error("no flush met a deadlock")
	}
	a.leaves()
	b.leaves()
	c.acked()
}

// TestMembersSlowFlushes: what waits in memory behind slow flushes is not
// delivered a second time (O37).
func TestMembersSlowFlushes(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 4)
	slow := func(_ context.Context, op string, _ int) error {
		if op == "flush" {
			time.Sleep(100 * time.Millisecond)
		}
		return nil
	}
	a := c.hire("a")
	a.gate.set(slow, nil)
	c.owns(4)
	b := c.hire("b")
	b.gate.set(slow, nil)
	c.owns(2, 2)
	c.load(1, 5000, 100)
	c.exact()
	if n := a.metric("redeliveries_total") + b.metric("redeliveries_total"); n != 0 {
		t.Errorf("%v messages were delivered again", n)
	}
	a.leaves()
	b.leaves()
	c.acked()
}

// TestMembersFullStream: a server that takes no more messages refuses publishers
// with the reason; members store what there is, and go on when there is room
// (O47).
func TestMembersFullStream(t *testing.T) {
	t.Parallel()
	c := newCrewOn(t, 2, embednats.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), MaxStore: 1 << 20})
	a := c.hire("a")
	c.owns(2)
	b := c.hire("b")
	c.owns(1, 1)
	want := map[string]*strings.Builder{}
	last := map[string]uint64{}
	publish := func(i int) error {
		key := fmt.Sprintf("doc %d", i%10)
		text := fmt.Sprintf("<r n=\"%d\">%s</r>", i, strings.Repeat("x", 2000))
		token, _ := Token(key)
		ack, err := c.js.Publish(t.Context(), Layout{Root: c.spec.Root}.Subject(token), []byte(text))
		if err != nil {
			return err
		}
		if want[key] == nil {
			want[key] = &strings.Builder{}
		}
		want[key].WriteString(text)
		last[key] = ack.Sequence
		return nil
	}
	n := 0
	var refused error
	for refused == nil && n < 10_000 {
		refused = publish(n)
		n++
	}
	var api *jetstream.APIError
	if !errors.As(refused, &api) {
		t.Fatalf("after %d messages: %v, want a refusal with the reason", n, refused)
	}
	t.Logf("after %d messages: %v", n, refused)
	stored := func() {
		for key, seq := range last {
			c.stored(key, seq)
		}
	}
	stored()
	if err := c.stream().Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := publish(n + i); err != nil {
			t.Fatalf("when there is room again: %v", err)
		}
	}
	stored()
	for key, b := range want {
		if got, _, _ := c.text(key); got != b.String() {
			t.Errorf("%s: %d bytes, want %d", key, len(got), b.Len())
		}
	}
	a.leaves()
	b.leaves()
	c.acked()
}
