package consumer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lobsink/lobsink/lobwriter"
)

// lagMetrics say how far the database is behind the publishers, and how much room
// that leaves in the stream.
type lagMetrics struct {
	lag       *prometheus.GaugeVec
	retention *prometheus.GaugeVec
	latency   prometheus.Histogram
	headroom  *prometheus.GaugeVec // by limit
	limit     prometheus.Gauge
	// maxAge is the stream's own, in nanoseconds; 0: it keeps messages for ever.
	maxAge atomic.Int64
}

func newLagMetrics(reg prometheus.Registerer) *lagMetrics {
	gauges := func(label, name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "lobsink", Name: name, Help: help}, []string{label})
	}
	m := &lagMetrics{
		lag: gauges("partition", "lag_messages", "Messages of the partition in the stream above its checkpoint, as its owner last knew; 0 where another member owns it."),
		retention: gauges("partition", "retention_headroom_ratio",
			"Part of the stream's max_age that is left to the oldest message not stored; 1: all is stored, or messages are kept for ever."),
		// The growth factor and the limit of the native buckets are those that
		// the client library recommends.
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "lobsink", Name: "end_to_end_latency_seconds",
			Help:                        "From the publishing of a group's oldest fragment, by the clock of NATS, to its commit; once for each group appended.",
			Buckets:                     []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 10800},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}),
		headroom: gauges("limit", "stream_headroom_ratio", "Part of a limit of the stream that is free: bytes or messages. No series where there is no limit."),
		limit: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "lobsink", Name: "buffer_limit_bytes", Help: "Budget for what all partitions of this member hold.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.lag, m.retention, m.latency, m.headroom, m.limit)
	}
	return m
}

// budgeted tells what all partitions may hold together.
func (m *Metrics) budgeted(bytes int64) {
	if m != nil {
		m.limit.Set(float64(bytes))
	}
}

// streamed tells how full the stream is.
func (m *Metrics) streamed(info *jetstream.StreamInfo) {
	if m == nil {
		return
	}
	m.maxAge.Store(int64(info.Config.MaxAge))
	free := func(limit string, most int64, used uint64) {
		if most > 0 {
			m.headroom.WithLabelValues(limit).Set(1 - float64(used)/float64(most))
		} else {
			m.headroom.DeleteLabelValues(limit)
		}
	}
	free("bytes", info.Config.MaxBytes, info.State.Bytes)
	free("messages", info.Config.MaxMsgs, info.State.Msgs)
}

// committed observes how long the groups took that a receipt says were appended.
// Groups whose first reply was lost are already there, and are not observed: they
// may be another claim's.
func (m *Metrics) committed(at time.Time, works []*work, r lobwriter.Receipt) {
	if m == nil || len(works) != len(r.Answers) {
		return
	}
	for i, w := range works {
		if r.Answers[i].Status == lobwriter.Appended {
			// The clocks of NATS and of this machine may differ.
			m.latency.Observe(max(at.Sub(time.Unix(0, w.group.Fragments[0].Time)), 0).Seconds())
		}
	}
}

// measure asks the server what of the partition it has not delivered yet. It does
// so with each renewal, also while nothing is read for want of memory.
func (o *owner) measure() {
	pull := o.pull
	if pull == nil || o.metrics == nil {
		return
	}
	o.start(func(ctx context.Context) {
		call, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		info, err := pull.consumer.Info(call)
		if err != nil {
			return // who reads finds out why
		}
		o.answer(ctx, func(now time.Time) {
			if pull == o.pull && o.part.Owning() {
				o.gauges.behind(now, o.part, info.NumPending, o.metrics.maxAge.Load())
			}
		})
	})
}

// behind sets the lag: what the server has not delivered, and what was received
// and is not stored.
func (g *gauges) behind(now time.Time, p *Partition, pending uint64, maxAge int64) {
	g.lag.Set(float64(pending) + float64(len(p.received)))
	oldest := p.fence.Checkpoint.Time // no message not stored is older
	if len(p.received) > 0 {
		oldest = p.received[0].Time
	}
	left := 1.0
	if maxAge > 0 && oldest != 0 && pending+uint64(len(p.received)) > 0 {
		left = 1 - float64(now.UnixNano()-oldest)/float64(maxAge)
	}
	g.retention.Set(left)
}

// elsewhere tells that the lag is another member's to report.
func (g *gauges) elsewhere() {
	if g != nil {
		g.lag.Set(0)
		g.retention.Set(1)
	}
}
