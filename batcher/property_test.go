package batcher

import (
	"bytes"
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
	if p.b.Bytes() != 0 || p.b.dueBytes != 0 || p.b.arrivals.first() != nil || p.b.queues != (queues{}) {
		t.Fatalf("empty, but %d bytes, %d due, %d places", p.b.Bytes(), p.b.dueBytes, len(p.b.arrivals.places))
	}
}

func (p *pair) drain() {
	p.b.Drain()
	p.m.draining = true
	p.m.update()
}
