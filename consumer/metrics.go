package consumer

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lobsink/lobsink/lobwriter"
)

// Metrics are the consumer's metrics. A nil *Metrics counts nothing. No label
// grows with documents or members.
type Metrics struct {
	messages    prometheus.Counter
	bytes       prometheus.Counter
	redelivered prometheus.Counter
	fragments   *prometheus.CounterVec // by answer
	deadLetters *prometheus.CounterVec
	claims      prometheus.Counter
	takeover    prometheus.Histogram
	members     prometheus.Gauge
	doubts      *prometheus.CounterVec
	open        *prometheus.GaugeVec
	buffered    *prometheus.GaugeVec
	oldest      *prometheus.GaugeVec
	owned       *prometheus.GaugeVec
	paused      *prometheus.GaugeVec
	checkpoint  *prometheus.GaugeVec
	*lagMetrics
}

// NewMetrics registers the consumer's metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "lobsink", Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "lobsink", Name: name, Help: help}, labels)
	}
	gauges := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "lobsink", Name: name, Help: help}, []string{"partition"})
	}
	m := &Metrics{
		messages:    counter("messages_received_total", "Messages received from the stream."),
		bytes:       counter("received_bytes_total", "Payload bytes received from the stream."),
		redelivered: counter("redeliveries_total", "Messages that were delivered more than once."),
		fragments:   counters("groups_total", "Groups flushed, by the answer of the database.", "answer"),
		deadLetters: counters("dead_letters_total", "Dead letters confirmed, by reason.", "reason"),
		claims:      counter("claims_total", "Partitions claimed."),
		takeover: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "lobsink", Name: "takeover_seconds",
			Help:    "From the end of a lease that another member let run out to the claim of its partition.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
			// As the client library recommends.
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}),
		members: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "lobsink", Name: "members", Help: "Members that share the partitions, as this one knows them, itself included.",
		}),
		doubts:     counters("doubts_total", "Turns dropped because ordered reading was in doubt, by reason.", "reason"),
		open:       gauges("open_documents", "Documents with fragments in memory."),
		buffered:   gauges("buffered_bytes", "Memory used by fragments and rows held."),
		oldest:     gauges("oldest_buffer_age_seconds", "Age of the oldest fragment held."),
		owned:      gauges("partition_owned", "1 if this member owns the partition."),
		paused:     gauges("partition_paused", "1 if this member owns the partition and an operator has paused it."),
		checkpoint: gauges("checkpoint_sequence", "Stream sequence up to which everything of the partition is stored."),
		lagMetrics: newLagMetrics(reg),
	}
	if reg != nil {
		reg.MustRegister(m.messages, m.bytes, m.redelivered, m.fragments, m.deadLetters, m.claims, m.takeover, m.members, m.doubts,
			m.open, m.buffered, m.oldest, m.owned, m.paused, m.checkpoint)
	}
	return m
}

func (m *Metrics) received(batch []Received) {
	if m == nil {
		return
	}
	bytes := 0
	for i := range batch {
		bytes += len(batch[i].Fragment.Data)
		if batch[i].Deliveries > 1 {
			m.redelivered.Inc()
		}
	}
	m.messages.Add(float64(len(batch)))
	m.bytes.Add(float64(bytes))
}

func (m *Metrics) flushed(r lobwriter.Receipt) {
	if m == nil {
		return
	}
	for _, a := range r.Answers {
		m.fragments.WithLabelValues(a.Status.String()).Inc()
	}
}

// lettered counts by the codes that lobsink itself gives; the database's own are
// counted as one, for there are too many.
func (m *Metrics) lettered(code string) {
	if m == nil {
		return
	}
	switch code {
	case CodeBadKey, CodeBadHeader, CodeTooLarge, CodeInvalidUTF8, CodeNUL, CodeLate, CodeQuarantined:
	default:
		code = "database"
	}
	m.deadLetters.WithLabelValues(code).Inc()
}

// claimed counts a claim. ended is when the lease of another member ended; zero:
// the partition was free, or ours.
func (m *Metrics) claimed(now, ended time.Time) {
	if m == nil {
		return
	}
	m.claims.Inc()
	if !ended.IsZero() {
		m.takeover.Observe(max(0, now.Sub(ended).Seconds()))
	}
}

// shared notes how many members there are.
func (m *Metrics) shared(members int) {
	if m != nil {
		m.members.Set(float64(members))
	}
}

func (m *Metrics) doubt(why Doubt) {
	if m != nil && why != "" {
		m.doubts.WithLabelValues(string(why)).Inc()
	}
}

// gauges are the metrics of one partition, looked up once: they are set at every
// event. A nil *gauges sets nothing.
type gauges struct {
	open, buffered, oldest, owned, paused, checkpoint prometheus.Gauge
	lag, retention                                    prometheus.Gauge
}

func (m *Metrics) partition(i int) *gauges {
	if m == nil {
		return nil
	}
	of := func(v *prometheus.GaugeVec) prometheus.Gauge { return v.WithLabelValues(strconv.Itoa(i)) }
	return &gauges{of(m.open), of(m.buffered), of(m.oldest), of(m.owned), of(m.paused), of(m.checkpoint), of(m.lag), of(m.retention)}
}

func (g *gauges) holds(p *Partition) {
	if g == nil {
		return
	}
	owned, paused := 0.0, 0.0
	if p.Owning() {
		owned = 1
	}
	if p.Owning() && p.paused {
		paused = 1
	}
	g.owned.Set(owned)
	g.paused.Set(paused)
	if owned == 0 && !p.wanted() {
		g.elsewhere()
	}
	g.open.Set(float64(p.batch.Documents()))
	g.buffered.Set(float64(p.Bytes()))
	g.oldest.Set(p.batch.Age(time.Now()).Seconds())
	g.checkpoint.Set(float64(p.fence.Checkpoint.Seq))
}

// clear tells that nothing is owned and held any more.
func (g *gauges) clear() {
	if g == nil {
		return
	}
	for _, gauge := range []prometheus.Gauge{g.owned, g.paused, g.open, g.buffered, g.oldest} {
		gauge.Set(0)
	}
	g.elsewhere()
}
