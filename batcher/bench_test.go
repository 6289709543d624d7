package batcher

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// workload keeps a number of documents open, adds small fragments to them in
// turn, and takes and settles what has a full chunk.
type workload struct {
	b    *Batcher
	keys []string
	seq  uint64
	data []byte
}

func newWorkload(keys int) *workload {
	w := &workload{
		b:    New(Limits{MaxAge: time.Hour, ChunkBytes: 8 * 35, MaxDistance: 1 << 40}),
		keys: make([]string, keys),
		data: make([]byte, 35),
	}
	for i := range w.keys {
		w.keys[i] = fmt.Sprintf("order-%08d", i)
	}
	// From 1 to 8 fragments, so that documents do not fill up all at once.
	for i, key := range w.keys {
		for range 1 + i%8 {
			w.add(key)
		}
	}
	w.flush()
	return w
}

func (w *workload) add(key string) {
	w.seq++
	w.b.Add(start, Fragment{Key: key, Seq: w.seq, Data: w.data})
}

// step adds a fragment and, when enough came, flushes.
func (w *workload) step() {
	const prime = 1_000_003 // jumps about, as keys do
	w.add(w.keys[w.seq*prime%uint64(len(w.keys))])
	if w.seq%1024 == 0 {
		w.flush()
	}
}

func (w *workload) flush() {
	for {
		groups := w.b.Take(start, Limit{Documents: 1024, Bytes: 4 << 20})
		if groups == nil {
			return
		}
		w.b.Oldest()
		for i := range groups {
			w.b.Settle(groups[i].Key, groups[i].Last())
		}
	}
}

// BenchmarkAddTake is the way of one fragment: added, taken, settled.
func BenchmarkAddTake(b *testing.B) {
	for _, keys := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			w := newWorkload(keys)
			runtime.GC()
			b.ReportAllocs()
			for b.Loop() {
				w.step()
			}
		})
	}
}
