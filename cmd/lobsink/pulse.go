package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// pulse is a store that knows whether those who use it still get on. A partition
// that is claimed renews its lease every few seconds, and it is the loop that
// flushes which decides to; every call has a deadline. So a claim without renewals
// is a loop that hangs, and a call without an end is a driver that hangs.
type pulse struct {
	lobwriter.Store
	// silence is how long is too long; far above every deadline and every
	// wait between two claims (a minute at most, for an operator).
	silence time.Duration

	mu      sync.Mutex
	calls   map[*activity]struct{} // under way
	claimed map[int]time.Time      // when the owner of a partition last asked for something
}

// activity is a call under way.
type activity struct {
	op        string
	partition int
	since     time.Time
}

// minSilence is what pulse.silence is at least.
const minSilence = 2 * time.Minute

func newPulse(s lobwriter.Store, lease time.Duration) *pulse {
	return &pulse{Store: s, silence: max(minSilence, 4*lease), calls: map[*activity]struct{}{}, claimed: map[int]time.Time{}}
}

// err says what hangs; nil: nothing does. Without NATS a partition may rest.
func (p *pulse) err(connected bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for a := range p.calls {
		if d := time.Since(a.since); d > p.silence {
			return fmt.Errorf("a call of the database (%s, partition %d) has not ended for %s, long after its deadline", a.op, a.partition, d.Round(time.Second))
		}
	}
	for partition, at := range p.claimed {
		if d := time.Since(at); d > p.silence && connected {
			return fmt.Errorf("the owner of partition %d has not renewed its lease for %s", partition, d.Round(time.Second))
		}
	}
	return nil
}

// under notes a call under way; what it returns notes its end.
func (p *pulse) under(op string, partition int) (end func()) {
	a := &activity{op, partition, time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[a] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.calls, a)
	}
}

// beat notes a sign of life of an owner; claimed: it is one from now on.
func (p *pulse) beat(partition int, claimed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, is := p.claimed[partition]; is || claimed {
		p.claimed[partition] = time.Now()
	}
}

// rest notes that nothing is to be heard of a partition any more.
func (p *pulse) rest(partition int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.claimed, partition)
}

// heard takes the answer to a claim or a renewal.
func (p *pulse) heard(partition int, err error) {
	switch k := lobwriter.KindOf(err); {
	case err == nil:
		p.beat(partition, true)
	case k == lobwriter.Held, k == lobwriter.Fenced:
		p.rest(partition) // it is somebody else's
	default:
		p.beat(partition, false)
	}
}

// Claim is the first beat.
func (p *pulse) Claim(ctx context.Context, r lobwriter.ClaimRequest) (lobwriter.Claim, error) {
	defer p.under("claim", r.Partition)()
	c, err := p.Store.Claim(ctx, r)
	p.heard(r.Partition, err)
	return c, err
}

// Renew is every other one.
func (p *pulse) Renew(ctx context.Context, c lobwriter.Claim, lease time.Duration) (lobwriter.Fence, error) {
	defer p.under("renew", c.Partition)()
	f, err := p.Store.Renew(ctx, c, lease)
	p.heard(c.Partition, err)
	return f, err
}

// Release is the last one.
func (p *pulse) Release(ctx context.Context, c lobwriter.Claim) error {
	defer p.under("release", c.Partition)()
	p.rest(c.Partition)
	return p.Store.Release(ctx, c)
}

// Rows may hang, and says nothing about its owner.
func (p *pulse) Rows(ctx context.Context, partition int, keys []string) ([]lobwriter.Row, error) {
	defer p.under("rows", partition)()
	return p.Store.Rows(ctx, partition, keys)
}

// Flush is like Rows: it is repeated without its owner.
func (p *pulse) Flush(ctx context.Context, f *lobwriter.Flush) (lobwriter.Receipt, error) {
	defer p.under("flush", f.Partition)()
	return p.Store.Flush(ctx, f)
}
