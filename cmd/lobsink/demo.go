package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/mattn/go-isatty"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/demo"
	"github.com/lobsink/lobsink/internal/embednats"
	"github.com/lobsink/lobsink/internal/publish"
	"github.com/lobsink/lobsink/lobwriter"
)

// The demo has a stream and tables of its own, so that it may run beside a real
// deployment.
const (
	demoStream = "LOBSINK_DEMO"
	demoRoot   = "lobsink-demo"
	demoTables = "lobsink_demo_"
)

func (a *app) demoCommand() *cobra.Command {
	out := newOutput()
	d := &demonstration{app: a}
	var noXML bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Publish, store, read back and compare, all in one",
		Long: `Publishes real XML documents and generated report rows, interleaved over many
documents, stores them, reads every document back, and says whether each byte is
where it belongs.

Without --nats and --store everything happens in a temporary folder, with a NATS
server and a SQLite file of its own; no port is opened. With them it uses the
stream ` + demoStream + ` and tables ` + demoTables + `*, which it removes at the end.
Files that are not UTF-8, or have U+0000, are left out: no database takes them.

The exit code is 0 only if everything is exact.`,
		Example: `  lobsink demo
  lobsink demo --documents 1000 --fragments 200000
  lobsink demo --xml ./reports --keep ./demo-data
  lobsink demo --nats nats://127.0.0.1:4222 --store postgres://lobsink@db/docs -o json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if noXML && len(d.xml) > 0 {
				return usage("--no-xml and --xml contradict each other")
			}
			d.o.Bundle = !noXML && len(d.xml) == 0
			return d.run(cmd.Context(), out)
		},
	}
	f := cmd.Flags()
	f.IntVar(&d.o.Documents, "documents", 200, "`number` of generated documents")
	f.IntVar(&d.o.Fragments, "fragments", 20000, "`number` of generated fragments, over all documents")
	f.IntVar(&d.o.Size, "size", 200, "`bytes` of a generated fragment")
	f.Uint64Var(&d.o.Seed, "seed", 1, "`number` that decides what is generated and in which order it is published")
	f.StringArrayVar(&d.xml, "xml", nil, "publish this `file` or folder in place of the XML that comes with lobsink")
	f.BoolVar(&noXML, "no-xml", false, "publish generated rows only")
	f.StringVar(&d.keep, "keep", "", "keep streams and database in this `folder`")
	a.flags.add(f, "partitions", "max_age", "chunk_bytes", "memory")
	out.addFlag(cmd)
	return cmd
}

// demonstration is one run of the command.
type demonstration struct {
	*app
	o    demo.Options
	xml  []string // files and folders
	keep string

	cfg      *Config
	stream   jetstream.Stream
	workload *demo.Workload
	// ours tells that the database is in the demo's own folder.
	ours bool
}

func (d *demonstration) run(ctx context.Context, out *output) error {
	clean, err := d.prepare()
	if err != nil {
		return err
	}
	defer clean()
	log := d.logger(d.cfg)
	if !d.given("log_level") {
		d.cfg.LogLevel = slog.LevelError // the result is what matters
		log = d.logger(d.cfg)
	}
	s, err := d.open(ctx, log)
	if err != nil {
		return err
	}
	defer s.close()
	took, err := d.perform(ctx, s, log)
	if err != nil && ctx.Err() != nil {
		err = failed("stopped before everything was stored")
	}
	if err == nil {
		err = d.judge(ctx, out, took)
	}
	if d.keep == "" {
		err = errors.Join(err, d.remove(context.WithoutCancel(ctx), s))
	}
	return err
}

// demoMaxAge is how long a fragment of the demo may wait, unless somebody says
// otherwise.
const demoMaxAge = 5 * time.Second

// judge reads everything back, prints what is there, and fails if it is not what
// was published.
func (d *demonstration) judge(ctx context.Context, out *output, took time.Duration) error {
	reader, err := openReader(ctx, d.cfg)
	if err != nil {
		return err
	}
	v, err := d.workload.Check(ctx, reader)
	if err = errors.Join(err, reader.Close()); err != nil {
		return err
	}
	if err := d.print(out, v, took); err != nil {
		return err
	}
	if !v.Exact() {
		return failed("what was read back is not what was published")
	}
	return nil
}

// prepare decides where everything is. The function that it returns removes the
// temporary folder.
func (d *demonstration) prepare() (clean func(), err error) {
	if d.cfg, err = d.load(); err != nil {
		return nil, err
	}
	if d.o.Files, err = filesBelow(d.xml); err != nil {
		return nil, err
	}
	if !d.given("max_age") {
		// Documents are complete within seconds; on a slow machine they should
		// not be written in more pieces than on a fast one.
		d.cfg.MaxAge = demoMaxAge
	}
	d.o.Room = int(min(d.cfg.MaxFragmentBytes, math.MaxInt32))
	if err := d.o.Validate(); err != nil {
		return nil, withCode(exitUsage, err)
	}
	clean = func() {}
	dir := d.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "lobsink-demo-"); err != nil {
			return nil, failed("the demo needs a folder: %w", err)
		}
		clean = func() { os.RemoveAll(dir) }
	}
	d.ours = d.cfg.defaultStore()
	d.cfg.DataDir = dir
	if d.ours {
		d.cfg.Store = "sqlite:" + filepath.Join(dir, "lobsink.db")
	}
	d.cfg.Stream, d.cfg.Root, d.cfg.tables = demoStream, demoRoot, demoTables
	return clean, nil
}

// open makes the connections, removes what a demo that was killed left, and
// makes streams and tables.
func (d *demonstration) open(ctx context.Context, log *slog.Logger) (_ *service, err error) {
	s := &service{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if d.cfg.Embedded() {
		// The folder is temporary: nothing is gained by waiting for the disk.
		s.nats, err = embednats.Start(ctx, embednats.Options{Dir: filepath.Join(d.cfg.DataDir, "nats"), Log: log})
		if err == nil {
			s.conn, err = s.nats.Connect(lastingOptions(log)...)
		}
	} else {
		s.conn, err = dialNATS(d.cfg, publishingOptions()...)
	}
	if err != nil {
		return nil, err
	}
	// What a demo that was killed has left goes first.
	if err := d.remove(ctx, s); err != nil {
		return nil, err
	}
	if err := d.makeStreams(ctx, s); err != nil {
		return nil, err
	}
	if _, _, err := setupStore(ctx, d.cfg); err != nil {
		return nil, err
	}
	s.store, err = openStore(ctx, d.cfg)
	return s, err
}

func (d *demonstration) makeStreams(ctx context.Context, s *service) error {
	js, err := openJetStream(s.conn, d.cfg)
	if err != nil {
		return err
	}
	spec := consumer.StreamSpec{Name: demoStream, Root: demoRoot, Partitions: d.cfg.DefaultPartitions(), Replicas: 1}
	if _, err := consumer.CreateStream(ctx, js, spec); err != nil {
		return jetStreamError(err)
	}
	if _, err := consumer.CreateDeadStream(ctx, js, demoStream, 1); err != nil {
		return jetStreamError(err)
	}
	d.stream, err = js.Stream(ctx, demoStream)
	return jetStreamError(err)
}

// makeDocuments makes what is to be published, in fragments that the stream
// takes.
func (d *demonstration) makeDocuments(s *service) (err error) {
	d.o.Room = min(d.o.Room, publish.Room(s.conn, d.stream.CachedInfo()))
	if d.workload, err = demo.New(d.o); err != nil {
		return failed("%w", err)
	}
	for _, file := range d.workload.LeftOut {
		fmt.Fprintf(d.stderr, "lobsink: left out: %s\n", printable(file))
	}
	return nil
}

func removeStreams(ctx context.Context, js jetstream.JetStream) error {
	for _, name := range []string{demoStream, consumer.DeadStream(demoStream)} {
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return jetStreamError(err)
		}
	}
	return nil
}

// remove removes streams and tables of the demo, where they are.
func (d *demonstration) remove(ctx context.Context, s *service) error {
	js, err := openJetStream(s.conn, d.cfg)
	if err != nil {
		return err
	}
	return errors.Join(removeStreams(ctx, js), removeStore(ctx, d.cfg))
}

// perform publishes and stores at the same time.
func (d *demonstration) perform(ctx context.Context, s *service, log *slog.Logger) (took time.Duration, err error) {
	if err := d.makeDocuments(s); err != nil {
		return 0, err
	}
	reader, err := openReader(ctx, d.cfg)
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop, ended := make(chan struct{}), make(chan error, 1)
	began := time.Now()
	go func() {
		ended <- consumer.Run(running, stop, s.consumer(d.cfg, log, prometheus.NewRegistry(), consumer.NewStatus()))
	}()
	err = d.publish(ctx, s, log)
	if err == nil {
		err = d.stored(ctx, reader, ended)
	}
	took = time.Since(began)
	close(stop)
	return took, errors.Join(err, <-ended)
}

func (d *demonstration) publish(ctx context.Context, s *service, log *slog.Logger) error {
	bar := d.progressBar(int64(d.workload.Fragments()), "publishing")
	defer func() { _ = bar.Finish() }()
	p, err := publish.New(s.conn, d.stream, publish.Options{
		Published: func(publish.Fragment, uint64) { _ = bar.Add(1) },
		Log:       log,
	})
	if err != nil {
		return err
	}
	if err := d.workload.Each(func(f publish.Fragment) error { return p.Publish(ctx, f) }); err != nil {
		return err
	}
	return p.Flush(ctx)
}

// stalledAfter is how long nothing may become stored before the demo gives up
// waiting and says what is there.
const stalledAfter = time.Minute

// stored waits until the database has as many fragments as were published.
func (d *demonstration) stored(ctx context.Context, r lobwriter.Reader, ended chan error) error {
	total := int64(d.workload.Fragments())
	bar := d.progressBar(total, "storing")
	defer func() { _ = bar.Finish() }()
	last, since := int64(-1), time.Now()
	for {
		n := int64(0)
		_, err := eachDocument(ctx, r, lobwriter.Query{}, func(doc lobwriter.Document) error {
			n += doc.Fragments
			return nil
		})
		if err != nil {
			return err
		}
		_ = bar.Set64(n)
		if n != last {
			last, since = n, time.Now()
		}
		if n >= total || time.Since(since) > stalledAfter {
			return nil
		}
		select {
		case err := <-ended:
			ended <- nil
			return errors.Join(errors.New("the consumer ended early"), err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (d *demonstration) print(out *output, v demo.Verdict, took time.Duration) error {
	perWrite := 0.0
	if v.LOBWrites > 0 {
		perWrite = float64(v.Fragments) / float64(v.LOBWrites)
	}
	if out.json() {
		return d.printJSON(struct {
			Documents  int     `json:"documents"`
			Fragments  int64   `json:"fragments"`
			Bytes      int64   `json:"bytes"`
			LOBWrites  int64   `json:"lob_writes"`
			Missing    int     `json:"missing"`
			Duplicates int     `json:"duplicates"`
			OutOfOrder int     `json:"out_of_order"`
			Differing  int     `json:"differing"`
			Exact      bool    `json:"exact"`
			Seconds    float64 `json:"seconds"`
		}{v.Documents, v.Fragments, v.Bytes, v.LOBWrites, v.Missing, v.Duplicates, v.OutOfOrder, v.Differing, v.Exact(), took.Seconds()})
	}
	verdict := "exact: every byte of every document is where it belongs"
	if !v.Exact() {
		verdict = fmt.Sprintf("NOT exact: %d missing, %d duplicates, %d out of order, %s differ",
			v.Missing, v.Duplicates, v.OutOfOrder, plural(v.Differing, "document"))
	}
	if err := d.printFields([]field{
		{"documents", humanize.Comma(int64(v.Documents))},
		{"fragments", humanize.Comma(v.Fragments)},
		{"bytes", humanize.Comma(v.Bytes)},
		{"LOB writes", fmt.Sprintf("%s (%.1f fragments each)", humanize.Comma(v.LOBWrites), perWrite)},
		{"fragments/s", humanize.Comma(int64(float64(v.Fragments) / took.Seconds()))},
		{"verdict", verdict},
	}); err != nil {
		return err
	}
	if d.keep != "" && d.ours {
		_, err := fmt.Fprintf(d.stdout, "\nKept. Look at it with any SQLite client:\n  sqlite3 %s \"select doc_key, state, bytes from lobsink_demo_texts limit 5\"\n",
			filepath.Join(d.keep, "lobsink.db"))
		return err
	}
	return nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
