package batcher

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"
)

var start = time.Unix(1_700_000_000, 0)

// everything is a limit that nothing meets.
var everything = Limit{Documents: math.MaxInt, Bytes: math.MaxInt}

func text(key string, seq uint64, n int) Fragment {
	return Fragment{Key: key, Seq: seq, Data: make([]byte, n)}
}

func final(f Fragment) Fragment { f.Final = true; return f }
func hole(f Fragment) Fragment  { f.Hole = &Reason{Code: "invalid-utf8"}; return f }

// keysOf returns the keys of groups in order.
func keysOf(groups []Group) (keys []string) {
	for _, g := range groups {
		keys = append(keys, g.Key)
	}
	return keys
}

// TestDue has every reason for which a document is due, and what is just not
// one.
func TestDue(t *testing.T) {
	limits := Limits{MaxAge: time.Second, ChunkBytes: 100, MaxDistance: 10}
	after := func(d time.Duration) time.Time { return start.Add(d) }
	for _, c := range []struct {
		name string
		do   func(b *Batcher)
		take time.Duration // when
		due  bool
	}{
		{"below a chunk", func(b *Batcher) { b.Add(start, text("k", 1, 99)) }, 0, false},
		{"a chunk", func(b *Batcher) { b.Add(start, text("k", 1, 100)) }, 0, true},
		{"a chunk in pieces", func(b *Batcher) { b.Add(start, text("k", 1, 99)); b.Add(start, text("k", 2, 1)) }, 0, true},
		{"a chunk with a hole in it", func(b *Batcher) { b.Add(start, text("k", 1, 99)); b.Add(start, hole(text("k", 2, 1))) }, 0, false},
		{"younger than max age", func(b *Batcher) { b.Add(start, text("k", 1, 1)) }, time.Second - 1, false},
		{"max age", func(b *Batcher) { b.Add(start, text("k", 1, 1)) }, time.Second, true},
		{"max age counts from the oldest", func(b *Batcher) {
			b.Add(start, text("k", 1, 1))
			b.Add(after(time.Second-1), text("k", 2, 1))
		}, time.Second, true},
		{"max age does not count from what is settled", func(b *Batcher) {
			b.Add(start, text("k", 1, 1))
			b.Add(after(1), text("k", 2, 1))
			b.Settle("k", 1)
		}, time.Second, false},
		{"a clock that goes back makes nobody younger", func(b *Batcher) {
			b.Add(after(time.Second), text("x", 1, 1))
			b.Settle("x", 1)
			b.Add(start, text("k", 2, 1))
		}, 2*time.Second - 1, false},
		{"max distance", func(b *Batcher) { b.Add(start, text("k", 1, 1)); b.Passed(10) }, 0, false},
		{"above max distance", func(b *Batcher) { b.Add(start, text("k", 1, 1)); b.Passed(11) }, 0, true},
		{"above max distance by fragments", func(b *Batcher) {
			b.Add(start, text("k", 1, 1))
			for seq := uint64(2); seq <= 12; seq++ {
				b.Add(start, text("x", seq, 0))
			}
			b.Settle("x", 12)
		}, 0, true},
		{"what passed before does not count", func(b *Batcher) { b.Passed(11); b.Add(start, text("k", 1, 1)) }, 0, false},
		{"final", func(b *Batcher) { b.Add(start, final(text("k", 1, 0))) }, 0, true},
		{"a final hole", func(b *Batcher) { b.Add(start, final(hole(text("k", 1, 5)))) }, 0, true},
		{"after a final that is in flight", func(b *Batcher) {
			b.Add(start, final(text("k", 1, 1)))
			b.Take(start, everything)
			b.Add(start, text("k", 2, 1))
			b.Settle("k", 1)
		}, 0, false},
		{"nothing to relieve", func(b *Batcher) { b.Add(start, text("k", 1, 1)); b.Relieve(0) }, 0, false},
		{"relieved", func(b *Batcher) { b.Add(start, text("k", 1, 1)); b.Relieve(1) }, 0, true},
		{"hurried", func(b *Batcher) { b.Add(start, text("k", 1, 1)); b.Hurry() }, 0, true},
		{"added after hurry", func(b *Batcher) { b.Hurry(); b.Add(start, text("k", 1, 1)) }, 0, false},
		{"after a final that is settled", func(b *Batcher) {
			b.Add(start, final(text("k", 1, 1)))
			b.Add(start, text("k", 2, 1))
			b.Take(start, everything)
			b.Settle("k", 1)
		}, 0, true},
		{"drained", func(b *Batcher) { b.Add(start, text("k", 1, 1)); b.Drain() }, 0, true},
		{"added after drain", func(b *Batcher) { b.Drain(); b.Add(start, text("k", 1, 1)) }, 0, true},
		{"due while in flight", func(b *Batcher) {
			b.Add(start, text("k", 1, 100))
			b.Take(start, everything)
			b.Add(start, text("k", 2, 100))
		}, time.Hour, false},
		{"due while in flight, then settled", func(b *Batcher) {
			b.Add(start, text("k", 1, 100))
			b.Take(start, everything)
			b.Add(start, text("k", 2, 100))
			b.Settle("k", 1)
		}, 0, true},
		{"given back", func(b *Batcher) {
			b.Add(start, text("k", 1, 100))
			b.Take(start, everything)
			b.Settle("k", 0)
		}, 0, true},
		{"due stays due when it shrinks", func(b *Batcher) {
			b.Add(start, text("k", 1, 99))
			b.Add(start, text("k", 2, 1))
			b.Settle("k", 1)
		}, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := New(limits)
			c.do(b)
			if got := len(b.Take(after(c.take), everything)) > 0; got != c.due {
				t.Errorf("due: %v, want %v", got, c.due)
			}
		})
	}
}

// TestOrder has the order in which due documents are taken.
func TestOrder(t *testing.T) {
	b := New(Limits{MaxAge: time.Second, ChunkBytes: 10})
	b.Add(start, text("old", 1, 1))
	b.Add(start, text("older than it looks", 2, 1))
	b.Add(start.Add(time.Millisecond), text("full", 3, 10))
	b.Add(start.Add(time.Millisecond), text("given back", 4, 10))
	b.Add(start.Add(time.Millisecond), text("old", 5, 1))
	if got, want := keysOf(b.Take(start.Add(time.Millisecond), everything)), []string{"full", "given back"}; !slices.Equal(got, want) {
		t.Fatalf("took %q, want %q", got, want)
	}
	b.Add(start.Add(2*time.Second), text("full", 6, 10))
	b.Settle("full", 3)
	b.Settle("given back", 0)
	if got, want := keysOf(b.Take(start.Add(2*time.Second), everything)), []string{"given back", "old", "older than it looks", "full"}; !slices.Equal(got, want) {
		t.Fatalf("took %q, want %q", got, want)
	}
}

// TestBusyDocument: a document that never empties leaves the others their turn.
func TestBusyDocument(t *testing.T) {
	b := New(Limits{ChunkBytes: 10})
	seq := uint64(0)
	add := func(key string) { seq++; b.Add(start, text(key, seq, 10)) }
	for range 5 {
		add("busy")
	}
	add("other")
	turns := 0
	for b.Documents() == 2 {
		groups := b.Take(start, Limit{Documents: 1, Bytes: 20})
		add("busy")
		add("busy")
		b.Settle(groups[0].Key, groups[0].Last())
		if turns++; turns == 10 {
			t.Fatal("the other document never had its turn")
		}
	}
}

// TestFragmentIsKept: what goes in comes out, whatever fields Fragment has.
func TestFragmentIsKept(t *testing.T) {
	var f Fragment
	v := reflect.ValueOf(&f).Elem()
	for i := range v.NumField() {
		switch field := v.Field(i); field.Kind() {
		case reflect.String:
			field.SetString("key")
		case reflect.Uint64:
			field.SetUint(uint64(i) + 100)
		case reflect.Int64:
			field.SetInt(int64(i) + 100)
		case reflect.Bool:
			field.SetBool(true)
		case reflect.Slice:
			field.SetBytes([]byte("data"))
		case reflect.Pointer:
			field.Set(reflect.ValueOf(&Reason{Code: "code"}))
		default:
			t.Fatalf("the test does not know fields such as %s", v.Type().Field(i).Name)
		}
	}
	b := New(Limits{})
	b.Add(start, f)
	groups := b.Take(start, everything)
	if len(groups) != 1 || !reflect.DeepEqual(groups[0].Fragments, []Fragment{f}) {
		t.Fatalf("got %+v, want %+v", groups, f)
	}
}

// TestGroupIsTheCallers: what is given back does not change the group taken.
func TestGroupIsTheCallers(t *testing.T) {
	b := New(Limits{ChunkBytes: 1})
	b.Add(start, text("k", 1, 1))
	b.Add(start, text("k", 2, 2))
	first := b.Take(start, everything)[0]
	b.Settle("k", 1)
	b.Add(start, text("k", 3, 3))
	second := b.Take(start, everything)[0]
	if first.First() != 1 || first.Last() != 2 || first.Bytes != 3 {
		t.Errorf("the first group changed: %+v", first)
	}
	if second.First() != 2 || second.Last() != 3 || second.Bytes != 5 {
		t.Errorf("the second group is %+v", second)
	}
}

func TestSettleOfUnknownKey(t *testing.T) {
	b := New(Limits{})
	b.Settle("k", 5)
	b.Add(start, text("k", 6, 1))
	b.Settle("other", 10)
	if got := keysOf(b.Take(start, everything)); !slices.Equal(got, []string{"k"}) {
		t.Errorf("took %q", got)
	}
}

// TestOldestInFlight: what is in flight does not count until it comes back.
func TestOldestInFlight(t *testing.T) {
	b := New(Limits{MaxAge: time.Hour, ChunkBytes: 10})
	check := func(want uint64) {
		t.Helper()
		if got, ok := b.Oldest(); got != want || ok != (want > 0) {
			t.Errorf("oldest %d %v, want %d", got, ok, want)
		}
	}
	check(0)
	b.Add(start, text("a", 1, 10))
	b.Add(start, text("b", 2, 1))
	b.Add(start, text("c", 3, 10))
	check(1)
	b.Take(start, everything)
	check(2)
	b.Settle("c", 0)
	check(2)
	b.Settle("a", 0)
	check(1)
	b.Take(start, everything)
	check(2)
	b.Settle("b", 2)
	check(0)
	if got := b.Age(start.Add(time.Minute)); got != time.Minute {
		t.Errorf("the oldest fragment, in flight, is %v old", got)
	}
	b.Add(start, text("d", 4, 1))
	check(4)
}

// TestFull: the caller stops reading and asks for relief above its limit.
func TestFull(t *testing.T) {
	b := New(Limits{MaxAge: time.Hour, ChunkBytes: 1 << 20})
	b.Add(start, hole(text("k", 1, 1000)))
	if b.Bytes() < 1000 {
		t.Errorf("%d bytes: the data of a hole counts", b.Bytes())
	}
	if b.Full(b.Bytes()) || !b.Full(b.Bytes()-1) {
		t.Error("full is above the limit, not at it")
	}
}

// TestLongestFirst: no document that Relieve leaves is twice as long as one
// that it chose, and it does not choose more than it has to.
func TestLongestFirst(t *testing.T) {
	b := New(Limits{MaxAge: time.Hour, ChunkBytes: 1 << 20})
	var total int64
	for i := range 100 {
		b.Add(start, text(fmt.Sprint(i), uint64(i+1), (i*37%100)*100))
		total += int64((i * 37 % 100) * 100)
	}
	b.Relieve(total / 2)
	shortest, sum, last := math.MaxInt, int64(0), int64(0)
	for _, g := range b.Take(start, everything) {
		shortest = min(shortest, g.Bytes)
		last = allocated(g.Bytes) + heldBytes
		sum += last
		b.Settle(g.Key, g.Last())
	}
	if sum < total/2 || sum-last >= total/2 {
		t.Errorf("%d bytes became due, the last document having %d; wanted %d", sum, last, total/2)
	}
	b.Drain()
	for _, g := range b.Take(start, everything) {
		if g.Bytes >= 2*(shortest+heldBytes) {
			t.Errorf("a document of %d bytes was left, one of %d was chosen", g.Bytes, shortest)
		}
	}
}

// TestNothingIsKeptBehindAnOldFragment: one fragment that stays does not keep
// what came after it and is settled.
func TestNothingIsKeptBehindAnOldFragment(t *testing.T) {
	b := New(Limits{MaxAge: time.Hour, ChunkBytes: 100, MaxDistance: math.MaxUint64})
	b.Add(start, text("old", 1, 1))
	before := heap()
	for seq := uint64(2); seq < 50_000; seq++ {
		b.Add(start, text(fmt.Sprint(seq), seq, 1000))
		for _, g := range b.Take(start, everything) {
			b.Settle(g.Key, g.Last())
		}
	}
	if grown := int64(heap() - before); grown > 1<<20 {
		t.Errorf("%d bytes are kept", grown)
	}
	if seq, _ := b.Oldest(); seq != 1 {
		t.Errorf("oldest %d", seq)
	}
	runtime.KeepAlive(b)
}

func TestLimits(t *testing.T) {
	good := Limits{MaxAge: time.Second, ChunkBytes: 32767}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []Limits{{MaxAge: -1, ChunkBytes: 100}, {ChunkBytes: 3}, {ChunkBytes: -1}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
		b := New(bad)
		b.Add(start, text("k", 1, 100))
		if len(b.Take(start, everything)) == 0 {
			t.Errorf("%+v: nothing is due", bad)
		}
	}
	b := New(Limits{MaxAge: math.MaxInt64, ChunkBytes: 100})
	b.Add(start, text("k", 1, 1))
	b.Passed(DefaultMaxDistance)
	if len(b.Take(start, everything)) > 0 {
		t.Error("due at the default distance")
	}
	b.Passed(1)
	if len(b.Take(start, everything)) == 0 {
		t.Error("not due above the default distance")
	}
}

// TestAllocations: an added, taken and settled fragment costs as many
// allocations among 100,000 open documents as among 100.
func TestAllocations(t *testing.T) {
	for _, keys := range []int{100, 100_000} {
		w := newWorkload(keys)
		const fragments = 100_000
		each := testing.AllocsPerRun(1, func() {
			for range fragments {
				w.step()
			}
		}) / fragments
		t.Logf("%d keys: %.2f allocations per fragment", keys, each)
		if each > 1.3 { // one, and a share of its group
			t.Errorf("%d keys: %.2f allocations per fragment", keys, each)
		}
	}
}
