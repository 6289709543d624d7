package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// Every step of the small case: what can happen in a state, faults among it.

// expand calls emit for each state that can follow.
func (x *explorer) expand(s *exState, emit func(next *exState, fault bool, broken string)) {
	try := func(fault int, step func(n *exState)) {
		if fault >= 0 && s.left[fault] == 0 {
			return
		}
		n := x.fork(s)
		if fault >= 0 {
			n.left[fault]--
			x.note("FAULT ")
		}
		broken := x.guarded(func() { step(n) })
		emit(n, fault >= 0, broken)
	}
	if int(s.last()) < len(x.cfg.documents) {
		try(-1, func(n *exState) {
			x.publish(n)
			x.note("message %d is published", n.last())
		})
	}
	for i := range s.owners {
		x.ownerSteps(s, i, try)
	}
	for i := range s.late {
		try(-1, func(n *exState) {
			r := n.late[i]
			n.late = slices.Delete(slices.Clone(n.late), i, i+1)
			x.note("late: ")
			x.arrive(n, nil, &r)
		})
	}
	for i := range s.consumers {
		x.consumerSteps(s, i, try)
	}
	if s.current.until > s.dbNow {
		fault := -1
		if s.holder() != nil {
			fault = faultExpire
		}
		try(fault, func(n *exState) {
			n.dbNow = n.current.until
			x.note("the lease runs out")
		})
	}
	for keep := uint64(0); keep < s.last(); keep++ {
		try(faultTail, func(n *exState) { x.loseTail(n, keep) })
	}
	if s.backup != nil {
		try(faultRewind, func(n *exState) {
			x.memory.Restore(n.backup.db)
			n.current, n.backup = n.backup.current, nil
			x.stored(n)
			x.note("the database goes back to %+v", n.fence)
			x.checkStored(n)
		})
	} else if s.left[faultRewind] > 0 {
		try(-1, func(n *exState) {
			n.backup = &exBackup{n.db, n.current}
			x.note("a backup is taken at %+v", n.fence)
		})
	}
}

type tryFunc func(fault int, step func(n *exState))

// ownerSteps are those of one owner, and what happens to it.
func (x *explorer) ownerSteps(s *exState, i int, try tryFunc) {
	o := s.owners[i]
	on := func(fault int, what string, step func(n *exState, o *exOwner)) {
		try(fault, func(n *exState) {
			x.note("%s %s", ownerName(i), what)
			step(n, x.own(n, i))
			x.settle(n, i)
		})
	}
	switch {
	case !o.alive:
		on(-1, "begins", x.begin)
		return
	case o.frozen:
		on(-1, "goes on", func(_ *exState, o *exOwner) { o.frozen = false })
		on(faultCrash, "crashes", x.crash)
		return
	}
	if o.part.claimed() || len(o.requests) > 0 {
		on(faultCrash, "crashes", x.crash)
		if s.left[faultFreeze] > 0 {
			on(faultFreeze, "is frozen until its lease has run out", x.freeze)
			x.thaws(s, i, try)
		}
	}
	switch {
	case !o.part.assigned:
		on(-1, "is to own the partition again", func(_ *exState, o *exOwner) { o.part.Assign(o.now, true) })
	case o.part.claimed():
		on(faultGiveUp, "is to give the partition up", func(_ *exState, o *exOwner) { o.part.Assign(o.now, false) })
	}
	on(faultStop, "is asked to stop", func(_ *exState, o *exOwner) { o.part.Stop(o.now) })
	if o.part.phase == waiting && o.part.wanted() && !s.held(o.memberID) {
		claims := func(fault int, how claimFate) {
			on(fault, "", func(_ *exState, o *exOwner) {
				x.fate = how
				o.now = later(o.now, o.part.claimAt)
				o.part.Tick(o.now)
			})
		}
		claims(-1, claimAnswered)
		claims(faultLose, claimLate)
	}
	for r := range o.requests {
		on(-1, "", func(n *exState, o *exOwner) { x.progress(n, i, r) })
		if _, ok := o.requests[r].action.(DoSweep); !ok { // nobody waits for that
			on(faultLose, "gets no answer: ", func(n *exState, o *exOwner) { x.lose(n, i, r) })
		}
	}
	if o.part.claimed() && !o.now.Before(o.part.leaseEnd) {
		on(-1, "looks at its clock", func(_ *exState, o *exOwner) { o.part.Tick(o.now) })
	}
	if x.renewalMatters(s, o) {
		on(-1, "renews", func(_ *exState, o *exOwner) {
			o.now = later(o.now, o.part.renewAt)
			o.part.Tick(o.now)
		})
	}
	if at := o.part.resendAt; o.part.phase == owning && !at.IsZero() {
		on(-1, "tries again", func(_ *exState, o *exOwner) {
			o.now = later(o.now, at)
			o.part.Tick(o.now)
		})
	}
	x.readingSteps(s, i, on)
	if o.part.claimed() && o.connection > 0 && o.lost {
		on(-1, "learns that the connection was lost and is back", func(n *exState, o *exOwner) {
			o.lost = false
			o.part.Reconnected(o.now, n.facts(o))
		})
	}
	if o.part.Owning() && x.cfg.faults[faultTail] > 0 && !o.lost {
		on(-1, "asks the stream about itself", func(n *exState, o *exOwner) { o.part.StreamChecked(o.now, n.facts(o)) })
	}
}

// readingSteps are those of an owner's fetch and connection.
func (x *explorer) readingSteps(s *exState, i int, on func(fault int, what string, step func(n *exState, o *exOwner))) {
	o := s.owners[i]
	switch {
	case !o.fetching:
	case len(o.inbox) > 0:
		on(-1, "receives "+sequences(o.inbox), func(n *exState, _ *exOwner) { x.receive(n, i) })
	case o.part.halted || !x.deliverable(s, i):
		quiet := func(fault int, lose bool) {
			on(fault, "has nothing to receive", func(n *exState, o *exOwner) {
				x.loseLook = lose
				x.endFetch(n, i)
				o.part.Fetched(o.now, o.part.Turn(), !o.part.halted, nil)
			})
		}
		quiet(-1, false)
		quiet(faultLose, true)
	}
	on(faultCut, "loses its connection", func(n *exState, o *exOwner) { x.disconnect(n, i) })
}

// renewalMatters reports whether a renewal would tell an owner anything. One that
// finds everything as believed only extends the lease, and that runs out when
// the search likes.
func (x *explorer) renewalMatters(s *exState, o *exOwner) bool {
	p := o.part
	if !p.claimed() || p.renewal.outstanding {
		return false
	}
	unsaid := len(p.kept) > 0 && p.kept[0] <= p.fence.Checkpoint.Seq
	return unsaid || !p.isCurrent(s.fence) || p.flight == nil && p.fence.Flush != s.fence.Flush
}

// deliverable reports whether a message can reach an owner. A fetch that ends
// quietly before it does tells nothing.
func (x *explorer) deliverable(s *exState, i int) bool {
	c := s.consumer(s.owners[i].consumerName)
	return c != nil && c.pending(s) != 0 && slices.Contains(c.pulls, exPull{owner: i})
}

// consumerSteps are the deliveries of a consumer, and what happens to it.
func (x *explorer) consumerSteps(s *exState, c int, try tryFunc) {
	con := &s.consumers[c]
	if con.pending(s) != 0 {
		for p, pull := range con.pulls {
			if !pull.dead && !x.cfg.slowDelivery {
				if !s.owners[pull.owner].frozen {
					x.receipts(s, c, pull.owner, try)
				}
				continue
			}
			deliver := func(fault int, arrives bool) {
				try(fault, func(n *exState) {
					con := &n.consumers[c]
					r := con.deliver(n)
					if !arrives {
						x.note("message %d of %s goes into a dead inbox", r.Fragment.Seq, con.consumerName)
						if pull.dead {
							con.pulls = slices.Delete(slices.Clone(con.pulls), p, p+1)
						}
						return
					}
					x.note("message %d reaches %s", r.Fragment.Seq, ownerName(pull.owner))
					o := x.own(n, pull.owner)
					r.Connection = o.connection
					o.inbox = append(o.inbox, r)
				})
			}
			if pull.dead {
				deliver(-1, false)
				continue
			}
			deliver(-1, true)
			deliver(faultDrop, false)
		}
	}
	try(faultDelete, func(n *exState) {
		name := n.consumers[c].consumerName
		x.note("%s is deleted by hand", name)
		n.remove(x, func(o *exConsumer) bool { return o.consumerName == name })
	})
	if !con.edited && len(con.sent) > con.floor {
		try(faultRedeliver, func(n *exState) {
			con := &n.consumers[c]
			con.edited = true
			con.again = slices.Clone(con.sent[con.floor:])
			x.note("%s gets a short AckWait", con.consumerName)
		})
	}
}

// receipts have messages delivered and received in one step, as many as there
// are or fewer. One of them may be lost on its way.
func (x *explorer) receipts(s *exState, c, i int, try tryFunc) {
	receive := func(fault, count, lost int) {
		try(fault, func(n *exState) {
			o := x.own(n, i)
			for k := range count {
				r := n.consumers[c].deliver(n)
				if r.Connection = o.connection; k != lost {
					o.inbox = append(o.inbox, r)
				}
			}
			if len(o.inbox) == 0 {
				x.note("a message to %s is lost", ownerName(i))
				return
			}
			x.note("%s receives %s", ownerName(i), sequences(o.inbox))
			x.receive(n, i)
		})
	}
	total := 0
	for con := s.consumers[c]; con.pending(s) != 0; total++ {
		con.deliver(s)
	}
	for count := 1; count <= total; count++ {
		receive(-1, count, -1)
		for lost := range count {
			receive(faultDrop, count, lost)
		}
	}
}

// receive hands over what has arrived. With that the fetch has ended, and another
// one follows.
func (x *explorer) receive(n *exState, i int) {
	o := x.own(n, i)
	batch := o.inbox
	o.inbox = nil
	o.part.Received(o.now, o.part.Turn(), batch)
	x.settle(n, i)
	x.fetched(n, i, nil)
}

// claimFate is what becomes of the next claim that is sent.
type claimFate int

const (
	claimAnswered claimFate = iota
	claimLate               // its sender gives up; it may arrive later
)

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func ownerName(i int) string { return string(rune('A' + i)) }

// begin starts the process.
func (x *explorer) begin(n *exState, o *exOwner) {
	*o = exOwner{alive: true, memberID: x.id(), now: start, connection: o.connection, part: New(Options{
		Binding: x.binding, Batch: x.cfg.batch(), Flush: x.cfg.limits(),
		MaxMessage: 100, Rows: 1 << 20, Lease: exLease, Renew: exRenew,
	})}
	o.part.Allow(1 << 20)
	o.part.Connected(o.now, true)
}

// crash ends the process; what it sent is still under way.
func (x *explorer) crash(n *exState, o *exOwner) {
	x.abandon(n, slices.Index(n.owners[:], o))
	*o = exOwner{connection: o.connection}
}

// freeze stops a process until its lease has run out. What it has sent is still
// under way. What it does first when it goes on is to drop its turn, as thaws
// checks; so that is done at once, and the search has less to tell apart.
func (x *explorer) freeze(n *exState, o *exOwner) {
	o.now = later(o.now, o.leaseEnd)
	o.part.Tick(o.now)
	x.settle(n, slices.Index(n.owners[:], o))
	o.frozen = true
}

// thaws checks what an owner does when it goes on after its lease has run out:
// whatever comes first, it drops the turn and sends nothing more.
func (x *explorer) thaws(s *exState, i int, try tryFunc) {
	n := x.fork(s)
	n.left = exBudget{}
	o := x.own(n, i)
	o.now = later(o.now, o.leaseEnd)
	o.requests = slices.DeleteFunc(o.requests, func(r exRequest) bool {
		_, flush := r.action.(DoFlush)
		return flush && !r.arrived // that concerns the database alone
	})
	first := func(fault int, step func(n *exState)) {
		if fault >= 0 {
			return
		}
		m := x.fork(n)
		turn := o.part.Turn()
		broken := x.guarded(func() { step(m) })
		if after := m.owners[i].part; broken == "" && after != nil && after.Turn() == turn && after.claimed() {
			broken = fmt.Sprintf("%s goes on after its lease has run out", ownerName(i))
		}
		if broken != "" {
			try(-1, func(n *exState) {
				frozen := x.own(n, i)
				frozen.now, frozen.requests = o.now, slices.Clone(o.requests)
				x.note("%s was frozen until its lease has run out, and goes on:", ownerName(i))
				step(n)
				x.fail("%s", broken)
			})
		}
	}
	x.ownerSteps(n, i, first)
	for c := range n.consumers {
		if slices.Contains(n.consumers[c].pulls, exPull{owner: i}) {
			x.receipts(n, c, i, first)
		}
	}
}

// abandon ends a turn: what it sent and what it asked the stream for stays.
func (x *explorer) abandon(n *exState, i int) {
	o := n.owners[i]
	for _, r := range o.requests {
		x.leaveBehind(n, r)
	}
	for c := range n.consumers {
		pulls := slices.Clone(n.consumers[c].pulls)
		for p := range pulls {
			pulls[p].dead = pulls[p].dead || pulls[p].owner == i
		}
		n.consumers[c].pulls = pulls
	}
	o.requests, o.fetching, o.inbox, o.unknown = nil, false, nil, nil
	o.claimID, o.consumerName, o.committed, o.leaseEnd = "", "", 0, time.Time{}
}

// settle carries out what the Partition wants until it wants nothing at once.
func (x *explorer) settle(n *exState, i int) {
	o := n.owners[i]
	if !o.alive {
		return
	}
	for actions := o.part.Actions(); len(actions) > 0; actions = o.part.Actions() {
		for _, a := range actions {
			x.perform(n, i, a)
		}
	}
	if o.part.Ended() {
		x.note("; has stopped")
		x.abandon(n, i)
		*o = exOwner{connection: o.connection}
	}
}

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

// fetched ends the fetch of an owner that waits for one.
func (x *explorer) fetched(n *exState, i int, err error) {
	if o := n.owners[i]; !o.alive || o.frozen || !o.fetching || len(o.inbox) > 0 {
		return // what is left to receive comes first, and then it is quiet
	}
	o := x.own(n, i)
	x.endFetch(n, i)
	o.part.Fetched(o.now, o.part.Turn(), false, err)
	x.settle(n, i)
}

func (x *explorer) endFetch(n *exState, i int) {
	n.owners[i].fetching = false
	for c := range n.consumers {
		n.consumers[c].pulls = slices.DeleteFunc(slices.Clone(n.consumers[c].pulls), func(p exPull) bool { return p.owner == i && !p.dead })
	}
}

// disconnect breaks a connection. It is back at once, but word of it comes late.
func (x *explorer) disconnect(n *exState, i int) {
	o := x.own(n, i)
	o.connection++
	o.lost = o.alive
	for c := range n.consumers {
		n.consumers[c].pulls = slices.DeleteFunc(slices.Clone(n.consumers[c].pulls), func(p exPull) bool { return p.owner == i })
	}
}

// loseTail has the server come back without its last messages.
func (x *explorer) loseTail(n *exState, keep uint64) {
	x.note("the server loses everything after message %d", keep)
	n.stream = slices.Clip(n.stream[:keep])
	for c := range n.consumers {
		con := &n.consumers[c]
		con.next = min(con.next, keep+1)
		con.again = nil
	}
	for i := range n.owners {
		x.disconnect(n, i)
	}
	x.checkStored(n)
}

// publish adds a message that is like no other.
func (x *explorer) publish(n *exState) {
	seq := n.last() + 1
	id := int64(seq) + 10*int64(x.cfg.faults[faultTail]-n.left[faultTail])
	f := batcher.Fragment{Seq: seq, Time: id, Data: []byte{byte('a' + id)}}
	if key := x.cfg.documents[seq-1 : seq]; key != "-" {
		f.Key = key
	}
	n.stream = append(slices.Clip(n.stream), f)
	x.checkStored(n)
}
