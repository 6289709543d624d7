package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// There is one way to begin: claim the partition, make sure that the stream is
// the one that the checkpoint belongs to, create a consumer that is this
// claim's alone, and see that stream and claim are still the same once it
// exists. Only then is anything read, and every other consumer of the partition
// deleted.

// Claimed answers DoClaim, which was sent at sent.
func (p *Partition) Claimed(now time.Time, turn Turn, sent time.Time, c lobwriter.Claim, err error) {
	if turn != p.turn || p.phase != claiming {
		return
	}
	if err != nil {
		p.phase = waiting
		p.claimAt = now.Add(p.heldRetry())
		k := lobwriter.KindOf(err)
		if k == lobwriter.Held {
			p.left = lobwriter.Claim{}
		}
		if k != lobwriter.Held && k != lobwriter.Transient {
			p.do(DoReport{Err: fmt.Errorf("partition %d cannot be claimed: %w", p.opt.Partition, err)})
			p.claimAt = now.Add(lastRetry)
		}
		p.Tick(now)
		return
	}
	p.claim, p.fence, p.left = c, c.Fence, lobwriter.Claim{}
	p.leaseEnd, p.renewAt = sent.Add(p.opt.Lease), sent.Add(p.opt.Renew)
	p.phase = inspecting
	if p.lapsed(now) {
		return
	}
	if !p.wanted() {
		p.release(p.claim)
		return
	}
	p.do(DoInspect{Turn: p.turn, Checkpoint: p.fence.Checkpoint, Highest: p.fence.Highest})
}

// heldRetry is short enough to take over a dead owner's partition within a
// second of its lease's end.
func (p *Partition) heldRetry() time.Duration {
	return min(p.opt.Lease/4, time.Second)
}

// Inspected answers DoInspect, before the consumer is created and after: the
// stream may have been created again between.
func (p *Partition) Inspected(now time.Time, turn Turn, in Inspection, err error) {
	if turn != p.turn || p.phase != inspecting && p.phase != checking || p.lapsed(now) {
		return
	}
	if err != nil {
		p.doubt(now, DoubtClaim, "the stream does not answer: "+err.Error())
		return
	}
	if p.phase == checking && in.Connection != p.connection {
		p.doubt(now, DoubtReconnect, anotherConnection)
		return
	}
	var gap *GapError
	switch err := Obstacle(p.opt.Partition, p.opt.Binding, p.fence, in); {
	case errors.As(err, &gap):
		p.suspectAt = time.Time{}
		p.stop(now, DoubtGap, gap)
		return
	case err != nil:
		p.suspect(now, err)
		return
	}
	p.suspectAt = time.Time{}
	ck := p.fence.Checkpoint.Seq
	// Without a checkpoint in this life the claim begins at the first message;
	// that is no gap. Start is never above last + 1: the server does not clamp
	// there, it would skip.
	start := max(ck+1, in.First, 1)
	if start > in.Last.Seq+1 {
		p.doubt(now, DoubtClaim, fmt.Sprintf("the stream begins at %d and ends at %d", in.First, in.Last.Seq))
		return
	}
	switch {
	case p.phase == inspecting:
		p.phase, p.start, p.connection = opening, start, in.Connection
		p.do(DoOpen{Turn: p.turn, Claim: p.claim, Start: start})
	case start != p.start:
		p.doubt(now, DoubtClaim, fmt.Sprintf("the stream begins at %d meanwhile", in.First))
	default:
		p.phase = confirming
		p.do(DoConfirm{Turn: p.turn})
	}
}

// suspect looks again after a while before it believes a mismatch: a lagging
// leader may have answered.
func (p *Partition) suspect(now time.Time, err error) {
	if p.suspectAt.IsZero() {
		p.suspectAt = now
	}
	if wait := confirmAfter - now.Sub(p.suspectAt); wait > 0 {
		p.yield(now, DoubtIdentity, err.Error(), wait)
		return
	}
	p.stop(now, DoubtIdentity, err)
}

// Opened answers DoOpen.
func (p *Partition) Opened(now time.Time, turn Turn, err error) {
	if turn != p.turn || p.phase != opening || p.lapsed(now) {
		return
	}
	if err != nil {
		p.doubt(now, DoubtClaim, "the consumer could not be created: "+err.Error())
		return
	}
	p.phase = checking
	p.do(DoInspect{Turn: p.turn, Checkpoint: p.fence.Checkpoint, Highest: p.fence.Highest})
}

// Confirmed answers DoConfirm. Another claim may have been made while the
// consumer was created; then that consumer must not delete the new owner's.
func (p *Partition) Confirmed(now time.Time, turn Turn, f lobwriter.Fence, err error) {
	if turn != p.turn || p.phase != confirming || p.lapsed(now) {
		return
	}
	switch {
	case err != nil:
		p.doubt(now, DoubtClaim, "the fence row cannot be read: "+err.Error())
	case !p.isCurrent(f):
		p.doubt(now, DoubtFenced, "claimed by somebody else meanwhile")
	case !p.wanted():
		p.release(p.claim)
	default:
		p.phase = owning
		p.do(DoSweep{Turn: p.turn, Claim: p.claim})
		p.advance(now)
	}
}

// IdentityError: the stream is not the one that the database's checkpoint
// belongs to. The partition stands still until an operator decides.
type IdentityError struct {
	Partition     int
	Stream        string
	What          string
	Stored, Found string
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("partition %d stopped: stream %s is not the one this database was fed from: %s is %s in the database, %s in the stream; "+
		"restore the stream, or point lobsink at the right one; lobsink checkpoint show tells more, and lobsink checkpoint adopt goes on with the stream as it is", e.Partition, e.Stream, e.What, e.Stored, e.Found)
}

// GapError: messages that were never read may be gone.
type GapError struct {
	Partition         int
	Checkpoint, First uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("partition %d stopped: the stream begins at sequence %d, but only what is at or below %d has been stored; "+
		"what lies between may hold unread fragments that the stream has discarded: restore the stream, or go on without them: lobsink checkpoint adopt", e.Partition, e.First, e.Checkpoint)
}

func stamp(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
