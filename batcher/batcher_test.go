package batcher

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// TestBytes compares what Bytes says with what the heap grows by.
func TestBytes(t *testing.T) {
	for _, per := range []int{1, 10} {
		t.Run(fmt.Sprintf("fragments per document %d", per), func(t *testing.T) {
			const documents = 200_000
			heap := func() int64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			before := heap()
			b := New(Limits{MaxAge: time.Hour, ChunkBytes: 32767})
			now := time.Unix(0, 0)
			seq := uint64(0)
			for range per {
				for d := range documents {
					seq++
					b.Add(now, Fragment{Key: fmt.Sprintf("document-%d", d), Seq: seq, Data: make([]byte, 100)})
				}
			}
			grown := heap() - before
			ratio := float64(b.Bytes()) / float64(grown)
			t.Logf("heap grew by %d, Bytes says %d: %.2f", grown, b.Bytes(), ratio)
			if ratio < 0.95 || ratio > 1.30 {
				t.Errorf("Bytes is %.2f of the heap", ratio)
			}
			runtime.KeepAlive(b)
		})
	}
}
