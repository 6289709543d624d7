package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/bench"
	"github.com/lobsink/lobsink/internal/demo"
	"github.com/lobsink/lobsink/internal/publish"
)

// pipeline is one run of `bench pipeline`.
type pipeline struct {
	*app
	bench.Pipeline
	size    size
	payload string
	chart   string
	profile string
	series  string
	limits  bool

	cfg *Config
	log *slog.Logger
	bar *progressbar.ProgressBar
}

func (a *app) benchPipeline() *cobra.Command {
	out := newOutput()
	p := &pipeline{app: a, size: 200, payload: "letters"}
	p.RateFor = 15 * time.Second
	cmd := &cobra.Command{
		Use:   "pipeline",
		Short: "Store a filled stream, and compare with what the machine can do",
		Long: `Fills a stream, and stores it: the clock runs from the start to the last commit.
In the same run it measures what the same without a store reaches (reading), and
what the same flushes without a stream reach (writing); the efficiency is what was
reached, divided by what the two one after the other would. What nats.go reaches
alone, with a program that does nothing with the messages, stands beside it.

A second phase publishes at a steady rate, and measures the time from publishing
to the commit. Then every document is read back and compared, byte by byte.

Without --nats it starts a server of its own, as another process, with file
storage and the default sync interval. The exit code is 1 if a byte is wrong.`,
		Example: `  lobsink bench pipeline
  lobsink bench pipeline --store postgres://lobsink@db/docs -o json
  lobsink bench pipeline --fragments 1000000 --documents 100000 --size 1KiB --rate 0`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context(), out) },
	}
	f, w := cmd.Flags(), &p.Workload
	f.IntVar(&w.Fragments, "fragments", 200_000, "`number` of fragments")
	f.IntVar(&w.Documents, "documents", 500, "`number` of documents")
	f.Var(&p.size, "size", "size of a fragment")
	f.IntVar(&w.Burst, "burst", 1, "`number` of fragments of a document that are published one after the other")
	f.Uint64Var(&w.Seed, "seed", 1, "`number` that decides text and order")
	f.Var(&choice{&p.payload, []string{"letters", "xml"}}, "payload", "random letters, which cannot be compressed much, or real XML")
	f.IntVar(&p.Rate, "rate", 5000, "fragments per `second` of the second phase; 0: none")
	f.Var((*duration)(&p.RateFor), "rate-for", "how long the second phase lasts")
	f.StringVar(&p.chart, "chart", "", "draw the rates into this `file`, in the format of its ending, such as .svg")
	f.BoolVar(&p.limits, "limits", true, "measure reading alone and writing alone too")
	f.StringVar(&p.series, "series", "", "write how many fragments were stored after how many seconds into this `file`, as CSV")
	f.StringVar(&p.profile, "cpu-profile", "", "write the processor profile of the first phase into this `file`, for go tool pprof")
	a.flags.add(f, "partitions", "max_age", "chunk_bytes", "memory", "max_fragment_bytes")
	out.addFlag(cmd)
	return cmd
}

func (p *pipeline) run(ctx context.Context, out *output) (err error) {
	p.Workload.Prefix, p.Workload.Size = "document-", int(p.size)
	if p.payload == "xml" {
		if p.Workload.Text, err = bundledXML(); err != nil {
			return err
		}
	}
	if err := p.Workload.Validate(); err != nil {
		return withCode(exitUsage, err)
	}
	if p.Rate < 0 {
		return usage("--rate is %d; it must not be negative", p.Rate)
	}
	var release func() error
	if p.cfg, p.log, release, err = p.prepareBench(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	raw, err := openRawSQL(p.cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.close()) }()
	nc, disconnect, err := p.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disconnect()) }()
	if p.env["GOMEMLIMIT"] == "" {
		debug.SetMemoryLimit(p.cfg.Memory + aboveBudget) // as `lobsink run` does
	}
	s := &service{conn: nc}
	p.Config = s.consumer(p.cfg, p.log, prometheus.NewRegistry(), consumer.NewStatus())
	p.Tables, p.Instruments, p.Driver = tables{p.cfg}, raw.instruments, p.cfg.driver()
	p.Partitions = p.cfg.DefaultPartitions()
	p.Progress = p.show()
	p.NoLimits = !p.limits
	for name, w := range map[string]*io.Writer{p.profile: &p.Profile, p.series: &p.Series} {
		if name == "" {
			continue
		}
		file, createErr := os.Create(name)
		if createErr != nil {
			return failed("a result cannot be written: %w", createErr)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		*w = file
	}
	r, err := p.Run(ctx)
	if err != nil {
		return jetStreamError(err)
	}
	return p.report(r, out)
}

// connect connects to NATS, to a server of its own if none was named.
func (p *pipeline) connect() (*nats.Conn, func() error, error) {
	stop := func() error { return nil }
	if p.cfg.Embedded() {
		srv, err := startBenchServer(p.cfg.DataDir)
		if err != nil {
			return nil, nil, err
		}
		p.cfg.NATS, p.ServerPID, stop = srv.url, srv.pid(), srv.stop
		p.Sync = new(benchSync)
	}
	nc, err := dialNATS(p.cfg, publishingOptions()...)
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return nc, func() error { nc.Close(); return stop() }, nil
}

// show returns a function that shows progress on a terminal.
func (p *pipeline) show() func(step string, done, total int) {
	step := ""
	return func(now string, done, total int) {
		if now != step {
			p.bar, step = p.progressBar(int64(total), now), now
		}
		_ = p.bar.Set(done)
		if done == total {
			_ = p.bar.Finish()
		}
	}
}

func (p *pipeline) report(r *bench.Result, out *output) error {
	if p.chart != "" {
		if err := r.Chart(p.chart); err != nil {
			return failed("the chart cannot be drawn: %w", err)
		}
	}
	var err error
	if out.json() {
		err = p.printJSON(r)
	} else {
		err = p.print(r)
	}
	if err == nil && !r.Exact {
		err = failed("what was read back is not what was published")
	}
	return err
}

func (p *pipeline) print(r *bench.Result) error {
	number := func(v *float64, format string) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf(format, *v)
	}
	rate := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return humanize.Comma(int64(*v)) + " fragments/s"
	}
	fields := []field{
		{"store", r.Store},
		{"nats sync", orDash(r.Sync)},
		{"workload", fmt.Sprintf("%s fragments of %d bytes, %s documents, %s", humanize.Comma(int64(r.Fragments)), r.Size, humanize.Comma(int64(r.Documents)), plural(r.Partitions, "partition"))},
		{"stored", rate(r.FragmentsPerSecond)},
		{"read only", rate(r.ReadOnlyPerSecond)},
		{"write only", rate(r.WriteOnlyPerSecond)},
		{"nats.go alone", rate(r.NATSOnlyPerSecond)},
		{"efficiency", number(r.Efficiency, "%.2f")},
		{"written", number(r.BytesWrittenPerPayloadByte, "%.2f bytes per byte of text")},
		{"LOB writes", humanize.Comma(r.LOBWrites)},
		{"latency", fmt.Sprintf("p50 %s, p99 %s", number(r.P50, "%.0f ms"), number(r.P99, "%.0f ms"))},
	}
	for _, name := range slices.Sorted(maps.Keys(r.CPU)) {
		fields = append(fields, field{"CPU " + name, number(r.CPU[name], "%.2f us per fragment")})
	}
	if r.PeakRSS != nil {
		fields = append(fields, field{"peak memory", humanize.IBytes(uint64(*r.PeakRSS))})
	}
	verdict := "exact: every byte of every document is where it belongs"
	if !r.Exact {
		verdict = "NOT exact"
	}
	return p.printFields(append(fields, field{"verdict", verdict}))
}

// bundledXML returns the XML that comes with lobsink, one document after the
// other.
func bundledXML() ([]byte, error) {
	w, err := demo.New(demo.Options{Bundle: true, Size: demo.MinSize, Room: 1 << 20})
	if err != nil {
		return nil, err
	}
	parts := map[string][]byte{}
	err = w.Each(func(f publish.Fragment) error {
		parts[f.Key] = append(parts[f.Key], f.Data...)
		return nil
	})
	var all [][]byte
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		all = append(all, parts[key])
	}
	return bytes.Join(all, nil), err
}
