package batcher

import (
	"bytes"
	"cmp"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestMain makes random tests longer than rapid does by itself; its flags still
// have the last word.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "500", "rapid.steps": "100"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// model says what a Batcher does in the plainest way: after each call it looks
// at every fragment of every document.
type model struct {
	limits   Limits
	docs     []*modelDoc
	now      time.Duration
	read     uint64
	draining bool
	ticket   int // numbers the places in queues
}

type modelDoc struct {
	key      string
	held     []modelHeld
	flying   int // the first so many are in flight
	due      bool
	returned bool // due again: goes before the others
	class    int  // of a document that is not due; 0: none
	place    int  // ticket of its place among the due or in its class; 0: none
}

type modelHeld struct {
	Fragment
	added time.Duration
	read  uint64
}

func (h modelHeld) memory() int64 { return int64(cap(h.Data)) + heldBytes }

func (m *model) find(key string) *modelDoc {
	for _, d := range m.docs {
		if d.key == key {
			return d
		}
	}
	return nil
}

func (d *modelDoc) waiting() []modelHeld { return d.held[d.flying:] }

func (d *modelDoc) memory() (sum int64) {
	for _, h := range d.waiting() {
		sum += h.memory()
	}
	return sum
}

func (d *modelDoc) text() (sum int) {
	for _, h := range d.waiting() {
		sum += len(h.Text())
	}
	return sum
}

// oldestFirst returns the documents that wait, by their oldest waiting fragment.
func (m *model) oldestFirst() []*modelDoc {
	var docs []*modelDoc
	for _, d := range m.docs {
		if len(d.waiting()) > 0 {
			docs = append(docs, d)
		}
	}
	slices.SortFunc(docs, func(a, b *modelDoc) int { return cmp.Compare(a.waiting()[0].Seq, b.waiting()[0].Seq) })
	return docs
}

// update applies the rules of becoming due and gives out places in queues.
func (m *model) update() {
	m.docs = slices.DeleteFunc(m.docs, func(d *modelDoc) bool { return len(d.held) == 0 })
	for _, d := range m.oldestFirst() {
		h := d.waiting()[0]
		if m.draining || m.now-h.added >= m.limits.MaxAge || m.read-h.read > m.limits.MaxDistance {
			d.due = true
			m.enqueue(d)
		}
	}
	for _, d := range m.oldestFirst() {
		final := slices.ContainsFunc(d.waiting(), func(h modelHeld) bool { return h.Final })
		if final || d.text() >= m.limits.ChunkBytes {
			d.due = true
		}
		m.enqueue(d)
	}
}

// enqueue gives a document a new place if it has moved to another queue.
func (m *model) enqueue(d *modelDoc) {
	class := 0
	if !d.due {
		for size := d.memory(); size > 0; size /= 2 {
			class++
		}
	}
	ready := d.due && d.flying == 0
	if d.due && !ready {
		d.place = 0
	} else if d.place == 0 || d.class != class {
		m.ticket++
		d.place = m.ticket
	}
	d.class = class
}

func (m *model) add(now time.Duration, f Fragment) {
	m.now = max(m.now, now)
	m.read++
	d := m.find(f.Key)
	if d == nil {
		d = &modelDoc{key: f.Key}
		m.docs = append(m.docs, d)
	}
	d.held = append(d.held, modelHeld{f, m.now, m.read})
	m.update()
}

func (m *model) take(now time.Duration, l Limit) (groups []Group) {
	m.now = max(m.now, now)
	m.update()
	ready := m.ready()
	for i, d := range ready {
		if i == max(l.Documents, 1) {
			break
		}
		g := Group{Key: d.key}
		for j, h := range d.waiting() {
			size := len(h.Text())
			if size > l.Bytes && (i > 0 || j > 0) {
				break
			}
			l.Bytes -= size
			g.Fragments = append(g.Fragments, h.Fragment)
			g.Bytes += size
			if h.Final {
				break
			}
		}
		if len(g.Fragments) == 0 {
			break
		}
		groups = append(groups, g)
	}
	for _, g := range groups {
		d := m.find(g.Key)
		d.flying = len(g.Fragments)
		d.due = d.due && len(d.waiting()) > 0
		d.returned, d.place, d.class = false, 0, 0
	}
	return groups
}

// ready returns what Take may hand out, in its order.
func (m *model) ready() (docs []*modelDoc) {
	for _, d := range m.docs {
		if d.due && d.flying == 0 {
			docs = append(docs, d)
		}
	}
	slices.SortFunc(docs, func(a, b *modelDoc) int {
		if a.returned != b.returned {
			if a.returned {
				return -1
			}
			return 1
		}
		return a.place - b.place
	})
	return docs
}

func (m *model) settle(key string, through uint64) {
	d := m.find(key)
	if d == nil {
		return
	}
	for len(d.held) > 0 && d.held[0].Seq <= through {
		d.held = d.held[1:]
		d.flying = max(d.flying-1, 0)
	}
	if d.flying > 0 {
		d.flying, d.due, d.returned, d.place = 0, true, true, 0
	}
	m.update()
}

func (m *model) hurry() {
	for _, d := range m.oldestFirst() {
		if !d.due {
			d.due = true
			m.enqueue(d)
		}
	}
}

func (m *model) relieve(bytes int64) {
	for {
		var sum int64
		var choice *modelDoc
		for _, d := range m.oldestFirst() {
			if d.due {
				sum += d.memory()
			} else if choice == nil || d.class > choice.class || d.class == choice.class && d.place < choice.place {
				choice = d
			}
		}
		if sum >= bytes || choice == nil {
			return
		}
		choice.due = true
		m.enqueue(choice)
	}
}

func (m *model) bytes() (sum int64) {
	for _, d := range m.docs {
		sum += int64(len(d.key)) + documentBytes + int64(d.flying)*takenBytes
		for _, h := range d.held {
			sum += h.memory()
		}
	}
	return sum
}

// deadline returns when Take has to be called next; false: never.
func (m *model) deadline() (time.Duration, bool) {
	if len(m.ready()) > 0 {
		return m.now, true
	}
	for _, d := range m.oldestFirst() {
		if !d.due {
			return d.waiting()[0].added + m.limits.MaxAge, true
		}
	}
	return 0, false
}

// pair drives a Batcher and its model with the same calls.
type pair struct {
	b     *Batcher
	m     model
	seq   uint64
	clock time.Duration
	// For the invariants, by key: the last sequence of the group in flight, and
	// up to where fragments were settled.
	flying    map[string]uint64
	settledTo map[string]uint64
}

var modelStart = time.Unix(1_700_000_000, 0)

func (p *pair) now() time.Time { return modelStart.Add(p.clock) }

func (p *pair) check(t *rapid.T) {
	t.Helper()
	if got, want := p.b.Bytes(), p.m.bytes(); got != want {
		t.Fatalf("Bytes: %d, want %d", got, want)
	}
	if got, want := p.b.Documents(), len(p.m.docs); got != want {
		t.Fatalf("Documents: %d, want %d", got, want)
	}
	want, wantOK := p.m.deadline()
	if got, ok := p.b.Deadline(); ok != wantOK || ok && !got.Equal(modelStart.Add(want)) {
		t.Fatalf("Deadline: %v %v, want %v %v", got.Sub(modelStart), ok, want, wantOK)
	}
	var oldest uint64
	if docs := p.m.oldestFirst(); len(docs) > 0 {
		oldest = docs[0].waiting()[0].Seq
	}
	if got, ok := p.b.Oldest(); got != oldest || ok != (oldest > 0) {
		t.Fatalf("Oldest: %d %v, want %d", got, ok, oldest)
	}
	age := time.Duration(0)
	for _, d := range p.m.docs {
		age = max(age, p.clock-d.held[0].added)
	}
	if got := p.b.Age(p.now()); got != age {
		t.Fatalf("Age: %v, want %v", got, age)
	}
}

func (p *pair) take(t *rapid.T, l Limit) []Group {
	got, want := p.b.Take(p.now(), l), p.m.take(p.clock, l)
	if !slices.EqualFunc(got, want, sameGroup) {
		t.Fatalf("Take(%+v): %s\nwant %s", l, describe(got), describe(want))
	}
	for _, g := range got {
		if _, ok := p.flying[g.Key]; ok {
			t.Fatalf("two groups of %q in flight", g.Key)
		}
		if g.First() <= p.settledTo[g.Key] {
			t.Fatalf("%q: took %d again, settled up to %d", g.Key, g.First(), p.settledTo[g.Key])
		}
		p.flying[g.Key] = g.Last()
	}
	return got
}

func (p *pair) settle(key string, through uint64) {
	delete(p.flying, key)
	p.settledTo[key] = max(p.settledTo[key], through)
	p.b.Settle(key, through)
	p.m.settle(key, through)
}

func sameGroup(a, b Group) bool {
	return a.Key == b.Key && a.Bytes == b.Bytes && slices.EqualFunc(a.Fragments, b.Fragments, func(x, y Fragment) bool {
		return x.Key == y.Key && x.Seq == y.Seq && bytes.Equal(x.Data, y.Data) && x.Hole == y.Hole && x.Final == y.Final
	})
}

// TestModel makes random calls and compares everything visible with the model.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{
			MaxAge:      time.Duration(rapid.SampledFrom([]int{0, 5, 50, 1000}).Draw(t, "age")),
			ChunkBytes:  rapid.SampledFrom([]int{4, 300, 1000, 100_000}).Draw(t, "chunk"),
			MaxDistance: rapid.SampledFrom([]uint64{1, 10, 1000}).Draw(t, "distance"),
		}
		p := &pair{b: New(limits), m: model{limits: limits}, flying: map[string]uint64{}, settledTo: map[string]uint64{}}
		keys := rapid.SampledFrom([]string{"a", "b", "c", "dd", "e", "f"})
		drain := rapid.IntRange(0, 99).Draw(t, "drain")
		t.Repeat(map[string]func(*rapid.T){
			"": p.check,
			"add": func(t *rapid.T) {
				p.seq += rapid.Uint64Range(1, 3).Draw(t, "gap")
				f := Fragment{Key: keys.Draw(t, "key"), Seq: p.seq, Final: rapid.IntRange(0, 9).Draw(t, "final") == 0}
				f.Data = make([]byte, rapid.SampledFrom([]int{0, 1, 40, 400, 2000}).Draw(t, "size"))
				if rapid.IntRange(0, 9).Draw(t, "hole") == 0 {
					f.Hole = &Reason{Code: "invalid-utf8"}
				}
				p.b.Add(p.now(), f)
				p.m.add(p.clock, f)
			},
			"wait": func(t *rapid.T) { p.clock += time.Duration(rapid.IntRange(0, 20).Draw(t, "wait")) },
			"pass": func(t *rapid.T) {
				n := rapid.Uint64Range(0, 5).Draw(t, "n")
				p.b.Passed(n)
				p.m.read += n
				p.m.update()
			},
			"take": func(t *rapid.T) {
				p.take(t, Limit{rapid.IntRange(0, 4).Draw(t, "documents"), rapid.IntRange(0, 1500).Draw(t, "bytes")})
			},
			"settle": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				p.settle(key, rapid.OneOf(rapid.Just(p.flying[key]), rapid.Uint64Range(0, p.seq)).Draw(t, "through"))
			},
			"relieve": func(t *rapid.T) {
				n := rapid.Int64Range(0, 5000).Draw(t, "n")
				p.b.Relieve(n)
				p.m.relieve(n)
			},
			"hurry": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "hurry") == 0 {
					p.b.Hurry()
					p.m.hurry()
				}
			},
			"drain": func(t *rapid.T) {
				if drain == 0 {
					p.drain()
				}
			},
		})
		p.empty(t)
	})
}

// empty drains the pair: at the end nothing is lost and nothing is kept.
func (p *pair) empty(t *rapid.T) {
	for _, key := range slices.Sorted(maps.Keys(p.flying)) {
		p.settle(key, p.flying[key])
	}
	p.drain()
	for p.b.Documents() > 0 {
		groups := p.take(t, Limit{Documents: 10, Bytes: 10_000})
		if len(groups) == 0 {
			t.Fatalf("%d documents held and none due", p.b.Documents())
		}
		for _, g := range groups {
			p.settle(g.Key, g.Last())
		}
		p.check(t)
	}
	if p.b.Bytes() != 0 || p.b.dueBytes != 0 || p.b.arrivals != (arrivals{}) || p.b.queues != (queues{}) {
		t.Fatalf("empty, but %d bytes, %d due, arrivals %+v", p.b.Bytes(), p.b.dueBytes, p.b.arrivals)
	}
}

func (p *pair) drain() {
	p.b.Drain()
	p.m.draining = true
	p.m.update()
}
