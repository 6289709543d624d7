package consumer

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// smallMessages limits the size of the stream's messages, and with it the least
// memory that a consumer needs.
func (r *rig) smallMessages(size int32) {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), r.spec.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgSize = size
	if _, err := r.js.UpdateStream(r.t.Context(), cfg); err != nil {
		r.t.Fatal(err)
	}
}

// TestLeastMemory: with as little memory as Run accepts, messages as large as
// the stream takes get through.
func TestLeastMemory(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	r := newRig(t, 2)
	r.smallMessages(size)
	r.cfg.Memory = 2*2*(size+messageOverhead) - 1
	r.start()
	if err := r.ends(10e9); err == nil || !strings.Contains(err.Error(), "raise memory") {
		t.Errorf("%v with too little memory", err)
	}
	r.cfg.Memory++
	r.cfg.ChunkBytes = 32767
	r.start()
	for i := range 16 {
		r.publish(strings.Repeat("k", 1+i%4), []byte(strings.Repeat("x", size-100)), nil)
	}
	r.exact()
	r.halt()
	r.acked()
}

// TestOneBusyPartition: one busy partition of eight uses the memory that the
// others do not need, however little there is: their waiting fetches reserve
// nothing of it.
func TestOneBusyPartition(t *testing.T) {
	t.Parallel()
	const size = 16 << 10
	r := newRig(t, 8)
	r.smallMessages(size)
	r.cfg.Memory = 2 * 8 * (size + messageOverhead) // guaranteed: 80 KiB
	r.cfg.MaxAge = time.Hour                        // only memory makes documents due
	r.cfg.ChunkBytes = 32767
	r.cfg.Metrics = NewMetrics(nil)
	r.start()
	time.Sleep(3 * r.cfg.fetchWait()) // every partition has a fetch that waits
	most, busy := 0.0, keysOf(0, 8, 100)
	for i := range 900 {
		r.publish(busy[i%len(busy)], []byte(strings.Repeat("x", 1000)), nil)
		if i%10 == 0 {
			most = max(most, r.buffered(0))
		}
	}
	if most < 576<<10 {
		t.Errorf("at most %.0f bytes held, while %d are there to be borrowed", most, r.cfg.Memory/2)
	}
	r.halt()
	r.cfg.MaxAge = time.Millisecond
	r.start()
	r.exact()
	r.halt()
	r.acked()
}

// keysOf returns n keys of a partition.
func keysOf(partition, partitions, n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprintf("key-%d", i); PartitionOf(key, partitions) == partition {
			keys = append(keys, key)
		}
	}
	return keys
}

// buffered reads the metric of the memory that a partition uses.
func (r *rig) buffered(partition int) float64 {
	r.t.Helper()
	var m dto.Metric
	if err := r.cfg.Metrics.buffered.WithLabelValues(strconv.Itoa(partition)).Write(&m); err != nil {
		r.t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

func TestBudget(t *testing.T) {
	t.Parallel()
	b := newBudget(160, 8)
	for i := range 8 {
		b.allowance(i, 0, true)
	}
	if got := b.allowance(3, 90, true); got != 90 {
		t.Errorf("the only busy partition may use %d, want its 10 and all of the shared 80", got)
	}
	if got := b.allowance(4, 0, true); got != 10 {
		t.Errorf("another may use %d, want its guaranteed 10", got)
	}
	if got := b.allowance(3, 90, false); got != 10 {
		t.Errorf("with failing flushes it may use %d, want 10", got)
	}
	b.release(3)
	if got := b.allowance(4, 0, true); got != 90 {
		t.Errorf("after the release another may use %d, want 90", got)
	}
}

// TestRaisedMessageSize: an operator raises the stream's largest message while
// lobsink runs with a budget for smaller ones. They are read all the same.
func TestRaisedMessageSize(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.patient()
	r.smallMessages(256 << 10)
	r.cfg.Memory = 2 << 20 // guaranteed: 1 MiB, the most of one fetch
	r.cfg.ChunkBytes = 32767
	r.start()
	r.stored("k", r.publish("k", []byte("<a>"), nil))
	r.smallMessages(-1)
	for range 2 {
		r.publish("k", []byte(strings.Repeat("x", 1500<<10)), nil)
		r.publish("k", []byte("</a>"), nil)
	}
	r.exact()
	r.halt()
	if n := r.epoch(); n != 1 {
		t.Errorf("claimed %d times, want once", n)
	}
	r.acked()
}
