package bench

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestExtrapolate: a model that goes through the two measured points says what
// the rest takes.
func TestExtrapolate(t *testing.T) {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	for _, c := range []struct {
		name  string
		trial trial
		n     int
		want  float64
		model string
	}{
		{"linear", trial{took: seconds(2), half: seconds(1), cut: 100}, 1000, 20, "0.02 n s"},
		{"linear, uneven", trial{took: seconds(2), half: seconds(0.5), cut: 100}, 1000, 20, "0.02 n s"},
		{"quadratic", trial{took: seconds(4), half: seconds(1), cut: 100, quadratic: true}, 1000, 400, "n² s"},
		// 0.01 n + 0.0001 n²
		{"both", trial{took: seconds(2), half: seconds(0.75), cut: 100, quadratic: true}, 1000, 110, "0.01 n + 0.0001 n² s"},
		{"quadratic, but measured as linear", trial{took: seconds(2), half: seconds(1), cut: 100, quadratic: true}, 1000, 20, "0.02 n s"},
		{"steeper than quadratic", trial{took: seconds(4), half: seconds(0.5), cut: 100, quadratic: true}, 1000, 400, "n² s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, model := c.trial.extrapolate(c.n)
			if math.Abs(got-c.want) > c.want/1000 {
				t.Errorf("%v s, want %v", got, c.want)
			}
			if !strings.Contains(model, c.model) || !strings.Contains(model, "from 100 appends") {
				t.Errorf("model %q, want %q", model, c.model)
			}
		})
	}
}

// TestReport: the figures of the report make the ratios that it speaks of.
func TestReport(t *testing.T) {
	for _, v := range Report() {
		want := map[string]float64{VariantAppend: 20, VariantWrite: 5, VariantLobsink: 1}[v.Name]
		if v.Appends == 10_000 && math.Abs(v.Ratio-want) > 0.5 {
			t.Errorf("%s: ratio %.1f, want about %v", v.Name, v.Ratio, want)
		}
	}
}
