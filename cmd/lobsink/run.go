package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/embednats"
	"github.com/lobsink/lobsink/internal/telemetry"
	"github.com/lobsink/lobsink/lobwriter"
)

func (a *app) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Store what is published, until told to stop",
		Long: `Reads the stream and stores every fragment in its document, exactly once and in
order. Waits for NATS and for the database as long as it takes.

Without --nats it serves NATS itself on --nats-listen, with its streams in the data
folder, every message on disk before its publisher is answered. Without
--store it writes a SQLite file there. Other programs may publish to it, read
from it, and query the file meanwhile.

The first SIGTERM or SIGINT flushes what is in memory and hands the partitions
over; the second one ends the process at once. Neither loses anything.`,
		Example: `  lobsink run
  lobsink run --nats nats://nats:4222 --store postgres://lobsink@db/docs
  lobsink run -c /etc/lobsink.yaml
  curl -s http://127.0.0.1:7070/readyz?verbose`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			return a.serve(cmd.Context(), cfg)
		},
	}
	a.flags.add(cmd.Flags(), runSettings...)
	return cmd
}

// runSettings are the settings of run beside those of all commands.
var runSettings = []string{
	"nats_listen", "root", "partitions", "max_age", "chunk_bytes", "memory", "max_fragment_bytes",
	"lease", "renew", "flush_timeout", "drain_timeout", "http", "http_config", "pprof",
	"oracle_services", "oracle_takeover", "oracle_writers",
}

// aboveBudget is what Go's soft memory limit allows beyond the budget of the
// consumer: connections, the runtime, the embedded server.
const aboveBudget = 32 << 20

// serve runs until ctx ends, which asks for an orderly end.
func (a *app) serve(ctx context.Context, cfg *Config) (err error) {
	log := a.logger(cfg)
	if a.env["GOMEMLIMIT"] == "" {
		debug.SetMemoryLimit(cfg.Memory + aboveBudget)
	}
	release, err := lockStore(ctx, cfg, log)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, release()) }()

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo())
	status := consumer.NewStatus()
	ready := &readiness{stop: ctx, status: status}
	stopHTTP, err := serveHTTP(ctx, cfg, log, registry, ready)
	if err != nil {
		return err
	}
	defer stopHTTP()
	defer notifySystemd(ctx, log, ready.checks, ready.alive)()

	s, err := openService(ctx, cfg, log, registry)
	if err != nil || s == nil {
		return err
	}
	defer s.close()
	ready.embedded.Store(s.nats)
	beats := newPulse(s.store, cfg.Lease)
	s.store = beats
	ready.pulse.Store(beats)
	running := s.consumer(cfg, log, registry, status)
	answering := &memberService{cfg: cfg, consumer: &running, control: running.Control, started: time.Now(), ready: ready.checks}
	stopAnswering, err := answering.serve(s.conn, log)
	if err != nil {
		return err
	}
	defer stopAnswering()
	err = consumer.Run(context.WithoutCancel(ctx), ctx.Done(), running)
	if err == nil {
		log.Info("stopped: everything read is stored and acknowledged")
	}
	return err
}

// service is what a consumer needs: a connection to NATS and a store.
type service struct {
	nats  *embednats.Server // nil where NATS is another process
	conn  *nats.Conn
	store lobwriter.Store
	// metrics of the store; nil: it has none.
	metrics *lobwriter.Metrics
}

// openService makes the connections. It waits for the database; nil and no error
// mean that ctx ended first.
func openService(ctx context.Context, cfg *Config, log *slog.Logger, reg prometheus.Registerer) (_ *service, err error) {
	s := &service{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if cfg.Embedded() {
		err = s.serveNATS(ctx, cfg, log)
	} else {
		s.conn, err = connectNATS(cfg, log)
	}
	if err != nil {
		return nil, err
	}
	if cfg.sqlite() {
		if _, _, err := setupStore(ctx, cfg); err != nil {
			return nil, err
		}
	}
	if cfg.oracle != nil {
		cfg.oracle.log, cfg.oracle.metrics = log, reg
	}
	for s.store, err = openStore(ctx, cfg); err != nil; s.store, err = openStore(ctx, cfg) {
		if k := lobwriter.KindOf(err); k != lobwriter.Transient && k != lobwriter.Space {
			return nil, err
		}
		log.Warn("waiting for the database", "err", redact(err.Error()))
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			s.close()
			return nil, nil
		}
	}
	s.metrics = lobwriter.NewMetrics(reg, cfg.driver())
	s.store = lobwriter.Instrument(s.store, s.metrics)
	return s, nil
}

// serveNATS starts the embedded server and makes the streams on it.
func (s *service) serveNATS(ctx context.Context, cfg *Config, log *slog.Logger) (err error) {
	s.nats, err = embednats.Start(ctx, embednats.Options{
		Dir: filepath.Join(cfg.DataDir, "nats"), Listen: cfg.NATSListen, SyncAlways: true, Log: log,
	})
	if errors.Is(err, syscall.EADDRINUSE) {
		return failed("cannot serve NATS: something listens at %s already; if that is a NATS server, use it with --nats %s, otherwise stop it or choose another --nats-listen", cfg.NATSURL(), cfg.NATSURL())
	}
	if err != nil {
		return err
	}
	if s.conn, err = s.nats.Connect(lastingOptions(log)...); err != nil {
		return err
	}
	js, err := openJetStream(s.conn, cfg)
	if err != nil {
		return err
	}
	spec := consumer.StreamSpec{Name: cfg.Stream, Root: cfg.Root, Partitions: cfg.DefaultPartitions(), Replicas: 1}
	if _, err := consumer.CreateStream(ctx, js, spec); err != nil {
		return err
	}
	if _, err := consumer.CreateDeadStream(ctx, js, cfg.Stream, 1); err != nil {
		return err
	}
	log.Info("serving NATS", "url", s.nats.ClientURL(), "dir", filepath.Join(cfg.DataDir, "nats"))
	return nil
}

// consumer returns the configuration of a consumer of the service.
func (s *service) consumer(cfg *Config, log *slog.Logger, reg prometheus.Registerer, status *consumer.Status) consumer.Config {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	c := consumer.Config{
		Store: s.store, NATS: s.conn, Domain: cfg.NATSDomain, Stream: cfg.Stream, Root: cfg.Root, Partitions: cfg.Partitions,
		Member: lobwriter.Member{ID: consumer.NewID(), Name: host, Version: version()},
		MaxAge: cfg.MaxAge, ChunkBytes: int(cfg.ChunkBytes), MaxFragment: int(cfg.MaxFragmentBytes), Memory: cfg.Memory - cfg.Memory/uncounted,
		Lease: cfg.Lease, Renew: cfg.Renew, FlushTimeout: cfg.FlushTimeout, DrainTimeout: cfg.DrainTimeout,
		Log: log, Metrics: consumer.NewMetrics(reg), Status: status, Control: consumer.NewControl(),
	}
	if s.metrics != nil {
		c.OnRetry = s.metrics.Retried
	}
	return c
}

func (s *service) close() {
	if s.store != nil {
		_ = s.store.Close() // everything is committed; there is nothing to lose
	}
	if s.conn != nil {
		s.conn.Close()
	}
	if s.nats != nil {
		s.nats.Shutdown()
	}
}

// readiness is what has to be well for a run to be ready.
type readiness struct {
	// stop ends when a stop was asked for: from then on nothing new is taken.
	stop     context.Context
	status   *consumer.Status
	embedded atomic.Pointer[embednats.Server] // nil: not started, or none
	pulse    atomic.Pointer[pulse]            // nil: not started
}

// alive says what hangs; nil: nothing does. Waiting for NATS or for the database
// is no hanging.
func (r *readiness) alive() error {
	p := r.pulse.Load()
	if p == nil {
		return nil
	}
	i := slices.IndexFunc(r.status.Checks(), func(c consumer.Check) bool { return c.Name == "nats" && c.Err != nil })
	return p.err(i < 0)
}

func (r *readiness) checks() []telemetry.Check {
	checks := []telemetry.Check{{Name: "draining"}}
	if r.stop.Err() != nil {
		checks[0].Err = errors.New("a stop was asked for")
	}
	if s := r.embedded.Load(); s != nil {
		checks = append(checks, telemetry.Check{Name: "embedded-nats", Err: s.Err()})
	}
	checks = append(checks, telemetry.Check{Name: "progress", Err: r.alive()})
	for _, c := range r.status.Checks() {
		checks = append(checks, telemetry.Check(c))
	}
	return checks
}

// serveHTTP serves metrics and health, and profiles if asked to, until the
// function that it returns is called.
func serveHTTP(ctx context.Context, cfg *Config, log *slog.Logger, reg *prometheus.Registry, ready *readiness) (stop func(), err error) {
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	stop = func() {
		cancel()
		wg.Wait()
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	start := func(what, addr, scheme string, serve func(net.Listener) error) error {
		l, err := telemetry.Listen(ctx, addr)
		if err != nil {
			return err
		}
		wg.Go(func() {
			if err := serve(l); err != nil {
				log.Error(what+" are not served any more", "err", err)
			}
		})
		log.Info("serving "+what, "url", scheme+l.Addr().String())
		return nil
	}
	if cfg.HTTP != "" {
		o := telemetry.Options{Metrics: reg, Health: telemetry.Health{Alive: ready.alive, Ready: ready.checks}, WebConfig: cfg.HTTPConfig}
		err = start("metrics and health", cfg.HTTP, "http://", func(l net.Listener) error { return telemetry.Serve(serving, l, o) })
	}
	if cfg.PProf != "" && err == nil {
		err = start("profiles", cfg.PProf, "http://", func(l net.Listener) error { return telemetry.ServeProfiles(serving, l) })
	}
	return stop, err
}

// buildInfo is the metric that says which build this is.
func buildInfo() prometheus.Collector {
	b := readBuild()
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "lobsink", Name: "build_info", Help: "Always 1; the labels say which build runs.",
	}, []string{"version", "goversion"})
	g.WithLabelValues(b.Version, b.Go).Set(1)
	return g
}
