package consumer

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// series returns the series of a metric.
func series(t *testing.T, g prometheus.Gatherer, name string) []*dto.Metric {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
	if i < 0 {
		return nil
	}
	return families[i].GetMetric()
}

// sum adds up the series of a gauge or a counter.
func sum(t *testing.T, g prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	for _, m := range series(t, g, name) {
		sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return sum
}

// TestLag: while the database takes nothing, the lag is all that was published,
// also what was not even read for want of memory; afterwards it is nothing.
func TestLag(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	reg := prometheus.NewRegistry()
	r.cfg.Metrics = NewMetrics(reg)
	r.patient()
	r.smallMessages(64 << 10)
	r.cfg.Memory = 2 * 2 * (64<<10 + messageOverhead)
	store := r.gate()
	r.start()
	r.stored("first", r.publish("first", []byte("<a/>"), nil))

	store.set(func(_ context.Context, op string, _ int) error {
		if op == "flush" {
			return errAway
		}
		return nil
	}, nil)
	const published = 40
	for i := range published {
		r.publish([]string{"one", "two", "three"}[i%3], []byte(strings.Repeat("x", 32<<10)), nil)
	}
	r.eventually("a lag of all that was published", func() bool { return sum(t, reg, "lobsink_lag_messages") == published })
	if sum(t, reg, "lobsink_messages_received_total") == published+1 {
		t.Error("everything was read, but memory should have been short")
	}
	store.set(nil, nil)
	r.exact()
	r.eventually("no lag", func() bool { return sum(t, reg, "lobsink_lag_messages") == 0 })
	r.halt()
}

// TestEndToEndLatency: each group that is appended is observed once, with the age
// of its oldest fragment.
func TestEndToEndLatency(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	reg := prometheus.NewRegistry()
	r.cfg.Metrics = NewMetrics(reg)
	r.patient()
	before := time.Now()
	for range 3 {
		r.publish("waits", []byte("<a/>"), nil)
	}
	const age = 300 * time.Millisecond
	time.Sleep(age)
	r.start()
	r.exact()
	most := time.Since(before)
	r.halt()
	groups := uint64(0)
	for _, m := range series(t, reg, "lobsink_groups_total") {
		if m.GetLabel()[0].GetValue() == "appended" {
			groups = uint64(m.GetCounter().GetValue())
		}
	}
	h := series(t, reg, "lobsink_end_to_end_latency_seconds")[0].GetHistogram()
	if h.GetSampleCount() != groups || groups == 0 {
		t.Errorf("%d observations of %d groups", h.GetSampleCount(), groups)
	}
	if s := h.GetSampleSum(); s < age.Seconds() || s > float64(groups)*most.Seconds() {
		t.Errorf("%g s in all, want %s at least and %s for each of %d at most", s, age, most, groups)
	}
	if len(h.GetBucket()) == 0 || h.GetSchema() == 0 {
		t.Error("classic and native buckets are wanted")
	}
}

// TestHeadroom: a limit of the stream that nears has a number; no limit has none.
func TestHeadroom(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	reg := prometheus.NewRegistry()
	r.cfg.Metrics = NewMetrics(reg)
	r.patient()
	r.start()
	r.exact() // one message, which says that all is stored
	const headroom = "lobsink_stream_headroom_ratio"
	if n := len(series(t, reg, headroom)); n != 0 {
		t.Errorf("%d series without a limit", n)
	}
	s, err := r.js.Stream(t.Context(), r.spec.Name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgs = 4
	if _, err := r.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r.eventually("three of four free", func() bool {
		m := series(t, reg, headroom)
		return len(m) == 1 && m[0].GetGauge().GetValue() == 0.75
	})
	r.halt()
}

// TestRetentionHeadroom: what is not stored nears the age at which the stream
// discards it.
func TestRetentionHeadroom(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.spec.Name, r.spec.Root, r.spec.MaxAge = "AGED", "aged", time.Hour
	if _, err := CreateStream(t.Context(), r.js, r.spec); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateDeadStream(t.Context(), r.js, r.spec.Name, 1); err != nil {
		t.Fatal(err)
	}
	r.cfg.Stream, r.cfg.Root = r.spec.Name, r.spec.Root
	reg := prometheus.NewRegistry()
	r.cfg.Metrics = NewMetrics(reg)
	r.patient()
	store := r.gate()
	store.set(func(_ context.Context, op string, _ int) error {
		if op == "flush" {
			return errAway
		}
		return nil
	}, nil)
	r.start()
	r.publish("k", []byte("<a/>"), nil)
	ratio := func() float64 { return sum(t, reg, "lobsink_retention_headroom_ratio") }
	r.eventually("less than all of an hour", func() bool { return ratio() > 0.9 && ratio() < 1 })
	store.set(nil, nil)
	r.eventually("everything stored", func() bool { return ratio() == 1 })
	r.halt()
}

// TestLagOfAnother: a member that has given a partition up reports no lag of it,
// or it would count twice.
func TestLagOfAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	reg := prometheus.NewRegistry()
	r.cfg.Metrics = NewMetrics(reg)
	away := func(_ context.Context, op string, _ int) error {
		if op == "flush" {
			return errAway
		}
		return nil
	}
	r.patient()
	r.gate().set(away, nil)
	r.start()
	lag := func() float64 { return sum(t, reg, "lobsink_lag_messages") }
	for _, key := range append(keysOf(0, 2, 1), keysOf(1, 2, 1)...) {
		r.publish(key, []byte("<a/>"), nil)
	}
	r.eventually("a lag in both partitions", func() bool { return lag() == 2 })
	second := r.another(t)
	second.cfg.Metrics, second.cfg.Store = NewMetrics(nil), r.store
	second.start()
	r.cfg.Store.(*gated).set(nil, nil)
	r.eventually("one partition each", func() bool { return sum(t, reg, "lobsink_partition_owned") == 1 })
	r.cfg.Store.(*gated).set(away, nil)
	for _, key := range append(keysOf(0, 2, 1), keysOf(1, 2, 1)...) {
		r.publish(key, []byte("<b/>"), nil)
	}
	r.eventually("a lag in the partition that is left", func() bool { return lag() == 1 })
	r.cfg.Store.(*gated).set(nil, nil)
	r.exact()
	second.halt()
	r.halt()
}

// TestPausedMetric: a pause is seen on the metrics, and its end.
func TestPausedMetric(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	reg := prometheus.NewRegistry()
	r.cfg.Metrics = NewMetrics(reg)
	r.patient()
	r.cfg.Control = NewControl()
	paused := func() float64 { return sum(t, reg, "lobsink_partition_paused") }
	r.start()
	r.eventually("both owned", func() bool { return sum(t, reg, "lobsink_partition_owned") == 2 })
	r.cfg.Control.Pause(1)
	r.eventually("one paused", func() bool { return paused() == 1 })
	r.cfg.Control.Resume()
	r.eventually("none paused", func() bool { return paused() == 0 })
	r.halt()
}
