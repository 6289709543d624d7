package consumer

import (
	"slices"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// profile is what a seed draws before its run begins.
type profile struct {
	members int
	batch   batcher.Limits
	flush   lobwriter.Limits
	rows    int64
	// allowance is the memory of each partition; tight: it changes.
	allowance int64
	tight     bool
	// trouble is the chance that a request or a reply is lost or late.
	trouble float64
	backups bool
	// replicated: the stream has leaders, which change.
	replicated bool
	messages   int
	keys       []string
	// What of 100 messages is something else than an ordinary fragment.
	foreign, holes, orphans, poison, finals, empty int
	faults                                         []fault
	until                                          time.Duration
}

// fault is one thing that goes wrong at some moment.
type fault struct {
	name   string
	weight int
	happen func(w *world)
}

func (w *world) drawProfile() profile {
	p := profile{
		members:    pick(w, 1, 2, 2, 2, 3),
		batch:      batcher.Limits{MaxAge: pick(w, 0, 50*time.Millisecond, time.Second, 3*time.Second), ChunkBytes: w.between(16, 64), MaxDistance: uint64(pick(w, 0, 0, 0, 5))},
		rows:       pick[int64](w, 1000, 3000, 1<<20),
		allowance:  1 << 20,
		tight:      w.chance(0.2),
		trouble:    pick(w, 0, 0, 0.01, 0.05, 0.15),
		backups:    w.chance(0.3),
		replicated: w.chance(0.25),
		messages:   w.between(20, 60),
		keys:       []string{"a", "b", "c", "d", "e", "f"}[:w.between(1, 6)],
		foreign:    pick(w, 0, 20, 60),
		holes:      pick(w, 0, 0, 5),
		orphans:    pick(w, 0, 0, 5),
		poison:     pick(w, 0, 0, 3),
		finals:     pick(w, 0, 5, 15),
		empty:      pick(w, 0, 0, 10),
		until:      w.span(20*time.Second, 70*time.Second),
	}
	p.flush = lobwriter.Limits{Documents: w.between(1, 6), Bytes: pick(w, 40, 100, 1000), ChunkBytes: p.batch.ChunkBytes}
	all := faults()
	// Few kinds at a time, so that they meet each other often.
	for range w.between(0, 4) {
		p.faults = append(p.faults, draw(w, all))
	}
	return p
}

func draw(w *world, from []fault) fault {
	sum := 0
	for _, f := range from {
		sum += f.weight
	}
	n := w.rng.IntN(sum)
	for _, f := range from {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	return from[0]
}

// scheduleFaults lets some of the seed's faults happen, anywhere before the end.
func (w *world) scheduleFaults() {
	if len(w.profile.faults) == 0 {
		return
	}
	for range w.between(1, 7) {
		f := w.profile.faults[w.rng.IntN(len(w.profile.faults))]
		strike := func() {
			if !w.healed {
				w.seen.count("fault: " + f.name)
				f.happen(w)
			}
		}
		// Some lie in wait for a request, to happen while it is under way.
		at := pick(w, "", "", "", "claim", "inspect", "open", "inspect", "open", "confirm", "fetch", "look", "renew", "read", "letters", "flush", "ack")
		w.after(w.upTo(w.profile.until*9/10), func() {
			if at == "" {
				strike()
			} else if w.ambush[at] == nil {
				w.ambush[at] = strike
			}
		})
	}
}

// begins lets happen what lies in wait for such a request.
func (w *world) begins(op string) {
	if strike := w.ambush[op]; strike != nil {
		delete(w.ambush, op)
		w.after(w.upTo(4*time.Millisecond), strike)
	}
}

func faults() []fault {
	return []fault{
		{"crash", 6, func(w *world) {
			m := w.member()
			m.crash()
			w.after(w.span(0, 15*time.Second), m.begin)
		}},
		{"freeze", 5, func(w *world) { w.member().freeze(w.span(0, 25*time.Second)) }},
		{"stop", 3, func(w *world) {
			w.member().stop() // and begins again some time after it has ended
		}},
		{"given up", 3, func(w *world) {
			// For a member that has less; and again its own some time later.
			m := w.member()
			m.assign(false)
			w.after(w.span(0, 15*time.Second), func() { m.assign(true) })
		}},
		{"disconnect", 4, func(w *world) { w.member().disconnect(w.span(0, 12*time.Second)) }},
		{"database away", 3, func(w *world) {
			w.note("FAULT database is away")
			w.db.away = true
			w.after(w.span(0, 15*time.Second), func() {
				w.db.away = false
				w.note("database is back")
			})
		}},
		{"lease expires under a living owner", 3, func(w *world) {
			d := w.span(simLease/2, 2*simLease)
			w.db.clock += d
			w.note("FAULT database clock jumps %s ahead", d)
		}},
		{"database goes back", 5, func(w *world) { w.db.goBack() }},
		{"consumer deleted", 2, func(w *world) {
			if c := w.someConsumer(); c != nil {
				w.note("FAULT consumer %s is deleted by hand", c.name)
				w.stream.delete(c.name)
			}
		}},
		{"consumer edited", 3, func(w *world) {
			if c := w.someConsumer(); c != nil {
				w.note("FAULT consumer %s gets a short AckWait", c.name)
				c.edited = "ack_wait"
				w.after(w.span(0, 2*time.Second), c.redeliver)
			}
		}},
		{"message lost", 3, func(w *world) { w.member().dropNext = true }},
		{"foreign pull", 3, func(w *world) {
			// Another client's pull on the owner's consumer takes a message.
			if c := w.someConsumer(); c != nil {
				w.note("FAULT a foreign pull on consumer %s", c.name)
				nobody := &simMember{world: w, name: "nobody"}
				c.pulls = append(c.pulls, &simPull{fetch: &simFetch{member: nobody, ended: true}, count: w.between(1, 3), bytes: 1 << 20, expires: w.now + 5*time.Second})
				c.pump()
			}
		}},
		{"tail lost", 3, func(w *world) { w.loseTail() }},
		{"stream created again", 2, func(w *world) { w.createAgain() }},
		{"retention", 4, func(w *world) { w.discard() }},
		{"leaders change", 3, func(w *world) { w.changeLeaders() }},
		{"consumers told late", 4, func(w *world) {
			d := w.span(0, 4*time.Second)
			w.note("FAULT for %s the stream does not tell its consumers of new messages", d)
			w.stream.silent = w.now + d
		}},
		{"dead letters full", 3, func(w *world) {
			w.note("FAULT the dead-letter stream is full")
			w.letters.full = true
			w.after(w.span(0, 20*time.Second), func() {
				w.letters.full = false
				w.note("the dead-letter stream has room")
			})
		}},
	}
}

func (w *world) member() *simMember { return w.members[w.rng.IntN(len(w.members))] }

func (w *world) someConsumer() *simConsumer {
	if len(w.stream.consumers) == 0 {
		return nil
	}
	return w.stream.consumers[w.rng.IntN(len(w.stream.consumers))]
}

// loseTail: the server comes back without its last messages, and gives their
// sequences to others. Every connection breaks.
func (w *world) loseTail() {
	s := w.stream
	n := uint64(w.between(1, 4))
	if w.chance(0.7) {
		// Mostly what nobody has stored, which nobody may notice.
		f := w.db.fence()
		n = min(n, s.last()-min(s.last(), f.Highest.Seq))
	}
	if n == 0 || s.last() < n || s.last()-n < s.discarded {
		return
	}
	s.past = append(s.past, slices.Clone(s.msgs))
	s.msgs = slices.Clone(s.msgs[:s.last()-n])
	w.note("FAULT the server loses its tail and ends at %d", s.last())
	w.restartServer()
	for _, c := range s.consumers {
		// What a consumer has delivered is on disk as a sequence of the stream;
		// it goes on behind the last message that still exists.
		c.next = min(c.next, s.last()+1)
		c.pending = slices.DeleteFunc(c.pending, func(d simDelivery) bool { return d.stream > s.last() })
	}
}

func (w *world) restartServer() {
	for _, m := range w.members {
		m.disconnect(w.span(100*time.Millisecond, 6*time.Second))
	}
	for _, c := range w.stream.consumers {
		c.pulls = nil
	}
}

func (w *world) createAgain() {
	s := w.stream
	s.past = append(s.past, slices.Clone(s.msgs))
	s.msgs, s.discarded = nil, 0
	s.created = start.Add(w.now).UnixNano()
	w.note("FAULT the stream is deleted and created again")
	for _, c := range slices.Clone(s.consumers) {
		s.delete(c.name)
	}
	// It soon has as many messages as the old one had.
	for range w.between(0, len(s.past[len(s.past)-1])+5) {
		w.after(w.upTo(time.Second), func() { s.publish(w.compose()) })
	}
}

// discard is retention: mostly up to the checkpoint, sometimes what an owner
// has in memory, and what nobody has read only while nobody reads: a reader that
// retention overtakes between two looks at the stream cannot tell.
//
// Without a checkpoint a claim begins at the first message there is, and that
// is no gap; so nothing is discarded before there is one, in no backup either.
// After a lost tail nothing is discarded: the witnesses would go with it.
func (w *world) discard() {
	s := w.stream
	f := w.db.fence()
	if f.Checkpoint.Seq == 0 || len(s.past) > 0 {
		return
	}
	w.db.backups = slices.DeleteFunc(w.db.backups, func(b backup) bool { return b.checkpoint == 0 })
	to := f.Checkpoint.Seq
	switch reader, claimed := w.reader(); {
	case reader != nil && w.chance(0.3):
		to = max(to, reader.part.last.Seq)
	case !claimed && w.chance(0.15):
		to = s.last()
	}
	if to = min(to, s.last()); to > s.discarded {
		s.discarded = to
		w.note("FAULT retention discards everything up to %d", to)
	}
}

// reader returns the member that owns the partition under the current claim;
// claimed: somebody at least believes to hold a claim.
func (w *world) reader() (reader *simMember, claimed bool) {
	for _, m := range w.members {
		if !m.alive || !m.part.claimed() {
			continue
		}
		claimed = true
		if m.part.Owning() && m.claimID == w.db.owner {
			reader = m
		}
	}
	return reader, claimed
}

// changeLeaders gives a replicated stream and its consumers other leaders, which
// may be behind for a while: they do not know the last messages, or what was
// delivered last.
func (w *world) changeLeaders() {
	s := w.stream
	if s.leader == "" {
		return
	}
	if w.chance(0.6) {
		s.leader = w.server()
		w.note("FAULT the stream's leader is now %s", s.leader)
	}
	for _, c := range s.consumers {
		if w.chance(0.4) {
			continue
		}
		c.leader = w.server()
		w.note("FAULT the leader of %s is now %s", c.name, c.leader)
		c.pulls = nil
		if n := len(c.pending); n > 0 && w.chance(0.5) {
			// It was told of all deliveries but the last one.
			c.next = min(c.next, c.pending[n-1].stream)
			c.delivered--
			delete(c.deliveries, c.pending[n-1].stream)
			c.pending = c.pending[:n-1]
		}
	}
	server := w.server()
	if c := w.someConsumer(); c != nil && w.chance(0.5) {
		server = c.leader
	}
	s.behind[server] = uint64(w.between(0, 5))
	w.note("FAULT server %s is %d messages behind", server, s.behind[server])
	if w.chance(0.3) && w.ambush["look"] == nil {
		w.ambush["look"] = func() {
			if s.behind[server] > 0 {
				s.leader = server
				w.note("FAULT the stream's leader is now %s, which is behind", server)
			}
		}
	}
	w.after(w.upTo(10*time.Second), func() { w.caughtUp(server) })
}

// caughtUp: a server has everything, and delivers it.
func (w *world) caughtUp(server string) {
	w.stream.behind[server] = 0
	for _, c := range w.stream.consumers {
		c.pump()
	}
}

// heal ends all faults.
func (w *world) heal() {
	w.note("faults stop")
	w.healed, w.healedAt = true, w.now
	w.db.away, w.letters.full = false, false
	for _, server := range []string{"n1", "n2", "n3"} {
		w.caughtUp(server)
	}
	for _, m := range w.members {
		m.dropNext = false
		if m.frozen {
			m.thaw()
		}
		m.assign(true)
		if !m.alive && (m == w.members[0] || w.chance(0.7)) {
			m.begin()
		}
	}
}

// schedulePublishing lets the producers publish, in bursts and with pauses.
func (w *world) schedulePublishing() {
	at := w.upTo(2 * time.Second)
	for range w.profile.messages {
		switch {
		case w.chance(0.1):
			at += w.upTo(12 * time.Second)
		case w.chance(0.3):
			at += w.upTo(700 * time.Millisecond)
		default:
			at += w.upTo(5 * time.Millisecond)
		}
		w.after(min(at, w.profile.until+time.Second), func() { w.stream.publish(w.compose()) })
	}
}

// compose draws a message.
func (w *world) compose() message {
	p := &w.profile
	m := message{own: true}
	f := &m.fragment
	f.Key = p.keys[w.rng.IntN(len(p.keys))]
	f.Data = []byte([]string{"", "é", "<p>", "\U0001F600x", "0123456789", "abcdefghijklmnopqrstuvwxyz"}[w.rng.IntN(6)])
	hit := func(percent int) bool { return w.rng.IntN(100) < percent }
	switch {
	case hit(p.foreign):
		m.own = false
		f.Key = "another"
	case hit(p.orphans):
		m.orphan = true
		f.Key = ""
		f.Hole = &batcher.Reason{Code: "bad-key", Text: "not canonical"}
	case hit(p.holes):
		f.Hole = &batcher.Reason{Code: "invalid-utf8", Text: "byte 0"}
	case hit(p.poison):
		m.poison = true
		f.Data = append(f.Data, 0)
	case hit(p.empty):
		f.Data = nil
	}
	if hit(p.finals) {
		f.Final = true
		if hit(30) && f.Hole == nil {
			f.Data = nil
			m.poison = false
		}
	}
	return m
}
