package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// simMember is a member with one owner. It has no logic of its own: it carries
// out the actions of its Partition, with delays and failures that the world
// chooses, and hands the answers back.
type simMember struct {
	world *world
	name  string
	// life counts its processes: answers to a process that crashed are lost.
	life     int
	alive    bool
	frozen   bool
	backlog  []func(now time.Time) // what waits for a frozen process
	memberID string
	part     *Partition

	connected bool
	conn      int  // counts connections: what was on its way to an older one is lost
	lost      bool // it noticed that the connection was lost
	dropNext  bool // the next message to it is lost

	timer     int // the timer that counts; older ones are dead
	spins     int // timers without any progress of time
	spunAt    time.Duration
	allowance int64

	// What belongs to the turn.
	turn        Turn
	consumer    string
	claimID     string
	kept        map[uint64]simDelivery
	fetch       *simFetch
	leaseEnd    time.Time
	outstanding map[string]Turn
	unknown     *lobwriter.Flush // the flush whose outcome is unknown
	sent        *lobwriter.Flush // the flush last sent
	report      error            // the last word to the operator in this process
}

// Deadlines of requests, as in the shell.
const (
	flushDeadline  = 8 * time.Second
	natsDeadline   = 2 * time.Second
	simLease       = 10 * time.Second
	simRenew       = 3 * time.Second
	simQuiet       = 5 * time.Second
	simFetchWait   = 2 * time.Second
	simMaxMessage  = 160
	simMinimumRoom = 2 * simMaxMessage
)

// begin starts the process.
func (m *simMember) begin() {
	w := m.world
	if m.alive {
		return
	}
	m.life++
	*m = simMember{world: w, name: m.name, life: m.life, alive: true, connected: m.connected || m.life == 1, conn: m.conn + 1}
	m.memberID = w.id()
	m.outstanding = map[string]Turn{}
	m.turn = -1
	m.allowance = w.profile.allowance
	m.part = New(Options{
		Partition: 0, Binding: w.db.binding, Batch: w.profile.batch, Flush: w.profile.flush,
		MaxMessage: simMaxMessage, Rows: w.profile.rows, Lease: simLease, Renew: simRenew, Quiet: simQuiet,
	})
	w.note("%s: starts", m.name)
	m.process(func(now time.Time) { m.part.Connected(now, true) })
	m.watch()
}

func (w *world) id() string { return fmt.Sprintf("%016x", w.rng.Uint64()) }

// clock is the process's own.
func (m *simMember) clock() time.Time { return start.Add(m.world.now + 17*time.Minute) }

// process applies an event when the process is scheduled.
func (m *simMember) process(event func(now time.Time)) {
	switch {
	case !m.alive:
	case m.frozen:
		m.backlog = append(m.backlog, event)
	default:
		event(m.clock())
		m.loop()
	}
}

// answer brings an answer to the process that asked. An answer to a turn that
// was dropped may still come.
func (m *simMember) answer(turn Turn, event func(now time.Time)) {
	if turn != m.part.Turn() && m.world.chance(0.5) {
		return
	}
	life := m.life
	m.process(func(now time.Time) {
		if life == m.life {
			event(now)
		}
	})
}

func (m *simMember) answered(turn Turn, op string) {
	if t, ok := m.outstanding[op]; ok && t == turn {
		delete(m.outstanding, op)
	}
}

// loop does what the shell's loop does after every event.
func (m *simMember) loop() {
	w := m.world
	if w.profile.tight && w.chance(0.1) {
		m.allowance = int64(w.between(simMinimumRoom, 6*simMinimumRoom))
	}
	m.part.Allow(m.allowance)
	for _, a := range m.part.Actions() {
		m.perform(a)
	}
	if m.part.Ended() {
		w.note("%s: has stopped", m.name)
		m.alive = false
		w.seen.count("clean stops")
		w.after(w.span(time.Second, 20*time.Second), m.begin)
		return
	}
	m.timer++
	d := m.part.Deadline()
	if d.IsZero() {
		return
	}
	timer, life, wait := m.timer, m.life, d.Sub(m.clock())
	if wait <= 0 {
		if m.spunAt != w.now {
			m.spunAt, m.spins = w.now, 0
		}
		if m.spins++; m.spins > 50 {
			w.fail("%s spins: its deadline has passed and a tick does nothing about it", m.name)
		}
	}
	w.after(max(wait, 0), func() {
		if timer == m.timer && life == m.life {
			m.process(m.part.Tick)
		}
	})
}

// perform carries out one action.
func (m *simMember) perform(a Action) {
	w := m.world
	switch a := a.(type) {
	case DoClaim:
		m.begins(a.Turn, "claim", false)
		sent := m.clock()
		r := lobwriter.ClaimRequest{Partition: 0, MemberID: m.memberID, ClaimID: w.id(), Lease: simLease}
		ask(m, a.Turn, "claim", flushDeadline, func() (lobwriter.Claim, error) { return w.db.claim(m, r) },
			func(now time.Time, c lobwriter.Claim, err error) {
				m.note("claim answered", err)
				if err == nil && a.Turn == m.part.Turn() {
					m.leaseEnd, m.claimID = sent.Add(simLease), r.ClaimID
				}
				m.part.Claimed(now, a.Turn, sent, c, err)
			})
	case DoInspect:
		m.begins(a.Turn, "inspect", false)
		var in Inspection
		m.request(a.Turn, []func(){
			func() { in.StreamFacts = m.facts() },
			func() { in.CheckpointTime = w.stream.time(a.Checkpoint.Seq) },
			func() { in.HighestTime = w.stream.time(a.Highest.Seq) },
		}, "inspect", func(now time.Time, err error) { m.part.Inspected(now, a.Turn, in, err) })
	case DoOpen:
		m.begins(a.Turn, "open", false)
		name := w.namer.consumerName(a.Claim)
		m.request(a.Turn, []func(){func() {
			w.note("server: consumer %s of %s begins at %d", name, m.name, a.Start)
			w.stream.create(name, a.Start, a.Claim.Fence.ClaimID)
		}}, "open", func(now time.Time, err error) {
			if a.Turn == m.part.Turn() {
				m.consumer, m.kept = name, map[uint64]simDelivery{}
			}
			m.part.Opened(now, a.Turn, err)
		})
	case DoConfirm:
		m.begins(a.Turn, "confirm", false)
		ask(m, a.Turn, "confirm", flushDeadline, func() (lobwriter.Fence, error) { return w.db.fence(), nil },
			func(now time.Time, f lobwriter.Fence, err error) { m.part.Confirmed(now, a.Turn, f, err) })
	case DoSweep:
		own := m.consumer
		m.request(a.Turn, []func(){func() { w.stream.sweep(own) }}, "sweep", func(time.Time, error) {})
	case DoFetch:
		m.begins(a.Turn, "fetch", true)
		m.pull(a)
	case DoHalt:
		if f := m.fetch; f != nil {
			f.halted = true
			w.after(0, func() { f.finish(nil) })
		}
	case DoLook:
		m.begins(a.Turn, "look", true)
		m.look(a)
	case DoRenew:
		m.begins(a.Turn, "renew", false)
		sent := m.clock()
		ask(m, a.Turn, "renew", simRenew, func() (lobwriter.Fence, error) {
			return w.db.store.Renew(context.Background(), a.Claim, simLease)
		}, func(now time.Time, f lobwriter.Fence, err error) {
			m.note("renewal answered", err)
			if err == nil && a.Turn == m.part.Turn() {
				m.leaseEnd = sent.Add(simLease)
			}
			m.part.Renewed(now, a.Turn, sent, f, err)
		})
	case DoRead:
		m.begins(a.Turn, "read", true)
		ask(m, a.Turn, "read", flushDeadline, func() ([]lobwriter.Row, error) {
			return w.db.store.Rows(context.Background(), 0, a.Keys)
		}, func(now time.Time, rows []lobwriter.Row, err error) { m.part.RowsRead(now, a.Turn, rows, err) })
	case DoLetters:
		m.begins(a.Turn, "letters", true)
		w.letters.publish(m, a, 0)
	case DoFlush:
		m.begins(a.Turn, "flush", true)
		m.flush(a)
	case DoAck:
		m.begins(a.Turn, "ack", true)
		m.ack(a)
	case DoRelease:
		ask(m, a.Turn, "release", flushDeadline, func() (struct{}, error) {
			w.note("database: %s gives its lease back", m.name)
			return struct{}{}, w.db.store.Release(context.Background(), a.Claim)
		}, func(now time.Time, _ struct{}, _ error) { m.part.Released(now, a.Turn) })
	case DoDrop:
		m.drop(a)
	case DoReport:
		m.report = a.Err
		w.note("%s: reports: %v", m.name, a.Err)
	default:
		w.fail("%s: unknown action %T", m.name, a)
	}
}

func (m *simMember) note(what string, err error) {
	if err != nil && lobwriter.KindOf(err) != lobwriter.Held {
		m.world.note("%s: %s: %v", m.name, what, err)
	}
}

// begins checks what must hold of every action: never two of a kind at once in
// a turn, and nothing of an owner's once its lease may have run out.
func (m *simMember) begins(turn Turn, op string, owner bool) {
	w := m.world
	if m.turn != turn {
		m.turn, m.outstanding, m.unknown, m.sent = turn, map[string]Turn{}, nil, nil
	}
	if _, ok := m.outstanding[op]; ok {
		w.fail("%s: a second %s in one turn", m.name, op)
	}
	m.outstanding[op] = turn
	w.begins(op)
	if owner && !m.clock().Before(m.leaseEnd) {
		w.fail("%s: %s after its lease may have run out", m.name, op)
	}
}

func (m *simMember) drop(a DoDrop) {
	w := m.world
	w.note("%s: drops turn %d: %s: %s", m.name, a.Turn, a.Reason, a.Detail)
	w.seen.count("doubts: " + string(a.Reason))
	if f := m.fetch; f != nil {
		f.ended = true // its pull stays where it is
	}
	m.fetch, m.consumer, m.claimID, m.kept, m.unknown, m.sent = nil, "", "", nil, nil, nil
	m.leaseEnd = time.Time{}
}

// flush sends a flush and checks that after an unknown outcome it is the
// identical one.
func (m *simMember) flush(a DoFlush) {
	w, f := m.world, a.Flush
	if m.unknown != nil && f != m.unknown {
		w.fail("%s: another flush was sent while the outcome of one is unknown", m.name)
	}
	w.note("%s: flush %d, checkpoint %d%s", m.name, f.Number, f.Checkpoint.Seq, groups(f))
	m.sent = f
	print := fingerprint(f)
	ask(m, a.Turn, "flush", flushDeadline, func() (lobwriter.Receipt, error) { return w.db.flush(m, f, print) },
		func(now time.Time, r lobwriter.Receipt, err error) {
			if a.Turn == m.part.Turn() {
				m.unknown = nil
				if err != nil && lobwriter.KindOf(err) == lobwriter.Transient {
					m.unknown = f
					w.seen.count("outcomes unknown")
				}
			}
			m.note("flush answered", err)
			m.part.Flushed(now, a.Turn, r, err)
		})
}

func groups(f *lobwriter.Flush) string {
	out := ""
	for i := range f.Groups {
		out += fmt.Sprintf("; %q %d..%d", f.Groups[i].Key, f.Groups[i].First, f.Groups[i].Last)
	}
	return out
}

// keep keeps the handle of the last message of each delivery.
func (m *simMember) keep(turn Turn, batch []Received) {
	if turn == m.part.Turn() && m.kept != nil {
		last := &batch[len(batch)-1]
		m.kept[last.Fragment.Seq] = simDelivery{stream: last.Fragment.Seq, consumer: last.Consumer}
	}
}

func (m *simMember) ack(a DoAck) {
	w := m.world
	d, ok := m.kept[a.Seq]
	if !ok {
		w.fail("%s: acknowledges message %d, which was not kept", m.name, a.Seq)
	}
	if ck := w.db.committed[m.claimID]; a.Seq > ck {
		w.fail("%s: acknowledges message %d, but under its claim the checkpoint is %d", m.name, a.Seq, ck)
	}
	name := m.consumer
	m.request(a.Turn, []func(){func() {
		if c := w.stream.consumer(name); c != nil {
			w.note("server: %s acknowledged up to %d", name, a.Seq)
			c.ack(d)
		}
	}}, "ack", func(now time.Time, err error) { m.part.Acked(now, a.Turn, a.Seq, err) })
}

// pull sends a pull request and waits for what it brings.
func (m *simMember) pull(a DoFetch) {
	w := m.world
	f := &simFetch{member: m, turn: a.Turn, conn: m.conn, arrives: w.now}
	m.fetch = f
	name := m.consumer
	if !m.connected {
		w.after(simFetchWait, func() { f.finish(nil) })
		return
	}
	pull := &simPull{fetch: f, count: w.between(1, 12), bytes: a.Bytes}
	if w.chance(0.5) {
		pull.count = 1000
	}
	w.after(w.hop(), func() {
		pull.expires = w.now + simFetchWait
		if c := w.stream.consumer(name); c != nil && f.conn == m.conn {
			c.pulls = append(c.pulls, pull)
			c.pump()
		}
		w.after(simFetchWait, func() {
			if c := w.stream.consumer(name); c != nil {
				c.drop(pull)
			}
			f.end(nil)
		})
	})
}

// look asks in the order that DoLook prescribes.
func (m *simMember) look(a DoLook) {
	w := m.world
	var l Look
	name := m.consumer
	m.request(a.Turn, []func(){
		func() { l.StreamFacts = m.facts() },
		func() { l.LastTime = w.stream.time(a.Last.Seq) },
		func() { l.More = w.stream.more(a.Read) },
		func() {
			c := w.stream.consumer(name)
			if c == nil {
				l.Changed = "deleted"
				return
			}
			l.Delivered, l.Changed, l.ConsumerLeader = c.delivered, c.edited, c.leader
		},
	}, "look", func(now time.Time, err error) { m.part.Looked(now, a.Turn, l, err) })
}

var errNoResponders = errors.New("nats: no answer")

// facts are what the stream says about itself over the member's connection.
func (m *simMember) facts() StreamFacts {
	f := m.world.stream.facts()
	f.Connection = uint64(m.conn)
	return f
}

// request sends requests to NATS one after another. An unanswered one is
// repeated once, as the shell does; then the whole fails.
func (m *simMember) request(turn Turn, steps []func(), op string, done func(now time.Time, err error)) {
	w, conn, life := m.world, m.conn, m.life
	finish := func(err error) {
		if life != m.life {
			return
		}
		m.answered(turn, op)
		m.answer(turn, func(now time.Time) { done(now, err) })
	}
	var step func(i int)
	step = func(i int) {
		if i == len(steps) {
			finish(nil)
			return
		}
		trouble := w.profile.trouble / 4
		if w.healed {
			trouble = 0
		}
		noRequest, noReply := w.chance(trouble), w.chance(trouble)
		w.after(w.hop(), func() {
			if noRequest || !m.connected || conn != m.conn {
				w.after(natsDeadline, func() { finish(errNoResponders) })
				return
			}
			steps[i]()
			if noReply {
				w.after(natsDeadline, func() { finish(errNoResponders) })
				return
			}
			w.after(w.hop(), func() {
				if !m.connected || conn != m.conn {
					w.after(natsDeadline, func() { finish(errNoResponders) })
					return
				}
				if m.frozen {
					m.backlog = append(m.backlog, func(time.Time) { step(i + 1) })
					return
				}
				step(i + 1)
			})
		})
	}
	step(0)
}
