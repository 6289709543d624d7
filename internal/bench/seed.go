package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The variants of the report's experiment.
const (
	// VariantAppend rewrites the whole value for each fragment.
	VariantAppend = "append"
	// VariantWrite is one statement and one round trip for each fragment.
	VariantWrite = "write"
	// VariantLobsink is the flush path.
	VariantLobsink = "lobsink"
)

// Seed is the experiment of the report: one document, one transaction, about 35
// characters at a time.
type Seed struct {
	// Appends are the numbers of fragments, each an experiment of its own.
	Appends []int
	// Limit is how long a variant may take before the rest is extrapolated.
	Limit time.Duration

	Tables      Tables
	Statements  Statements
	Instruments Instruments
	// Driver is the name of the store.
	Driver string

	// Progress is told which variant begins; may be nil.
	Progress func(variant string, appends int)
}

// SeedResult is what Seed measured.
type SeedResult struct {
	Store    string    `json:"store"`
	Variants []Variant `json:"variants"`
}

// Variant is one way to append so many fragments. What is not known is nil.
type Variant struct {
	Name    string `json:"name"`
	Appends int    `json:"appends"`
	// Seconds includes the commit.
	Seconds float64 `json:"seconds"`
	// Ratio is Seconds divided by those of lobsink at the same appends.
	Ratio float64 `json:"ratio"`
	// Extrapolated says that the variant was cut; Model then says how Seconds
	// was computed. The counters of a part are not those of the whole: they are
	// nil.
	Extrapolated   bool    `json:"extrapolated"`
	Model          *string `json:"model"`
	ConsistentGets *int64  `json:"consistent_gets"`
	CurrentGets    *int64  `json:"current_gets"`
	BytesWritten   *int64  `json:"bytes_written"`
}

// Report is what the report measured on Oracle 9.2.0.5. It used one buffer of
// 32,767 bytes where lobsink has its flush path. At 1,000,000 appends it has no
// counters.
func Report() []Variant {
	counted := func(name string, seconds float64, consistent, current int64) Variant {
		return Variant{Name: name, Appends: 10_000, Seconds: seconds, Ratio: seconds / 0.10, ConsistentGets: &consistent, CurrentGets: &current}
	}
	timed := func(name string, seconds float64) Variant {
		return Variant{Name: name, Appends: 1_000_000, Seconds: seconds, Ratio: seconds / 10}
	}
	return []Variant{
		counted(VariantAppend, 1.96, 20_087, 194_567),
		counted(VariantWrite, 0.48, 9_999, 74_343),
		counted(VariantLobsink, 0.10, 182, 2_485),
		timed(VariantAppend, 218), timed(VariantWrite, 72), timed(VariantLobsink, 10),
	}
}

// seedText is about what the report appended.
func seedText(n int) [][]byte {
	texts := make([][]byte, n)
	for i := range texts {
		texts[i] = fmt.Appendf(nil, "<row id=\"%07d\"><v>%07d</v></row>\n", i, i*7919%10_000_000)
	}
	return texts
}

// Run makes the tables, measures every variant, and removes the tables again,
// also those that a killed run has left.
func (s *Seed) Run(ctx context.Context) (_ *SeedResult, err error) {
	if len(s.Appends) == 0 || slices.Min(s.Appends) < 1 {
		return nil, errors.New("there must be at least one append")
	}
	clean := func(ctx context.Context) error {
		return errors.Join(s.Statements.remove(ctx), s.Tables.Remove(ctx))
	}
	if err := clean(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, clean(context.WithoutCancel(ctx))) }()
	r := &SeedResult{Store: s.Driver}
	for _, n := range s.Appends {
		variants, err := s.compare(ctx, n)
		if err != nil {
			return nil, err
		}
		r.Variants = append(r.Variants, variants...)
	}
	return r, nil
}

// compare measures the variants with n appends.
func (s *Seed) compare(ctx context.Context, n int) ([]Variant, error) {
	texts := seedText(n)
	var all []Variant
	for _, v := range []struct {
		name string
		do   func(context.Context, [][]byte) (*trial, error)
	}{
		{VariantAppend, func(ctx context.Context, texts [][]byte) (*trial, error) {
			return s.naive(ctx, s.Statements.Append, texts)
		}},
		{VariantWrite, func(ctx context.Context, texts [][]byte) (*trial, error) {
			return s.naive(ctx, s.Statements.Write, texts)
		}},
		{VariantLobsink, s.flushPath},
	} {
		if s.Progress != nil {
			s.Progress(v.name, n)
		}
		t, err := v.do(ctx, texts)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		all = append(all, t.variant(v.name, n))
	}
	for i := range all {
		all[i].Ratio = all[i].Seconds / all[len(all)-1].Seconds
	}
	return all, nil
}

// trial is one variant as it was measured.
type trial struct {
	took     time.Duration
	counters Counters
	// cut is how many appends were done in took if not all were; 0: all were.
	cut int
	// half is how long the first half of them took.
	half time.Duration
	// quadratic tells that each append costs more than the one before.
	quadratic bool
}

func (t *trial) variant(name string, appends int) Variant {
	v := Variant{Name: name, Appends: appends, Seconds: t.took.Seconds()}
	if t.cut == 0 {
		v.ConsistentGets, v.CurrentGets, v.BytesWritten = t.counters.ConsistentGets, t.counters.CurrentGets, t.counters.BytesWritten
		return v
	}
	var model string
	v.Seconds, model = t.extrapolate(appends)
	v.Extrapolated, v.Model = true, &model
	return v
}

// extrapolate says how long n appends would take: a n + b n², through what was
// measured at the cut and at half of it.
func (t *trial) extrapolate(n int) (seconds float64, model string) {
	cut, took := float64(t.cut), t.took.Seconds()
	a, b := took/cut, 0.0
	if t.quadratic {
		b = max(0, 2*(took-2*t.half.Seconds())/(cut*cut))
		if a = took/cut - b*cut; a < 0 {
			a, b = 0, took/(cut*cut)
		}
	}
	x := float64(n)
	model = fmt.Sprintf("%.3g n s", a)
	if b > 0 {
		model = fmt.Sprintf("%.3g n + %.3g n² s", a, b)
	}
	return a*x + b*x*x, fmt.Sprintf("%s, from %d appends in %.3g s", model, t.cut, took)
}

// chunkBytes is the default of lobsink, which Seed does not change.
const chunkBytes = 32767

// timeLimit returns the limit of a variant; none given is 2 minutes.
func (s *Seed) timeLimit() time.Duration { return cmp.Or(s.Limit, 2*time.Minute) }
