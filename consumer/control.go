package consumer

import (
	"slices"
	"sync"
	"time"
)

// Control is how an operator asks things of a running consumer. All methods are
// safe for concurrent use. What is paused stays so in this process only: another
// one that takes the partition over does not know of it.
type Control struct {
	mu     sync.Mutex
	owners []*owner // nil: not running
	paused []int    // ascending
}

// NewControl returns the control of a consumer that has not begun.
func NewControl() *Control { return &Control{} }

// Flush makes everything due that is held now.
func (c *Control) Flush() {
	c.each(nil, func(p *Partition, now time.Time) { p.Hurry(now) })
}

// Pause has partitions read nothing more, flush what they hold, and keep their
// leases; none given: all. It returns which ones are paused then. A number that is
// no partition is left out.
func (c *Control) Pause(partitions ...int) []int { return c.pause(partitions, true) }

// Resume has paused partitions go on; none given: all. It returns which ones are
// still paused.
func (c *Control) Resume(partitions ...int) []int { return c.pause(partitions, false) }

func (c *Control) pause(partitions []int, paused bool) []int {
	now := c.note(partitions, paused)
	c.each(partitions, func(p *Partition, now time.Time) { p.Pause(now, paused) })
	return now
}

// note notes what is paused.
func (c *Control) note(partitions []int, paused bool) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.owners {
		if len(partitions) > 0 && !slices.Contains(partitions, i) {
			continue
		}
		c.paused = slices.DeleteFunc(c.paused, func(p int) bool { return p == i })
		if paused {
			c.paused = append(c.paused, i)
		}
	}
	slices.Sort(c.paused)
	return slices.Clone(c.paused)
}

// each hands an event to the owners of partitions; none given: to all.
func (c *Control) each(partitions []int, event func(p *Partition, now time.Time)) {
	c.mu.Lock()
	owners := c.owners
	c.mu.Unlock()
	for i, o := range owners {
		if len(partitions) > 0 && !slices.Contains(partitions, i) {
			continue
		}
		select {
		case o.events <- func(now time.Time) { event(o.part, now) }:
		case <-o.done:
		}
	}
}

// serve is told of the owners when they exist, and of nil when they have ended.
func (c *Control) serve(owners []*owner) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owners = owners
}

// Pause has the partition read nothing more and flush what it holds, or go on. It
// keeps the lease.
func (p *Partition) Pause(now time.Time, paused bool) {
	if p.paused == paused {
		return
	}
	p.paused = paused
	if paused {
		p.halt()
		p.Hurry(now)
	} else {
		p.Tick(now)
	}
}

// Hurry makes everything due that is held now.
func (p *Partition) Hurry(now time.Time) {
	p.batch.Hurry()
	p.Tick(now)
}
