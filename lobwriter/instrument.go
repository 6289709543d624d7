package lobwriter

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what a store does. No label grows with documents, members or
// time: codes are those of the database's manual.
type Metrics struct {
	flushes   *prometheus.CounterVec // by result
	duration  prometheus.Histogram
	bytes     prometheus.Histogram
	fragments prometheus.Histogram
	writes    prometheus.Counter
	written   prometheus.Counter
	errors    *prometheus.CounterVec // by code and kind
	retries   *prometheus.CounterVec // by op and kind
}

// NewMetrics registers the metrics of a store, labelled with its driver, such as
// "sqlite". A registry takes each driver once; nil registers nowhere.
func NewMetrics(reg prometheus.Registerer, driver string) *Metrics {
	m := &Metrics{
		flushes: counters("flushes_total",
			"Flushes, by result: stored, partly (a group was stale, closed or rejected), or the kind of error.", "result"),
		duration: histogram("flush_duration_seconds", "Duration of one attempt of a flush, failed ones included.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}),
		bytes:     histogram("flush_bytes", "Text of a flush that was answered.", prometheus.ExponentialBuckets(1<<10, 4, 8)),
		fragments: histogram("flush_fragments", "Fragments of a flush that was answered.", prometheus.ExponentialBuckets(1, 4, 9)),
		writes:    counter("db_lob_writes_total", "Chunks that were appended to documents: LOB writes or chunk rows."),
		written:   counter("db_written_bytes_total", "Text that was appended to documents."),
		errors:    counters("errors_total", "Errors of the database and refused groups, by the database's own code and by kind.", "code", "kind"),
		retries:   counters("retries_total", "Database calls that were repeated, by call and kind of error.", "op", "kind"),
	}
	if reg != nil {
		prometheus.WrapRegistererWith(prometheus.Labels{"driver": driver}, reg).
			MustRegister(m.flushes, m.duration, m.bytes, m.fragments, m.writes, m.written, m.errors, m.retries)
	}
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "lobsink", Name: name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "lobsink", Name: name, Help: help}, labels)
}

// histogram has classic buckets and native ones, whose growth factor and limit
// are those that the client library recommends.
func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "lobsink", Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	})
}

// Retried counts a repeated call. It is a RetryOptions.OnRetry.
func (m *Metrics) Retried(op string, _ int, err error, _ time.Duration) {
	m.retries.WithLabelValues(op, KindOf(err).String()).Inc()
}

// knownCode is what a code of a database looks like: an SQLSTATE, an Oracle
// error, a result code of SQLite.
var knownCode = regexp.MustCompile(`^([0-9A-Z]{5}|[A-Z]{2,4}-[0-9]{4,5}|SQLITE_[0-9A-Z_]{1,30})$`)

// codeLabel makes a label of a code, so that nothing else becomes one.
func codeLabel(code string) string {
	switch {
	case code == "":
		return "none"
	case knownCode.MatchString(code):
		return code
	}
	return "other"
}

// failed counts an error. A lease that somebody else holds is an answer, and a
// call that the caller gave up is nobody's error.
func (m *Metrics) failed(ctx context.Context, err error) {
	if err == nil || KindOf(err) == Held || errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return
	}
	m.errors.WithLabelValues(codeLabel(CodeOf(err)), KindOf(err).String()).Inc()
}

// flushed counts a flush and its answers.
func (m *Metrics) flushed(f *Flush, r Receipt, err error, took time.Duration) {
	m.duration.Observe(took.Seconds())
	if err != nil {
		m.flushes.WithLabelValues(KindOf(err).String()).Inc()
		return
	}
	result := "stored"
	bytes, fragments := int64(0), int64(0)
	for i, a := range r.Answers {
		g := &f.Groups[i]
		added := g.After.Bytes - g.Believed.Bytes
		bytes += added
		fragments += g.After.Fragments - g.Believed.Fragments
		switch a.Status {
		case Appended:
			m.writes.Add(float64(len(g.Chunks)))
			m.written.Add(float64(added))
		case Rejected:
			m.errors.WithLabelValues(codeLabel(a.Code), "rejected").Inc()
		}
		if a.Status != Appended && a.Status != AlreadyThere {
			result = "partly"
		}
	}
	m.flushes.WithLabelValues(result).Inc()
	m.bytes.Observe(float64(bytes))
	m.fragments.Observe(float64(fragments))
}

// Instrument returns a store that counts every call. Retry goes around it, so
// that each attempt counts.
func Instrument(s Store, m *Metrics) Store { return &instrumented{Store: s, m: m} }

type instrumented struct {
	Store
	m *Metrics
}

func (s *instrumented) Bind(ctx context.Context, st Stream) (Binding, error) {
	b, err := s.Store.Bind(ctx, st)
	s.m.failed(ctx, err)
	return b, err
}

func (s *instrumented) Attend(ctx context.Context, m Member, lease time.Duration) (Roster, error) {
	r, err := s.Store.Attend(ctx, m, lease)
	s.m.failed(ctx, err)
	return r, err
}

func (s *instrumented) Leave(ctx context.Context, id string) error {
	err := s.Store.Leave(ctx, id)
	s.m.failed(ctx, err)
	return err
}

func (s *instrumented) Claim(ctx context.Context, r ClaimRequest) (Claim, error) {
	c, err := s.Store.Claim(ctx, r)
	s.m.failed(ctx, err)
	return c, err
}

func (s *instrumented) Renew(ctx context.Context, c Claim, lease time.Duration) (Fence, error) {
	f, err := s.Store.Renew(ctx, c, lease)
	s.m.failed(ctx, err)
	return f, err
}

func (s *instrumented) Release(ctx context.Context, c Claim) error {
	err := s.Store.Release(ctx, c)
	s.m.failed(ctx, err)
	return err
}

func (s *instrumented) Fence(ctx context.Context, partition int) (Fence, error) {
	f, err := s.Store.Fence(ctx, partition)
	s.m.failed(ctx, err)
	return f, err
}

func (s *instrumented) Rows(ctx context.Context, partition int, keys []string) ([]Row, error) {
	rows, err := s.Store.Rows(ctx, partition, keys)
	s.m.failed(ctx, err)
	return rows, err
}

func (s *instrumented) Flush(ctx context.Context, f *Flush) (Receipt, error) {
	start := time.Now()
	r, err := s.Store.Flush(ctx, f)
	s.m.flushed(f, r, err, time.Since(start))
	s.m.failed(ctx, err)
	return r, err
}
