package consumer

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
)

// TestRowCacheBytes compares what the cache says it takes with what the heap
// grows by, and that it keeps to its limit.
func TestRowCacheBytes(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const rows = 200_000
	var c rowCache
	for try := 1; ; try++ {
		before := heap()
		c = newRowCache(1 << 40)
		for i := range rows {
			c.put(fmt.Sprintf("document-%08d", i), lobwriter.Row{Generation: 1})
		}
		ratio := float64(c.bytes) / float64(heap()-before)
		t.Logf("%d bytes a row by the heap, ratio %.2f", (heap()-before)/rows, ratio)
		if ratio >= 0.95 && ratio <= 1.25 {
			break
		}
		// What tests before this one have left behind may be freed meanwhile.
		if try == 5 {
			t.Fatalf("the cache says %.2f of what it takes", ratio)
		}
	}
	c.shrink(1000)
	if c.bytes > 1000 || len(c.rows) != c.recent.Len() {
		t.Errorf("%d bytes, %d rows, %d in order", c.bytes, len(c.rows), c.recent.Len())
	}
	runtime.KeepAlive(&c)
}
