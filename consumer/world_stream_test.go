package consumer

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// message is one message of the simulated stream.
type message struct {
	id       int // never used twice, unlike its sequence
	fragment batcher.Fragment
	own      bool // of the partition under test
	orphan   bool
	poison   bool // the database refuses its text
}

func (m *message) seq() uint64 { return m.fragment.Seq }

// overhead is what a message takes beside its payload.
const overhead = 16

func (m *message) size() int64 { return int64(len(m.fragment.Data) + overhead) }

// simStream has the rules of a JetStream stream that matter here: sequences
// that go on after a purge but not after a lost tail, times that rise, a
// beginning that retention removes.
type simStream struct {
	world     *world
	created   int64
	msgs      []message // sequence - 1 is the index; what retention removed stays as truth
	discarded uint64    // all messages up to it were removed by retention
	consumers []*simConsumer
	lastID    int
	lastTime  int64
	// A replicated stream has a leader, and so has each of its consumers. A
	// server that has just become one may be behind by so many messages, for a
	// while.
	leader string
	behind map[string]uint64
	// silent is until when consumers are not told of new messages: the server
	// does that in a goroutine of its own, at any time after the publisher has
	// its acknowledgement.
	silent time.Duration
	// past are the streams as they were before a tail was lost or the stream
	// was created again.
	past [][]message
}

func newSimStream(w *world) *simStream {
	s := &simStream{world: w, created: start.Add(-time.Hour).UnixNano(), behind: map[string]uint64{}}
	if w.profile.replicated {
		s.leader = w.server()
	}
	return s
}

// server draws one of the cluster's servers.
func (w *world) server() string { return pick(w, "n1", "n2", "n3") }

// seenBy is the last sequence that a server knows.
func (s *simStream) seenBy(server string) uint64 {
	return s.last() - min(s.last(), s.behind[server])
}

func (s *simStream) last() uint64  { return uint64(len(s.msgs)) }
func (s *simStream) first() uint64 { return s.discarded + 1 }

func (s *simStream) publish(m message) {
	s.lastID++
	m.id = s.lastID
	s.lastTime = max(s.lastTime+1, start.Add(s.world.now).UnixNano())
	m.fragment.Seq, m.fragment.Time = s.last()+1, s.lastTime
	if m.fragment.Data != nil {
		m.fragment.Data = []byte("«" + strconv.Itoa(m.id) + string(m.fragment.Data) + "»")
	}
	s.msgs = append(s.msgs, m)
	s.world.note("stream: message %d (id %d) of %q%s", m.seq(), m.id, m.fragment.Key, describe(&m))
	for _, c := range s.consumers {
		if s.world.now >= s.silent {
			c.pump()
		} else {
			s.world.after(s.silent-s.world.now, c.pump)
		}
	}
}

func describe(m *message) string {
	out := ""
	for _, d := range []struct {
		is   bool
		word string
	}{
		{!m.own, " of another partition"}, {m.orphan, " without a key"}, {m.poison, " poisoned"},
		{m.fragment.Hole != nil && !m.orphan, " breaking a rule"}, {m.fragment.Final, " final"},
		{len(m.fragment.Data) == 0, " empty"},
	} {
		if d.is {
			out += d.word
		}
	}
	return out
}

// position of a message that is still stored; its time is 0 otherwise.
func (s *simStream) time(seq uint64) int64 {
	if seq == 0 || seq > s.last() || seq <= s.discarded {
		return 0
	}
	return s.msgs[seq-1].fragment.Time
}

func (s *simStream) facts() StreamFacts {
	last := s.seenBy(s.leader)
	f := StreamFacts{Created: s.created, First: min(s.first(), last+1), Last: lobwriter.Position{Seq: last}, Leader: s.leader}
	if last > 0 {
		f.Last.Time = s.msgs[last-1].fragment.Time
	}
	return f
}

// more reports whether the stream's leader knows messages of the partition above
// a sequence.
func (s *simStream) more(above uint64) bool {
	for seq := max(above+1, s.first()); seq <= s.seenBy(s.leader); seq++ {
		if s.msgs[seq-1].own {
			return true
		}
	}
	return false
}

func (s *simStream) consumer(name string) *simConsumer {
	for _, c := range s.consumers {
		if c.name == name {
			return c
		}
	}
	return nil
}

// create makes the consumer of a claim. Another claim's has another name; where it
// has not, the one there is begins anew, and the pulls that wait on it still do.
func (s *simStream) create(name string, from uint64, claimID string) {
	w := s.world
	if w.opened[claimID] {
		w.fail("the consumer of claim %s is created twice", claimID)
	}
	w.opened[claimID] = true
	if from > s.last()+1 {
		w.note("server: consumer %s begins at %d, above %d: what is published between is never delivered", name, from, s.last()+1)
	}
	c := &simConsumer{stream: s, name: name, next: from, floor: simDelivery{stream: from - 1}, deliveries: map[uint64]uint64{}}
	if s.leader != "" {
		c.leader = pick(w, s.leader, w.server())
	}
	if old := s.consumer(name); old != nil {
		c.pulls, old.pulls = old.pulls, nil
		s.delete(name)
		defer c.pump()
	}
	s.consumers = append(s.consumers, c)
}

func (s *simStream) delete(name string) {
	c := s.consumer(name)
	if c == nil {
		return
	}
	c.gone = true
	s.consumers = slices.DeleteFunc(s.consumers, func(o *simConsumer) bool { return o == c })
	for _, p := range c.pulls {
		p.fetch.end(errConsumerDeleted)
	}
	c.pulls = nil
}

// sweep deletes all consumers but one.
func (s *simStream) sweep(keep string) {
	for _, c := range append([]*simConsumer{}, s.consumers...) {
		if c.name != keep {
			s.world.note("server: consumer %s is deleted", c.name)
			s.delete(c.name)
		}
	}
}

var errConsumerDeleted = errors.New("nats: consumer deleted")

// simDelivery is what the server knows of one delivered message.
type simDelivery struct{ stream, consumer uint64 }

// simConsumer is a durable pull consumer: start sequence, AckAll, one queue of
// pulls whoever sent them.
type simConsumer struct {
	stream     *simStream
	name       string
	next       uint64 // the stream sequence to look at next
	delivered  uint64 // consumer sequence of the last message delivered
	floor      simDelivery
	pending    []simDelivery // delivered, not acknowledged, by consumer sequence
	again      []uint64      // stream sequences to deliver again
	deliveries map[uint64]uint64
	pulls      []*simPull
	edited     string
	leader     string
	gone       bool
}

// simPull is an outstanding pull request. The server cannot see whether anybody
// still waits for what it brings.
type simPull struct {
	fetch   *simFetch
	count   int
	bytes   int64
	expires time.Duration
}

// pump delivers as long as there is a pull and a message for it.
func (c *simConsumer) pump() {
	w := c.stream.world
	for !c.gone {
		c.pulls = slices.DeleteFunc(c.pulls, func(p *simPull) bool { return p.expires <= w.now })
		if len(c.pulls) == 0 {
			return
		}
		m := c.head()
		if m == nil {
			return
		}
		p := c.pulls[w.rng.IntN(len(c.pulls))]
		if m.size() > p.bytes {
			// The server ends a pull whose byte limit the next message exceeds.
			c.drop(p)
			p.fetch.end(nil)
			continue
		}
		if len(c.again) > 0 {
			c.again = c.again[1:]
		} else {
			c.next = m.seq() + 1
		}
		c.delivered++
		c.deliveries[m.seq()]++
		c.pending = slices.DeleteFunc(c.pending, func(d simDelivery) bool { return d.stream == m.seq() })
		c.pending = append(c.pending, simDelivery{stream: m.seq(), consumer: c.delivered})
		p.count--
		p.bytes -= m.size()
		p.fetch.deliver(m, c.delivered, c.deliveries[m.seq()])
		if p.count == 0 {
			c.drop(p)
			p.fetch.end(nil)
		}
	}
}

func (c *simConsumer) drop(p *simPull) {
	c.pulls = slices.DeleteFunc(c.pulls, func(o *simPull) bool { return o == p })
}

// head returns the message to deliver next; nil: there is none.
func (c *simConsumer) head() *message {
	s := c.stream
	for len(c.again) > 0 {
		if seq := c.again[0]; seq > s.discarded && seq <= s.last() {
			return &s.msgs[seq-1]
		}
		c.again = c.again[1:]
	}
	if seq := c.pendingFrom(); seq != 0 {
		return &s.msgs[seq-1]
	}
	// A filtered consumer skips what is not its own.
	c.next = max(c.next, s.seenBy(c.leader)+1)
	return nil
}

func (c *simConsumer) pendingFrom() uint64 {
	s := c.stream
	for seq := max(c.next, s.first()); seq <= s.seenBy(c.leader); seq++ {
		if s.msgs[seq-1].own {
			return seq
		}
	}
	return 0
}

// ack is AckAll, compared by consumer sequence as the server does: an
// acknowledgement at or below the floor does nothing.
func (c *simConsumer) ack(d simDelivery) {
	if d.consumer <= c.floor.consumer {
		return
	}
	c.floor = d
	c.pending = slices.DeleteFunc(c.pending, func(p simDelivery) bool { return p.consumer <= d.consumer })
}

// redeliver is what a short AckWait does to everything that is not acknowledged.
func (c *simConsumer) redeliver() {
	c.again = nil
	for _, d := range c.pending {
		c.again = append(c.again, d.stream)
	}
	slices.Sort(c.again)
	c.pump()
}

// simFetch is one fetch of a member: the client's half of a pull.
type simFetch struct {
	member  *simMember
	turn    Turn
	conn    int // the connection that its subscription lives on
	arrives time.Duration
	buffer  []Received
	wakes   bool
	count   int
	halted  bool
	ended   bool
}

// deliver sends a message to the client, in order behind what was sent before.
func (f *simFetch) deliver(m *message, consumer, deliveries uint64) {
	w := f.member.world
	r := Received{Fragment: m.fragment, Consumer: consumer, Deliveries: deliveries, Orphan: m.orphan, Connection: uint64(f.conn)}
	f.arrives = max(f.arrives, w.now+w.hop())
	w.after(f.arrives-w.now, func() {
		switch {
		case f.lost():
			w.seen.count("messages swallowed by a dead inbox")
			w.note("%s: message %d goes into a dead inbox", f.member.name, r.Fragment.Seq)
		case f.member.dropNext:
			f.member.dropNext = false
			w.note("FAULT %s: message %d is lost on its way", f.member.name, r.Fragment.Seq)
		default:
			f.count++
			f.buffer = append(f.buffer, r)
			if !f.wakes {
				f.wakes = true
				w.after(w.upTo(time.Millisecond), f.hand)
			}
		}
	})
}

// lost: nobody listens to the inbox any more.
func (f *simFetch) lost() bool {
	return f.ended || f.member.fetch != f || f.conn != f.member.conn || !f.member.alive
}

// hand hands over what has arrived.
func (f *simFetch) hand() {
	f.wakes = false
	if len(f.buffer) == 0 || f.ended {
		return
	}
	batch := f.buffer
	f.buffer = nil
	m := f.member
	m.answer(f.turn, func(now time.Time) {
		m.world.note("%s: receives %s", m.name, sequences(batch))
		m.keep(f.turn, batch)
		m.part.Received(now, f.turn, batch)
	})
}

// end is the server's status, or the client's own timer: the fetch is over.
func (f *simFetch) end(err error) {
	w := f.member.world
	f.arrives = max(f.arrives, w.now+w.hop())
	w.after(f.arrives-w.now+time.Millisecond, func() { f.finish(err) })
}

func (f *simFetch) finish(err error) {
	if f.lost() && !(f.member.alive && f.conn != f.member.conn && !f.ended && f.member.fetch == f) {
		return
	}
	m := f.member
	if f.conn != m.conn {
		err = nil
	}
	f.hand()
	f.ended = true
	m.fetch = nil
	quiet := f.count == 0 && !f.halted && m.connected && f.conn == m.conn && err == nil
	m.answered(f.turn, "fetch")
	m.answer(f.turn, func(now time.Time) { m.part.Fetched(now, f.turn, quiet, err) })
}

func sequences(batch []Received) string {
	out := ""
	for i := range batch {
		if i > 0 {
			out += " "
		}
		out += strconv.FormatUint(batch[i].Fragment.Seq, 10)
		if batch[i].Deliveries > 1 {
			out += "(again)"
		}
	}
	return out
}
