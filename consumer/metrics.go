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
	doubts      *prometheus.CounterVec
	open        *prometheus.GaugeVec
	buffered    *prometheus.GaugeVec
	oldest      *prometheus.GaugeVec
	owned       *prometheus.GaugeVec
	checkpoint  *prometheus.GaugeVec
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
		doubts:      counters("doubts_total", "Turns dropped because ordered reading was in doubt, by reason.", "reason"),
		open:        gauges("open_documents", "Documents with fragments in memory."),
		buffered:    gauges("buffered_bytes", "Memory used by fragments and rows held."),
		oldest:      gauges("oldest_buffer_age_seconds", "Age of the oldest fragment held."),
		owned:       gauges("partition_owned", "1 if this member owns the partition."),
		checkpoint:  gauges("checkpoint_sequence", "Stream sequence up to which everything of the partition is stored."),
	}
	if reg != nil {
		reg.MustRegister(m.messages, m.bytes, m.redelivered, m.fragments, m.deadLetters, m.claims, m.doubts,
			m.open, m.buffered, m.oldest, m.owned, m.checkpoint)
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

func (m *Metrics) flushed(_ *lobwriter.Flush, r lobwriter.Receipt) {
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

func (m *Metrics) claimed() {
	if m != nil {
		m.claims.Inc()
	}
}

func (m *Metrics) doubt(why Doubt) {
	if m != nil && why != "" {
		m.doubts.WithLabelValues(string(why)).Inc()
	}
}

func (m *Metrics) holds(partition int, p *Partition) {
	if m == nil {
		return
	}
	label := strconv.Itoa(partition)
	owned := 0.0
	if p.Owning() {
		owned = 1
	}
	m.owned.WithLabelValues(label).Set(owned)
	m.open.WithLabelValues(label).Set(float64(p.batch.Documents()))
	m.buffered.WithLabelValues(label).Set(float64(p.Bytes()))
	m.oldest.WithLabelValues(label).Set(p.batch.Age(time.Now()).Seconds())
	m.checkpoint.WithLabelValues(label).Set(float64(p.fence.Checkpoint.Seq))
}
