package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// Tables are those of the benchmark in a database.
type Tables interface {
	// Setup makes the tables.
	Setup(ctx context.Context) error
	// Remove drops them; that there are none is no error.
	Remove(ctx context.Context) error
	Open(ctx context.Context) (lobwriter.Store, error)
	OpenReader(ctx context.Context) (lobwriter.Reader, error)
	// Prefix is what their names begin with.
	Prefix() string
}

// Pipeline measures a consumer from a filled stream to the last commit, and then
// the time from publishing to the commit at a steady rate.
type Pipeline struct {
	Workload Workload
	// Rate is the fragments per second of the second phase, which lasts RateFor.
	// 0 leaves it out.
	Rate    int
	RateFor time.Duration

	// Config is that of the consumer. Its Store is set by Run.
	Config      consumer.Config
	Partitions  int
	Tables      Tables
	Instruments Instruments
	// Driver is the name of the store.
	Driver string

	// Sync is how the NATS server writes back, as people say it; nil: unknown.
	Sync *string
	// ServerPID is the process of the NATS server; 0: not on this machine.
	ServerPID int

	// NoLimits leaves out what reading and writing alone reach.
	NoLimits bool
	// Series takes how many fragments were stored after how many seconds, as CSV,
	// a line for each flush of the first phase; may be nil.
	Series io.Writer
	// Profile takes the processor profile of the first phase; may be nil.
	Profile io.Writer
	// Progress is told how many fragments of a step are done; may be nil.
	Progress func(step string, done, total int)
}

// Result is what Pipeline measured. What is not known is nil.
type Result struct {
	Store      string  `json:"store"`
	Sync       *string `json:"nats_sync"`
	Fragments  int     `json:"fragments"`
	Documents  int     `json:"documents"`
	Size       int     `json:"size"`
	Partitions int     `json:"partitions"`

	// FragmentsPerSecond is from start to last commit.
	FragmentsPerSecond *float64 `json:"fragments_per_second"`
	// ReadOnlyPerSecond is the same stream, with a store that stores nothing.
	ReadOnlyPerSecond *float64 `json:"read_only_per_second"`
	// WriteOnlyPerSecond is the same flushes, prepared in memory.
	WriteOnlyPerSecond *float64 `json:"write_only_per_second"`
	// Efficiency is FragmentsPerSecond divided by what reading and writing one
	// after the other would reach: 1 / (1/read + 1/write).
	Efficiency *float64 `json:"efficiency"`

	// NATSOnlyPerSecond is the same stream read with nats.go alone, by a program
	// that does nothing with it: the limit of server and client.
	NATSOnlyPerSecond *float64 `json:"nats_only_per_second"`

	BytesWrittenPerPayloadByte *float64 `json:"bytes_written_per_payload_byte"`
	LOBWrites                  int64    `json:"lob_writes"`
	// P50 and P99 are of publishing to commit, in milliseconds.
	P50 *float64 `json:"p50_ms"`
	P99 *float64 `json:"p99_ms"`
	// CPU is the processor time in microseconds per fragment, by process. The
	// consumer is lobsink; with SQLite the database is part of it.
	CPU map[string]*float64 `json:"cpu_us_per_fragment"`
	// PeakRSS is of the process that consumes, without what publishing took.
	PeakRSS *int64 `json:"peak_rss_bytes"`
	// Exact says that every document has the bytes that were published.
	Exact bool `json:"exact"`
}

// Run makes stream and tables, measures, and removes them again, also those that
// a killed run has left.
func (p *Pipeline) Run(ctx context.Context) (_ *Result, err error) {
	if err := p.Workload.Validate(); err != nil {
		return nil, err
	}
	if p.Progress == nil {
		p.Progress = func(string, int, int) {}
	}
	s, err := p.stream()
	if err != nil {
		return nil, err
	}
	clean := func(ctx context.Context) error { return errors.Join(s.remove(ctx), p.Tables.Remove(ctx)) }
	if err := clean(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, clean(context.WithoutCancel(ctx))) }()
	if err := errors.Join(s.create(ctx), p.Tables.Setup(ctx)); err != nil {
		return nil, err
	}
	r := &Result{
		Store: p.Driver, Sync: p.Sync, Partitions: p.Partitions,
		Fragments: p.Workload.Fragments, Documents: p.Workload.Documents, Size: p.Workload.Size,
	}
	return r, p.measure(ctx, s, r)
}

func (p *Pipeline) measure(ctx context.Context, s *stream, r *Result) error {
	pub, err := newPublisher(p.Config.NATS, p.Config.Root, p.Workload.Size)
	if err != nil {
		return err
	}
	if err := pub.fill(ctx, &p.Workload, p.steps("publishing")); err != nil {
		return err
	}
	rec, err := p.backlog(ctx, r)
	if err = errors.Join(err, s.clear(ctx)); err != nil {
		return err
	}
	r.Exact, err = p.compare(ctx, &p.Workload)
	if err != nil {
		return err
	}
	if !p.NoLimits {
		if err := p.limits(ctx, s, rec, r); err != nil {
			return err
		}
	}
	return p.steady(ctx, s, pub, r)
}

// limits measures what the steps of the first phase reach alone. Its tables are
// new ones.
func (p *Pipeline) limits(ctx context.Context, s *stream, rec *recorder, r *Result) error {
	download, err := s.download(ctx, p.Workload.Fragments)
	if err = errors.Join(err, s.clear(ctx)); err != nil {
		return err
	}
	read, err := p.readOnly(ctx, rec.Limits())
	if err = errors.Join(err, s.clear(ctx)); err != nil {
		return err
	}
	write, err := p.writeOnly(ctx, rec.flushes)
	if err != nil {
		return err
	}
	n := float64(p.Workload.Fragments)
	r.NATSOnlyPerSecond, r.ReadOnlyPerSecond, r.WriteOnlyPerSecond = perSecond(n, download), perSecond(n, read), perSecond(n, write)
	if read > 0 && write > 0 {
		e := *r.FragmentsPerSecond * (read + write).Seconds() / n
		r.Efficiency = &e
	}
	return nil
}

func perSecond(n float64, d time.Duration) *float64 {
	if d <= 0 {
		return nil
	}
	v := n / d.Seconds()
	return &v
}

// steps returns a function that counts the fragments of a step.
func (p *Pipeline) steps(name string) func(int) {
	done := 0
	return func(n int) {
		done += n
		p.Progress(name, done, p.Workload.Fragments)
	}
}

// backlog is the first phase: the filled stream is stored.
func (p *Pipeline) backlog(ctx context.Context, r *Result) (*recorder, error) {
	store, err := p.Tables.Open(ctx)
	if err != nil {
		return nil, err
	}
	rec := record(store, int64(p.Workload.Fragments))
	rec.keep = !p.NoLimits
	before, err := p.Instruments.Read(ctx, p.Tables.Prefix())
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	debug.FreeOSMemory() // of publishing
	resetPeak()
	cpu := p.cpu(ctx)
	if p.Profile != nil {
		if err := pprof.StartCPUProfile(p.Profile); err != nil {
			return nil, errors.Join(err, store.Close())
		}
	}
	began := time.Now()
	run := p.start(ctx, rec)
	err = p.await(ctx, run, rec, "storing")
	if p.Profile != nil {
		pprof.StopCPUProfile()
	}
	if err == nil {
		r.FragmentsPerSecond = perSecond(float64(p.Workload.Fragments), rec.at.Sub(began))
		r.CPU = p.cpu(ctx).since(cpu, p.Workload.Fragments)
		if n, ok := peakMemory(); ok {
			r.PeakRSS = &n
		}
	}
	// What the database still has to write belongs to what it was given.
	if err = errors.Join(err, run.end(), store.Close()); err != nil {
		return nil, err
	}
	r.LOBWrites = rec.writes
	if p.Series != nil {
		for _, m := range rec.series {
			if _, err := fmt.Fprintf(p.Series, "%.6f,%d\n", m.at.Sub(began).Seconds(), m.total); err != nil {
				return nil, err
			}
		}
	}
	after, err := p.Instruments.Read(ctx, p.Tables.Prefix())
	if n := after.since(before).BytesWritten; err == nil && n != nil {
		v := float64(*n) / float64(rec.bytes)
		r.BytesWrittenPerPayloadByte = &v
	}
	return rec, err
}

// steady is the second phase: fragments are published at a steady rate, to a new
// stream with new tables.
func (p *Pipeline) steady(ctx context.Context, s *stream, pub *publisher, r *Result) (err error) {
	n := int(float64(p.Rate) * p.RateFor.Seconds())
	if n == 0 {
		return nil
	}
	err = errors.Join(s.remove(ctx), s.create(ctx), p.Tables.Remove(ctx), p.Tables.Setup(ctx))
	if err != nil {
		return err
	}
	w := p.Workload
	w.Prefix, w.Fragments, w.Documents = "steady-", n, min(w.Documents, n)
	store, err := p.Tables.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	rec := record(store, int64(n))
	run := p.start(ctx, rec)
	err = run.ready(ctx, rec, p.Partitions)
	if err == nil {
		err = pub.trickle(ctx, &w, p.Rate, rec.published)
	}
	if err == nil {
		err = p.await(ctx, run, rec, "storing")
	}
	if err = errors.Join(err, run.end()); err != nil {
		return err
	}
	slices.Sort(rec.latencies)
	r.P50, r.P99 = milliseconds(percentile(rec.latencies, 0.50)), milliseconds(percentile(rec.latencies, 0.99))
	exact, err := p.compare(ctx, &w)
	r.Exact = r.Exact && exact
	return err
}

func milliseconds(d time.Duration) *float64 {
	v := float64(d) / float64(time.Millisecond)
	return &v
}

// running is a consumer that runs.
type running struct {
	stop  chan struct{}
	ended chan struct{}
	err   error // of the consumer, once ended is closed
}

func (p *Pipeline) start(ctx context.Context, s lobwriter.Store) *running {
	cfg := p.Config
	cfg.Store = s
	cfg.Member.ID = consumer.NewID()
	r := &running{stop: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = consumer.Run(ctx, r.stop, cfg)
	}()
	return r
}

// end stops the consumer and waits for it.
func (r *running) end() error {
	close(r.stop)
	<-r.ended
	return r.err
}

var errEnded = errors.New("the consumer ended before everything was stored")

// ready waits until all partitions are claimed.
func (r *running) ready(ctx context.Context, rec *recorder, partitions int) error {
	for end := time.Now().Add(maxStall); time.Now().Before(end); {
		if _, claims := rec.progress(); claims >= partitions {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-r.ended:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("the partitions are not claimed")
}

// await waits until all that a recorder wants is stored.
func (p *Pipeline) await(ctx context.Context, run *running, rec *recorder, step string) error {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	last, since := int64(-1), time.Now()
	for {
		select {
		case <-rec.reached:
			return nil
		case <-run.ended:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		n, _ := rec.progress()
		p.Progress(step, int(n), int(rec.wanted))
		if n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) > maxStall {
			return fmt.Errorf("%d of %d fragments are stored, and for %v nothing was: the log says why with --log-level info", n, rec.wanted, maxStall)
		}
	}
}

// usage is the processor time of each process.
type usage map[string]time.Duration

func (p *Pipeline) cpu(ctx context.Context) usage {
	u := usage{}
	add := func(name string, pid int) {
		if d, ok := cpuTime(pid); ok {
			u[name] += d
		}
	}
	add("lobsink", os.Getpid())
	if p.ServerPID != 0 {
		add("nats", p.ServerPID)
	}
	pids, err := p.Instruments.Processes(ctx)
	if err != nil {
		return u // unknown: a measurement does not fail for it
	}
	for _, pid := range pids {
		add(p.Driver, pid)
	}
	return u
}

// since returns the microseconds per fragment since before.
func (u usage) since(before usage, fragments int) map[string]*float64 {
	all := map[string]*float64{"lobsink": nil, "nats": nil}
	for name, d := range u {
		v := float64(d-before[name]) / float64(time.Microsecond) / float64(fragments)
		all[name] = &v
	}
	return all
}
