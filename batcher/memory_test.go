package batcher

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// TestBytesMatchesHeap fills batchers as an owner does and compares Bytes with
// what the heap has grown by. It is what the constants in memory.go rest on.
func TestBytesMatchesHeap(t *testing.T) {
	for _, c := range []struct{ keys, fragments, data int }{
		{500_000, 1, 35},
		{100_000, 1, 35},
		{50_000, 10, 35},
		{30_000, 10, 500},
		{400, 1, 32 << 10},
		{400, 1, 33_000}, // the allocator gives 40,960
	} {
		t.Run(fmt.Sprintf("%d keys/%d fragments/%d bytes", c.keys, c.fragments, c.data), func(t *testing.T) {
			before := heap()
			b := New(Limits{MaxAge: time.Hour, ChunkBytes: 1 << 20, MaxDistance: 1 << 40})
			fill(b, c.keys, c.fragments, c.data)
			compare(t, "waiting", b, before)
			b.Drain()
			groups := b.Take(time.Time{}, Limit{Documents: c.keys, Bytes: 1 << 30})
			if len(groups) != c.keys {
				t.Fatalf("took %d groups", len(groups))
			}
			// The slice of groups is the caller's alone: a flush's limit bounds it.
			compare(t, "in flight", b, before+uint64(cap(groups))*48)
			runtime.KeepAlive(groups)
			for i := range groups {
				b.Settle(groups[i].Key, groups[i].Last())
			}
			if b.Bytes() != 0 {
				t.Errorf("%d bytes left", b.Bytes())
			}
			groups = nil
			if grown := int64(heap() - before); grown > 1<<20 {
				t.Errorf("an empty batcher keeps %d bytes", grown)
			}
			runtime.KeepAlive(b)
		})
	}
}

// fill adds fragments round robin, each with its own key and data, as they come
// from the stream.
func fill(b *Batcher, keys, fragments, data int) {
	seq := uint64(0)
	payload := make([]byte, data)
	for range fragments {
		for k := range keys {
			seq++
			b.Add(time.Time{}, Fragment{Key: fmt.Sprintf("order-%08d", k), Seq: seq, Data: append(make([]byte, 0, data), payload...)})
		}
	}
}

func compare(t *testing.T, what string, b *Batcher, before uint64) {
	t.Helper()
	grown := int64(heap() - before)
	off := float64(b.Bytes()-grown) / float64(grown) * 100
	t.Logf("%s: Bytes %d, heap %d (%+.1f %%)", what, b.Bytes(), grown, off)
	if off < -5 || off > 15 {
		t.Errorf("%s: Bytes says %d, the heap has grown by %d: %+.1f %%", what, b.Bytes(), grown, off)
	}
}

// heap returns the bytes that are in use after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
