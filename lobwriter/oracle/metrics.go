package oracle

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what only this store knows: which instance did the work. The label
// is INSTANCE_NAME. A nil value counts nothing.
type metrics struct {
	writes, written, seconds, waits *prometheus.CounterVec
	open                            *prometheus.GaugeVec
	registerer                      prometheus.Registerer
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	if reg == nil {
		return nil, nil
	}
	label := []string{"db_instance"}
	counters := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "lobsink", Subsystem: "oracle", Name: name, Help: help}, label)
	}
	m := &metrics{
		registerer: reg,
		writes:     counters("lob_writes_total", "LOB writes, as the database counts them, by instance."),
		written:    counters("written_bytes_total", "Text that was appended to documents, by instance."),
		seconds:    counters("flush_seconds_total", "Time in which flushes waited for the database, by instance."),
		waits:      counters("writer_wait_seconds_total", "Time in which flushes waited for one of the sessions that may write LOBs, by the instance that then served them."),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "lobsink", Subsystem: "oracle", Name: "sessions",
			Help: "Open sessions, by instance."}, label),
	}
	var errs []error
	for _, c := range m.collectors() {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.writes, m.written, m.seconds, m.waits, m.open}
}

// unregister makes room for those of another store.
func (m *metrics) unregister() {
	if m != nil {
		for _, c := range m.collectors() {
			m.registerer.Unregister(c)
		}
	}
}

func (m *metrics) sessions(instance string, change float64) {
	if m != nil {
		m.open.WithLabelValues(instance).Add(change)
	}
}

func (m *metrics) flushed(instance string, writes, bytes int64, took time.Duration) {
	if m != nil {
		m.writes.WithLabelValues(instance).Add(float64(writes))
		m.written.WithLabelValues(instance).Add(float64(bytes))
		m.seconds.WithLabelValues(instance).Add(took.Seconds())
	}
}

// waited counts the wait for a session. Without one, no instance is to blame.
func (m *metrics) waited(instance string, took time.Duration) {
	if m != nil && instance != "" {
		m.waits.WithLabelValues(instance).Add(took.Seconds())
	}
}
