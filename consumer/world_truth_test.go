package consumer

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// simLetters is the dead-letter stream. It may be full for a while.
type simLetters struct {
	world  *world
	full   bool
	stored map[letterID]string // the payload
}

// letterID is what the subject of a dead letter says.
type letterID struct {
	seq        uint64
	generation int64
}

// publish publishes letters in order, each until it is confirmed.
func (l *simLetters) publish(m *simMember, a DoLetters, i int) {
	w, life := l.world, m.life
	if i == len(a.Letters) {
		m.answered(a.Turn, "letters")
		m.answer(a.Turn, func(now time.Time) { m.part.Lettered(now, a.Turn, a.Batch) })
		return
	}
	next := func(i int) {
		switch {
		case life != m.life || a.Turn != m.part.Turn():
		case m.frozen:
			m.backlog = append(m.backlog, func(time.Time) { l.publish(m, a, i) })
		default:
			l.publish(m, a, i)
		}
	}
	w.after(w.hop(), func() {
		if !m.connected || l.full || !w.healed && w.chance(w.profile.trouble/4) {
			w.after(w.span(time.Second, 5*time.Second), func() { next(i) })
			return
		}
		r := &a.Letters[i]
		id := letterID{seq: r.Fragment.Seq, generation: r.Generation}
		switch stored, there := l.stored[id]; {
		case there && stored != string(r.Fragment.Data):
			// Of a message that the server has lost. The publisher refuses, and
			// an operator moves it away.
			w.note("dead letters: there is another of message %d", r.Fragment.Seq)
			w.seen.count("dead letters of lost messages in the way")
			w.after(w.span(time.Second, 5*time.Second), func() {
				delete(l.stored, id)
				next(i)
			})
			return
		case !there:
			l.stored[id] = string(r.Fragment.Data)
			w.seen.count("dead letters")
			w.note("dead letters: message %d (%s)", r.Fragment.Seq, r.Reason.Code)
		}
		w.after(w.hop(), func() { next(i + 1) })
	})
}

// has reports whether a message is in the dead letters.
func (l *simLetters) has(m *message) bool {
	for g := int64(0); g <= maxGenerations; g++ {
		if data, ok := l.stored[letterID{seq: m.seq(), generation: g}]; ok && data == string(m.fragment.Data) {
			return true
		}
	}
	return false
}

// mismatched reports whether the stream really is another one than the database
// was fed from, as far as anything that is stored shows it.
func (w *world) mismatched() bool {
	s, f := w.stream, w.db.fence()
	other := func(p lobwriter.Position) bool {
		return p.Seq > s.last() || s.time(p.Seq) != 0 && s.time(p.Seq) != p.Time
	}
	return s.created != w.db.binding.Created || other(f.Checkpoint) || other(f.Highest)
}

// gap reports whether the stream has discarded what lies above the checkpoint.
func (w *world) gap() bool {
	ck := w.db.fence().Checkpoint.Seq
	return ck != 0 && w.stream.first() > ck+1
}

// versions are the streams that a document may follow: the one there is, and
// where that is another one than the database was fed from, what it once was.
func (w *world) versions() [][]message {
	if !w.mismatched() {
		return [][]message{w.stream.msgs}
	}
	return append([][]message{w.stream.msgs}, w.stream.past...)
}

// checkDocument: a document is the concatenation of its accepted fragments in
// stream order up to its mark, each exactly once, and what is missing in it is
// in the dead letters.
func (w *world) checkDocument(key string) {
	d, text := w.db.document(key)
	if d.Absent() {
		return
	}
	if int64(len(text)) != d.Bytes || lobwriter.Checksum(0, []byte(text)) != d.CRC {
		w.fail("document %q has %d bytes, its row says %d, or another checksum", key, len(text), d.Bytes)
	}
	why := ""
	for _, msgs := range w.versions() {
		if why = w.differs(msgs, key, w.purged[key], d.Row, text); why == "" {
			return
		}
	}
	w.fail("document %q (%s, mark %d): %s\n  it is %q", key, d.State, d.Mark.Seq, why, text)
}

// differs tells how a document differs from what a stream says behind a message;
// "": not at all.
func (w *world) differs(msgs []message, key string, behind uint64, row lobwriter.Row, text string) string {
	var fragments, holes, late int64
	state := lobwriter.Open
	poisoned := false
	rest := text
	missing := "" // the first accepted fragment that the text lacks
	for i := range msgs {
		m := &msgs[i]
		f := &m.fragment
		if !m.own || m.orphan || f.Key != key || f.Seq > row.Mark.Seq || f.Seq <= behind {
			continue
		}
		fragments++
		lettered := w.letters.has(m)
		switch {
		case state == lobwriter.Complete:
			late++
			if len(f.Data) > 0 && !lettered {
				return fmt.Sprintf("message %d came too late and is not in the dead letters", f.Seq)
			}
			continue
		case f.Hole != nil:
			holes++
			if !lettered {
				return fmt.Sprintf("message %d is a hole and not in the dead letters", f.Seq)
			}
		case missing == "" && !m.poison && strings.HasPrefix(rest, string(f.Data)):
			rest = rest[len(f.Data):]
		default:
			poisoned = poisoned || m.poison
			if missing == "" {
				missing = fmt.Sprintf("message %d", f.Seq)
			}
			if len(f.Data) > 0 && !lettered {
				return fmt.Sprintf("message %d is neither in it nor in the dead letters", f.Seq)
			}
		}
		if f.Final && state == lobwriter.Open && missing == "" {
			state = lobwriter.Complete
			if holes > 0 {
				state = lobwriter.Incomplete
			}
		}
	}
	switch {
	case rest != "":
		return fmt.Sprintf("at byte %d it has %q", len(text)-len(rest), rest)
	case fragments != row.Fragments:
		return fmt.Sprintf("it counts %d fragments of %d", row.Fragments, fragments)
	case row.State == lobwriter.Quarantined:
		if !w.poisonous(msgs, key) {
			return "it is quarantined for nothing"
		}
		return ""
	case missing != "":
		return missing + " is missing"
	case state != row.State:
		return fmt.Sprintf("its state should be %s", state)
	case holes != row.Holes, late != row.Late:
		return fmt.Sprintf("it counts %d holes and %d late ones, there are %d and %d", row.Holes, row.Late, holes, late)
	}
	return ""
}

func (w *world) poisonous(msgs []message, key string) bool {
	for i := range msgs {
		if msgs[i].poison && msgs[i].fragment.Key == key {
			return true
		}
	}
	return false
}

// checkCheckpoint: everything of the partition at or below the checkpoint is
// stored or dead-lettered, and the checkpoint stands on a message.
func (w *world) checkCheckpoint(f lobwriter.Fence) {
	if f.Checkpoint.Seq == 0 {
		return
	}
	marks := map[string]uint64{}
	why := ""
	for _, msgs := range w.versions() {
		if why = w.uncovered(msgs, f.Checkpoint, marks); why == "" {
			return
		}
	}
	w.fail("the checkpoint is %d, but %s", f.Checkpoint.Seq, why)
}

func (w *world) uncovered(msgs []message, ck lobwriter.Position, marks map[string]uint64) string {
	if ck.Seq > uint64(len(msgs)) || msgs[ck.Seq-1].fragment.Time != ck.Time {
		return "no such message"
	}
	for i := range msgs[:ck.Seq] {
		m := &msgs[i]
		if !m.own {
			continue
		}
		if m.orphan {
			if !w.letters.has(m) {
				return fmt.Sprintf("message %d without a key is not in the dead letters", m.seq())
			}
			continue
		}
		key := m.fragment.Key
		if _, known := marks[key]; !known {
			d, _ := w.db.document(key)
			marks[key] = max(d.Mark.Seq, w.purged[key])
		}
		if marks[key] < m.seq() {
			return fmt.Sprintf("message %d of %q is not stored", m.seq(), key)
		}
	}
	return ""
}

// checkEverything checks all documents.
func (w *world) checkEverything() {
	for _, key := range w.profile.keys {
		w.checkDocument(key)
	}
	w.checkCheckpoint(w.db.fence())
}

// unsettled says what is not as it should be in the end; "": everything is.
func (w *world) unsettled() string {
	if w.now < w.healedAt+2*time.Second {
		return "messages are still published"
	}
	f := w.db.fence()
	if w.mismatched() {
		return w.stands("another stream", func(err error) bool { return errors.As(err, new(*IdentityError)) })
	}
	if w.gap() {
		return w.stands("a gap", func(err error) bool { return errors.As(err, new(*GapError)) })
	}
	var owner *simMember
	for _, m := range w.members {
		if m.alive && m.part.Owning() {
			if owner != nil {
				return "two members own the partition"
			}
			owner = m
		}
	}
	if owner == nil {
		return "nobody owns the partition"
	}
	if end := w.stream.last(); f.Checkpoint.Seq < end {
		return fmt.Sprintf("the checkpoint is %d, not %d; the stream ends at %d", f.Checkpoint.Seq, end, w.stream.last())
	}
	for _, c := range w.stream.consumers {
		switch {
		case c.name != owner.consumer:
			// Left behind by a sweep that failed; the next claim sweeps again.
		case c.edited != "":
			return "the edited consumer is still used"
		case len(c.pending) > 0 && c.pending[0].consumer > c.floor.consumer:
			return fmt.Sprintf("message %d is not acknowledged", c.pending[0].stream)
		}
	}
	return ""
}

// stands: every living member has stopped the partition and said why, for a
// minute and a half in which the database did not change.
func (w *world) stands(why string, is func(error) bool) string {
	for _, m := range w.members {
		if m.alive && (m.part.Owning() || !is(m.report)) {
			return "the stream has " + why + ", but member " + m.name + " has not said so"
		}
	}
	if w.db.changed != w.stoodWith {
		w.stoodWith, w.stoodSince = w.db.changed, w.now
	}
	if w.now < w.stoodSince+90*time.Second {
		return "waiting whether anything still changes"
	}
	w.seen.count("ends: stopped for " + why)
	return ""
}

func (s *tally) String() string {
	var names []string
	for what := range s.counts {
		names = append(names, what)
	}
	sort.Strings(names)
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %d steps", s.runs, s.steps)
	for _, what := range names {
		fmt.Fprintf(&b, "\n  %-45s %8d", what, s.counts[what])
	}
	return b.String()
}

// check makes sure that the world is not idle: in so many seeds, everything it
// is for has happened.
func (s *tally) check(t *testing.T, seeds int) {
	t.Helper()
	if seeds < 5000 || t.Failed() {
		return
	}
	expect := []string{
		"clean stops", "dead letters", "messages swallowed by a dead inbox", "outcomes unknown", "replies lost", "requests delayed", "requests lost",
		"ends: stopped for another stream", "ends: stopped for a gap",
	}
	for _, f := range faults() {
		expect = append(expect, "fault: "+f.name)
	}
	for _, d := range []Doubt{DoubtOrder, DoubtQuiet, DoubtConsumer, DoubtReconnect, DoubtFenced, DoubtDatabase, DoubtLease, DoubtIdentity, DoubtGap} {
		expect = append(expect, "doubts: "+string(d))
	}
	for a := lobwriter.AlreadyThere; a <= lobwriter.Rejected; a++ {
		expect = append(expect, "groups "+a.String())
	}
	for _, what := range expect {
		if s.counts[what] == 0 {
			t.Errorf("in %d seeds this never happened: %s", seeds, what)
		}
	}
}
