package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lobsink/lobsink/lobwriter"
)

// What an owner asks of the stream and of the database, and what it is told.

// perform carries out one action, or has it wait in requests.
func (x *explorer) perform(n *exState, i int, a Action) {
	o := n.owners[i]
	turn := o.part.Turn()
	switch a := a.(type) {
	case DoClaim:
		x.claim(n, o, a)
	case DoDrop:
		x.note("; drops: %s (%s)", a.Reason, a.Detail)
		x.abandon(n, i)
	case DoReport:
	case DoFetch:
		x.mayStill(o, "a fetch")
		o.fetching, o.inbox = true, nil
		if c := n.consumer(o.consumerName); c != nil {
			c.pulls = append(slices.Clip(c.pulls), exPull{owner: i})
		}
	case DoHalt: // the fetch ends when nothing is left to receive
	case DoRenew:
		x.mayStill(o, "a renewal")
		f, err := x.store(n).Renew(context.Background(), a.Claim, exLease)
		if err == nil {
			o.leaseEnd, n.current.until = o.now.Add(exLease), n.dbNow+int64(exLease)
			x.stored(n)
		}
		o.part.Renewed(o.now, turn, o.now, f, err)
	case DoAck:
		x.mayStill(o, "an acknowledgement")
		if a.Seq > o.committed {
			x.fail("%s acknowledges message %d, but under its claim the checkpoint is %d", ownerName(i), a.Seq, o.committed)
		}
		if c := n.consumer(o.consumerName); c != nil {
			c.ack(a.Seq)
		}
		o.part.Acked(o.now, turn, a.Seq, nil)
	case DoFlush:
		x.mayStill(o, "a flush")
		if o.unknown != nil && fingerprint(o.unknown) != fingerprint(a.Flush) {
			x.fail("%s sends another flush while the outcome of one is unknown", ownerName(i))
		}
		x.note("; flush %d, checkpoint %d%s", a.Flush.Number, a.Flush.Checkpoint.Seq, groups(a.Flush))
		x.ask(n, o, exRequest{action: a})
	case DoOpen:
		o.consumerName = x.namer.consumerName(a.Claim)
		x.ask(n, o, exRequest{action: a, consumerName: o.consumerName})
	case DoSweep:
		r := exRequest{action: a, consumerName: o.consumerName}
		if !x.cfg.slowSweep {
			x.arrive(n, o, &r)
			return
		}
		x.ask(n, o, r)
	case DoInspect:
		// Reading the stream commutes with everything but the loss of a tail.
		r := exRequest{action: a}
		if x.cfg.faults[faultTail] == 0 {
			x.arrive(n, o, &r)
			return
		}
		x.ask(n, o, r)
	case DoLook:
		// Nothing is fetched meanwhile, so it may as well be answered at once.
		if x.loseLook {
			x.note("; looks, without an answer")
			o.part.Looked(o.now, turn, Look{}, errExLost)
			return
		}
		x.answer(n, o, &exRequest{action: a})
	default:
		x.ask(n, o, exRequest{action: a})
	}
}

// ask puts a request on its way.
func (x *explorer) ask(n *exState, o *exOwner, r exRequest) {
	for i := range o.requests {
		if fmt.Sprintf("%T", o.requests[i].action) == fmt.Sprintf("%T", r.action) {
			x.fail("a second %T in one turn", r.action)
		}
	}
	o.requests = append(o.requests, r)
}

// mayStill ends the search if the owner's lease may have run out.
func (x *explorer) mayStill(o *exOwner, what string) {
	if !o.now.Before(o.leaseEnd) {
		x.fail("%s after the lease may have run out", what)
	}
}

// progress lets a request arrive, or its reply.
func (x *explorer) progress(n *exState, i, r int) {
	o := n.owners[i]
	req := &o.requests[r]
	if a, ok := req.action.(DoFlush); ok && req.arrived {
		receipt, err := req.receipt, req.err
		o.requests = slices.Delete(o.requests, r, r+1)
		x.note("learns of flush %d", a.Flush.Number)
		o.unknown = nil
		o.part.Flushed(o.now, a.Turn, receipt, err)
		return
	}
	if _, ok := req.action.(DoFlush); ok {
		x.arrive(n, o, req)
		return
	}
	one := *req
	o.requests = slices.Delete(o.requests, r, r+1)
	x.arrive(n, o, &one)
}

// lose has a request end without an answer. What it asked for may still happen.
func (x *explorer) lose(n *exState, i, r int) {
	o := n.owners[i]
	req := o.requests[r]
	o.requests = slices.Delete(o.requests, r, r+1)
	x.note("%T", req.action)
	x.leaveBehind(n, req)
	turn := o.part.Turn()
	switch a := req.action.(type) {
	case DoFlush:
		o.unknown = a.Flush
		o.part.Flushed(o.now, turn, lobwriter.Receipt{}, errExLost)
	case DoInspect:
		o.part.Inspected(o.now, turn, Inspection{}, errExLost)
	case DoOpen:
		o.part.Opened(o.now, turn, errExLost)
	case DoConfirm:
		o.part.Confirmed(o.now, turn, lobwriter.Fence{}, errExLost)
	case DoLook:
		o.part.Looked(o.now, turn, Look{}, errExLost)
	case DoRelease:
		o.part.Released(o.now, turn)
	}
}

// arrive is what a request does, and its answer if somebody waits for it.
func (x *explorer) arrive(n *exState, o *exOwner, r *exRequest) {
	switch a := r.action.(type) {
	case DoFlush:
		x.flush(n, o, a.Flush, r)
	case DoOpen:
		x.note("%s is created at %d", r.consumerName, a.Start)
		n.open(r.consumerName, a.Start)
		if o != nil {
			o.part.Opened(o.now, a.Turn, nil)
		}
	case DoSweep:
		x.note("all consumers but %s are deleted", r.consumerName)
		n.remove(x, func(c *exConsumer) bool { return c.consumerName != r.consumerName })
	case DoRelease:
		x.note("the lease is given back")
		if err := x.store(n).Release(context.Background(), a.Claim); err != nil {
			x.fail("release: %v", err)
		}
		x.stored(n)
		if n.current.claimID == a.Claim.Fence.ClaimID {
			n.current.until = n.dbNow
		}
		if o != nil {
			o.part.Released(o.now, a.Turn)
		}
	case DoClaim:
		x.note("claim %s", r.claimID)
		x.commitClaim(n, r)
	default:
		if o != nil {
			x.answer(n, o, r)
		}
	}
}

// answer answers what only reads.
func (x *explorer) answer(n *exState, o *exOwner, r *exRequest) {
	switch a := r.action.(type) {
	case DoInspect:
		in := Inspection{StreamFacts: n.facts(o), CheckpointTime: n.at(a.Checkpoint.Seq).Time, HighestTime: n.at(a.Highest.Seq).Time}
		x.note("inspects the stream")
		o.part.Inspected(o.now, a.Turn, in, nil)
	case DoConfirm:
		x.note("confirms its claim")
		o.part.Confirmed(o.now, a.Turn, n.fence, nil)
	case DoLook:
		x.note("looks")
		l := Look{StreamFacts: n.facts(o), LastTime: n.at(a.Last.Seq).Time}
		if c := n.consumer(o.consumerName); c == nil {
			l.Changed = "deleted"
		} else {
			l.Delivered, l.More = uint64(len(c.sent)), c.more(n, a.Read)
			if c.edited {
				l.Changed = "ack_wait"
			}
		}
		o.part.Looked(o.now, a.Turn, l, nil)
	case DoRead:
		x.note("reads rows")
		rows, err := x.store(n).Rows(context.Background(), 0, a.Keys)
		o.part.RowsRead(o.now, a.Turn, rows, err)
	default:
		x.fail("unknown action %T", a)
	}
}

// claim sends a claim and, unless it is to be late, has it answered at once.
func (x *explorer) claim(n *exState, o *exOwner, a DoClaim) {
	r := exRequest{action: a, memberID: o.memberID, claimID: x.id()}
	fate := x.fate
	x.fate = claimAnswered
	if fate == claimLate {
		x.note("claims, without an answer")
		x.leaveBehind(n, r)
		o.part.Claimed(o.now, a.Turn, o.now, lobwriter.Claim{}, errExLost)
		return
	}
	c, err := x.commitClaim(n, &r)
	if err == nil {
		o.claimID, o.leaseEnd, o.committed = r.claimID, o.now.Add(exLease), c.Fence.Checkpoint.Seq
		x.note("claims: epoch %d, claim %s, checkpoint %d", c.Fence.Epoch, r.claimID, c.Fence.Checkpoint.Seq)
	} else if lobwriter.KindOf(err) != lobwriter.Held {
		x.fail("claim: %v", err)
	}
	o.part.Claimed(o.now, a.Turn, o.now, c, err)
}

func (x *explorer) commitClaim(n *exState, r *exRequest) (lobwriter.Claim, error) {
	c, err := x.store(n).Claim(context.Background(), lobwriter.ClaimRequest{MemberID: r.memberID, ClaimID: r.claimID, Lease: exLease})
	if err != nil {
		return c, err
	}
	x.stored(n)
	n.current = exClaim{claimID: r.claimID, memberID: r.memberID, until: n.dbNow + int64(exLease)}
	return c, nil
}

// flush commits a flush and checks that it was allowed to.
func (x *explorer) flush(n *exState, o *exOwner, f *lobwriter.Flush, r *exRequest) {
	was := n.fence
	receipt, err := x.store(n).Flush(context.Background(), f)
	r.arrived, r.receipt, r.err = true, receipt, err
	var fenced *lobwriter.FencedError
	switch {
	case errors.As(err, &fenced):
		x.note("flush %d under claim %s is fenced", f.Number, f.ClaimID)
		return
	case err != nil:
		x.fail("flush: %v", err)
	}
	x.stored(n)
	is := n.fence
	x.note("flush %d commits: checkpoint %d%s", f.Number, is.Checkpoint.Seq, answers(f, receipt))
	switch {
	case f.ClaimID != n.current.claimID:
		x.fail("claim %s commits, but claim %s is current", f.ClaimID, n.current.claimID)
	case is.Flush != was.Flush+1 || is.Checkpoint.Seq < was.Checkpoint.Seq:
		x.fail("the fence row goes from %+v to %+v", was, is)
	}
	for i := range n.owners {
		if own := n.owners[i]; own.claimID == f.ClaimID && own.committed < is.Checkpoint.Seq {
			x.own(n, i).committed = is.Checkpoint.Seq
		}
	}
	x.checkStored(n)
}

// leaveBehind keeps a request whose sender waits no more, and reports whether it
// did: what only reads changes nothing.
func (x *explorer) leaveBehind(n *exState, r exRequest) bool {
	switch r.action.(type) {
	case DoFlush, DoOpen, DoSweep, DoRelease, DoClaim:
		if !r.arrived {
			n.late = append(slices.Clip(n.late), r)
			return true
		}
	}
	return false
}
