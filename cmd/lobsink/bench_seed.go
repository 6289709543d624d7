package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/internal/bench"
)

func (a *app) benchSeed() *cobra.Command {
	out := newOutput()
	var s bench.Seed
	var chart string
	cmd := &cobra.Command{
		Use:   "seed",
		Short: "Append 35 characters at a time, in three ways",
		Long: `Repeats the experiment of the report that lobsink was made for: one document, one
transaction, about 35 characters at a time.

  append   rewrites the whole value for each fragment
  write    one statement and one round trip for each fragment
  lobsink  the flush path: from the first fragment to the commit; up to 100,000
           appends the median of five

Times include the commit. The ratio is to lobsink at the same number. A variant
that takes longer than --limit is cut, and its time extrapolated. The figures of
the report, on Oracle 9.2, stand beside those of this database.`,
		Example: `  lobsink bench seed
  lobsink bench seed --store postgres://lobsink@db/docs --appends 10000 --chart seed.svg`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.runSeed(cmd.Context(), &s, out, chart)
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&s.Appends, "appends", []int{10_000, 1_000_000}, "`numbers` of appends, separated by commas")
	s.Limit = 2 * time.Minute
	f.Var((*duration)(&s.Limit), "limit", "how long one variant may take before it is cut")
	f.StringVar(&chart, "chart", "", "draw the times into this `file`, in the format of its ending, such as .svg")
	out.addFlag(cmd)
	return cmd
}

func (a *app) runSeed(ctx context.Context, s *bench.Seed, out *output, chart string) (err error) {
	for _, n := range s.Appends {
		if n < 1 {
			return usage("%d appends: there must be at least one", n)
		}
	}
	cfg, _, release, err := a.prepareBench(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	raw, err := openRawSQL(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.close()) }()
	// The file has to be there before anybody looks for tables in it.
	if _, _, err := setupStore(ctx, cfg); err != nil {
		return err
	}
	s.Tables, s.Statements, s.Instruments, s.Driver = tables{cfg}, raw.statements, raw.instruments, cfg.driver()
	s.Progress = func(variant string, appends int) { a.note("%s, %s appends", variant, humanize.Comma(int64(appends))) }
	r, err := s.Run(ctx)
	if err != nil {
		return err
	}
	if chart != "" {
		if err := r.Chart(chart); err != nil {
			return failed("the chart cannot be drawn: %w", err)
		}
	}
	if out.json() {
		return a.printJSON(r)
	}
	return a.printSeed(r)
}

func (a *app) printSeed(r *bench.SeedResult) error {
	t := newTable("STORE", "APPENDS", "VARIANT", "SECONDS", "RATIO", "CONSISTENT GETS", "CURRENT GETS", "BYTES WRITTEN")
	add := func(store string, v *bench.Variant) {
		seconds := fmt.Sprintf("%.4g", v.Seconds)
		if v.Extrapolated {
			seconds = "about " + seconds
		}
		ratio := strconv.FormatFloat(v.Ratio, 'f', 1, 64)
		t.AppendRow([]any{store, v.Appends, v.Name, seconds, ratio, orDash(v.ConsistentGets), orDash(v.CurrentGets), orDash(v.BytesWritten)})
	}
	for _, v := range bench.Report() {
		for _, ours := range r.Variants {
			if v.Appends == ours.Appends && v.Name == ours.Name {
				add("report", &v)
			}
		}
	}
	for i := range r.Variants {
		add(r.Store, &r.Variants[i])
	}
	if err := a.printTable(t); err != nil {
		return err
	}
	for _, v := range r.Variants {
		if v.Extrapolated {
			if _, err := fmt.Fprintf(a.stdout, "%s of %d was cut: %s\n", v.Name, v.Appends, *v.Model); err != nil {
				return err
			}
		}
	}
	return nil
}
