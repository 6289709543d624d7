package consumer

import (
	"slices"
	"time"
)

// What can happen in a state of the small case, faults among it.

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
	case o.part.halted || x.cfg.toldLate || !x.deliverable(s, i):
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
