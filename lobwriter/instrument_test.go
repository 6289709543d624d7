package lobwriter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// flushesOfAllKinds sends flushes with every result through a store, and makes
// every other call.
func flushesOfAllKinds(t *testing.T, m *lobwriter.Metrics) {
	t.Helper()
	var next error
	failing := lobtest.NewFailing(lobtest.NewMemory(limits), func(int, string) lobtest.Fault { return lobtest.Fault{Err: next} })
	s := lobwriter.Instrument(failing, m)
	o := lobtest.NewOwner(t, s, 1)
	o.Flush(t, o.Append("k", lobtest.Text(1, "<a>"), lobtest.Text(2, strings.Repeat("x", limits.ChunkBytes))), o.Append("l", lobtest.Final(3, "")))
	o.Flush(t, o.Append("k", lobtest.Text(4, "\x00")), o.Append("l", lobtest.Text(5, "x")), o.Append("n", lobtest.Text(6, "é")))
	for _, err := range []error{
		errDown, errSpace, errors.New("unknown"), &lobwriter.FencedError{},
		&lobwriter.Error{Kind: lobwriter.Fatal, Code: "ORA-00942", Err: errors.New("no table")},
		&lobwriter.Error{Kind: lobwriter.Invalid, Code: "key order-4711 is odd", Err: errors.New("odd")},
		&lobwriter.Error{Kind: lobwriter.Held, Err: errors.New("held")},
	} {
		next = err
		for _, call := range calls(t.Context(), s) {
			if call() != err {
				t.Errorf("%v was changed", err)
			}
		}
	}
	m.Retried("flush", 1, errDown, time.Second)
}

func gather(t *testing.T, reg *prometheus.Registry) []*dto.MetricFamily {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func TestInstrument(t *testing.T) {
	reg := prometheus.NewRegistry()
	flushesOfAllKinds(t, lobwriter.NewMetrics(reg, "memory"))
	want := `
# HELP lobsink_db_lob_writes_total Chunks that were appended to documents: LOB writes or chunk rows.
# TYPE lobsink_db_lob_writes_total counter
lobsink_db_lob_writes_total{driver="memory"} 3
# HELP lobsink_db_written_bytes_total Text that was appended to documents.
# TYPE lobsink_db_written_bytes_total counter
lobsink_db_written_bytes_total{driver="memory"} 32772
# HELP lobsink_errors_total Errors of the database and refused groups, by the database's own code and by kind.
# TYPE lobsink_errors_total counter
lobsink_errors_total{code="53100",driver="memory",kind="space"} 9
lobsink_errors_total{code="57P03",driver="memory",kind="transient"} 9
lobsink_errors_total{code="ORA-00942",driver="memory",kind="fatal"} 9
lobsink_errors_total{code="none",driver="memory",kind="fenced"} 9
lobsink_errors_total{code="none",driver="memory",kind="transient"} 9
lobsink_errors_total{code="other",driver="memory",kind="invalid"} 9
lobsink_errors_total{code="other",driver="memory",kind="rejected"} 1
# HELP lobsink_flushes_total Flushes, by result: stored, partly (a group was stale, closed or rejected), or the kind of error.
# TYPE lobsink_flushes_total counter
lobsink_flushes_total{driver="memory",result="fatal"} 1
lobsink_flushes_total{driver="memory",result="fenced"} 1
lobsink_flushes_total{driver="memory",result="held"} 1
lobsink_flushes_total{driver="memory",result="invalid"} 1
lobsink_flushes_total{driver="memory",result="partly"} 1
lobsink_flushes_total{driver="memory",result="space"} 1
lobsink_flushes_total{driver="memory",result="stored"} 1
lobsink_flushes_total{driver="memory",result="transient"} 2
# HELP lobsink_retries_total Database calls that were repeated, by call and kind of error.
# TYPE lobsink_retries_total counter
lobsink_retries_total{driver="memory",kind="transient",op="flush"} 1
`
	var got strings.Builder
	families := gather(t, reg)
	for _, f := range families {
		if f.GetType() == dto.MetricType_COUNTER {
			if _, err := expfmt.MetricFamilyToText(&got, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d := cmp.Diff(strings.TrimPrefix(want, "\n"), got.String()); d != "" {
		t.Error(d)
	}
	sums := map[string]string{}
	for _, f := range families {
		if h := f.GetMetric()[0].GetHistogram(); h != nil {
			sums[f.GetName()] = fmt.Sprint(h.GetSampleCount(), " ", h.GetSampleSum())
			if len(h.GetBucket()) == 0 || h.Schema == nil {
				t.Errorf("%s has not both kinds of buckets", f.GetName())
			}
		}
	}
	if sums["lobsink_flush_bytes"] != "2 32774" || sums["lobsink_flush_fragments"] != "2 6" || !strings.HasPrefix(sums["lobsink_flush_duration_seconds"], "9 ") {
		t.Errorf("histograms have count and sum %v", sums)
	}
}

func TestMetricsLint(t *testing.T) {
	reg := prometheus.NewRegistry()
	flushesOfAllKinds(t, lobwriter.NewMetrics(reg, "sqlite"))
	lobwriter.NewMetrics(reg, "postgres") // another driver may be there too
	problems, err := promlint.NewWithMetricFamilies(gather(t, reg)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	lobwriter.NewMetrics(nil, "nowhere").Retried("flush", 1, errDown, time.Second)
}

// TestMetricsSeries/O53: the number of series does not depend on what goes
// through the store.
func TestMetricsSeries(t *testing.T) {
	t.Run("O53", func(t *testing.T) {
		reg := prometheus.NewRegistry()
		s := lobwriter.Instrument(lobtest.NewMemory(limits), lobwriter.NewMetrics(reg, "memory"))
		o := lobtest.NewOwner(t, s, 1)
		series := func() int {
			n := 0
			for _, f := range gather(t, reg) {
				n += len(f.GetMetric())
			}
			return n
		}
		before := 0
		for seq := uint64(1); seq <= 100_000; {
			var groups []lobwriter.Group
			for range 1000 {
				groups = append(groups, o.Append(fmt.Sprint("key ", seq), lobtest.Text(seq, "x")))
				seq++
			}
			o.Flush(t, groups...)
			if before == 0 {
				before = series()
			}
		}
		if after := series(); after != before {
			t.Errorf("%d series became %d", before, after)
		}
	})
}
