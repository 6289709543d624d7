package consumer

import (
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// How a turn ends: handed over, when everything held is in the database; or
// dropped, when there is doubt.

// Assign tells whether this member is to own the partition. If not, it reads no
// more, flushes what it holds, gives the lease back and waits, until it is to own
// it again.
func (p *Partition) Assign(now time.Time, own bool) {
	if p.assigned == own {
		return
	}
	p.assigned = own
	if own {
		p.Tick(now)
		return
	}
	p.handOver(now)
}

// Stop asks for a clean end: everything held is flushed and the lease given back.
// Ended tells when it is done. Stop cannot be taken back.
func (p *Partition) Stop(now time.Time) {
	if p.stopping {
		return
	}
	p.stopping = true
	p.handOver(now)
}

// wanted reports whether a claim is to be made, or kept.
func (p *Partition) wanted() bool { return p.assigned && !p.stopping }

// ending reports whether the turn reads no more.
func (p *Partition) ending() bool { return p.handing || p.leaving.why != "" }

func (p *Partition) handOver(now time.Time) {
	switch {
	case p.lapsed(now):
	case p.phase == owning:
		// Assigned again in between, it is claimed again.
		p.handing, p.handBy = true, now.Add(p.opt.Lease)
		p.halt()
		p.batch.Drain()
		p.advance(now)
	case p.claimed():
		p.release(p.claim)
	case p.phase == waiting:
		p.rest()
	}
}

// overdue drops a turn that cannot be handed over in order: what it holds is read
// again by the next owner, which has waited for a whole lease. A member that stops
// has a limit of its own.
func (p *Partition) overdue(now time.Time) bool {
	if p.phase != owning || !p.handing || p.stopping || now.Before(p.handBy) {
		return false
	}
	p.doubt(now, DoubtHandover, "not everything could be flushed and acknowledged")
	return true
}

// rest is what a partition does that waits for nothing: it gives back what a
// dropped turn has left, or ends.
func (p *Partition) rest() {
	switch {
	case p.left.Fence.Epoch != 0:
		p.release(p.left)
	case p.stopping:
		p.phase = ended
	}
}

// leave flushes what is held and then doubts.
func (p *Partition) leave(now time.Time, why Doubt, detail string) {
	if p.leaving.why == "" {
		p.leaving.why, p.leaving.detail = why, detail
		p.halt()
		p.batch.Drain()
	}
	p.advance(now)
}

// finish ends a turn that reads no more, once nothing is held.
func (p *Partition) finish(now time.Time) {
	if p.phase != owning || p.holds() || p.flight != nil || p.ack.outstanding {
		return
	}
	switch {
	case p.handing:
		p.release(p.claim)
	case p.leaving.why != "":
		p.doubt(now, p.leaving.why, p.leaving.detail)
	}
}

func (p *Partition) release(c lobwriter.Claim) {
	p.phase, p.left = releasing, lobwriter.Claim{}
	p.do(DoRelease{Turn: p.turn, Claim: c})
}

// Released answers DoRelease; the lease runs out by itself if it failed.
func (p *Partition) Released(now time.Time, turn Turn) {
	if turn != p.turn || p.phase != releasing {
		return
	}
	p.end("", "released", p.claimAt)
	p.Tick(now)
}

// doubt is the one answer to everything that is not as it should be: the
// memory of the partition is dropped, and it is claimed again.
func (p *Partition) doubt(now time.Time, why Doubt, detail string) {
	p.drop(now, why, detail, p.retry)
	p.retry = min(2*p.retry, lastRetry)
}

// drop ends a turn before everything is flushed. Its lease holds on if the
// partition is to be claimed again.
func (p *Partition) drop(now time.Time, why Doubt, detail string, wait time.Duration) {
	switch {
	case !p.claimed():
	case p.wanted():
		p.left = p.claim
	default:
		p.do(DoRelease{Turn: p.turn, Claim: p.claim})
	}
	p.end(why, detail, now.Add(wait))
}

// end ends the turn. The next claim may be made at claimAt.
func (p *Partition) end(why Doubt, detail string, claimAt time.Time) {
	p.do(DoDrop{Turn: p.turn, Reason: why, Detail: detail})
	p.turn++
	p.phase, p.claimAt = waiting, claimAt
	p.forget()
	if p.stopping {
		p.phase = ended
	}
}

// forget drops everything that belongs to a turn.
func (p *Partition) forget() {
	p.claim, p.fence, p.renewal = lobwriter.Claim{}, lobwriter.Fence{}, renewal{}
	p.leaseEnd, p.renewAt = time.Time{}, time.Time{}
	p.reading = reading{allowance: p.reading.allowance}
	p.writing = newWriting(p.opt)
}

// stop drops a turn that only an operator can help, and says so.
func (p *Partition) stop(now time.Time, why Doubt, err error) {
	p.do(DoReport{Err: err})
	p.yield(now, why, err.Error(), lookAgain)
}

// yield drops a turn for a while in which another member may try.
func (p *Partition) yield(now time.Time, why Doubt, detail string, wait time.Duration) {
	if p.wanted() { // otherwise drop gives it back
		p.do(DoRelease{Turn: p.turn, Claim: p.claim})
	}
	p.drop(now, why, detail, wait)
	p.left = lobwriter.Claim{}
}
