package consumer

import (
	"fmt"
	"slices"
	"time"
)

// What happens to an owner's process, its turn and its connection.

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
