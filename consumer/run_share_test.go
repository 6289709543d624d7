package consumer

import (
	"context"
	"testing"
	"time"
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
