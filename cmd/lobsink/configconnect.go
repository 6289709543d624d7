package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// checkTimeout is how long one check may wait for an answer.
const checkTimeout = 10 * time.Second

// connect asks NATS and the database whether they are as the configuration says.
func (f *findings) connect(ctx context.Context, cfg *Config) {
	stream := f.nats(ctx, cfg)
	f.store(ctx, cfg, stream)
}

// nats checks the NATS server and returns the stream; nil if there is none.
func (f *findings) nats(ctx context.Context, cfg *Config) *lobwriter.Stream {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	nc, err := dialNATS(cfg)
	if err != nil {
		if cfg.Embedded() {
			f.ok("nats", "none at %s now: lobsink run serves it there", cfg.NATSURL())
			return nil
		}
		f.fail("nats", err)
		return nil
	}
	defer nc.Close()
	rtt, err := nc.RTT()
	if err != nil {
		f.fail("nats", err)
		return nil
	}
	f.ok("nats", "%s, nats-server %s, %s for an answer", nc.ConnectedUrlRedacted(), nc.ConnectedServerVersion(), rtt.Round(10*time.Microsecond))
	if nc.MaxPayload() < cfg.MaxFragmentBytes {
		f.ok("max_payload", "%s: the server takes no larger messages, so no larger fragments (max_fragment_bytes is %s)", bytesText(nc.MaxPayload()), bytesText(cfg.MaxFragmentBytes))
	}
	js, err := openJetStream(nc, cfg)
	if err != nil {
		f.fail("jetstream", err)
		return nil
	}
	account, err := js.AccountInfo(ctx)
	if err != nil {
		f.fail("jetstream", jetStreamError(err))
		return nil
	}
	f.ok("jetstream", "%s, %s stored", plural(account.Streams, "stream"), humanize.IBytes(account.Store))
	return f.streams(ctx, cfg, js)
}

func (f *findings) streams(ctx context.Context, cfg *Config, js jetstream.JetStream) *lobwriter.Stream {
	const setup = "run: lobsink setup"
	dead := consumer.DeadStream(cfg.Stream)
	if _, err := js.Stream(ctx, dead); err != nil {
		f.fail("dead letters", misconfigured("stream %s: %w; %s", dead, err, setup))
	} else {
		f.ok("dead letters", "stream %s is there", dead)
	}
	s, err := js.Stream(ctx, cfg.Stream)
	if err != nil {
		f.fail("stream", misconfigured("stream %s: %w; %s", cfg.Stream, err, setup))
		return nil
	}
	info := s.CachedInfo()
	layout, warnings, err := consumer.DescribeStream(info)
	if err != nil {
		f.fail("stream", misconfigured("stream %s: %w", cfg.Stream, err))
		return nil
	}
	switch {
	case layout.Root != cfg.Root:
		f.fail("stream", misconfigured("the subjects of stream %s begin with %q, the configuration says %q: set root to %q", cfg.Stream, layout.Root, cfg.Root, layout.Root))
	case cfg.Partitions > 0 && cfg.Partitions != layout.Partitions:
		f.fail("stream", misconfigured("stream %s has %s, the configuration says %d: set partitions to %d", cfg.Stream, plural(layout.Partitions, "partition"), cfg.Partitions, layout.Partitions))
	default:
		f.ok("stream", "%s: %s, %s, %d messages", cfg.Stream, describeLayout(layout), plural(max(info.Config.Replicas, 1), "replica"), info.State.Msgs)
	}
	for _, w := range warnings {
		f.warn("stream", "%s", w)
	}
	if need := memoryNeeded(layout.Partitions, min(cfg.MaxFragmentBytes, js.Conn().MaxPayload())); cfg.Memory < need {
		f.fail("memory", misconfigured("memory is %s; for %s it must be at least %s: raise memory", bytesText(cfg.Memory), plural(layout.Partitions, "partition"), bytesText(need)))
	}
	return &lobwriter.Stream{Name: cfg.Stream, Created: info.Created.UnixNano(), Partitions: layout.Partitions}
}

// store checks the database, and that it serves the stream.
func (f *findings) store(ctx context.Context, cfg *Config, stream *lobwriter.Stream) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	r, err := openReader(ctx, cfg)
	if err != nil {
		if cfg.sqlite() && errors.Is(err, lobwriter.ErrNotFound) {
			f.ok("store", "no database yet: lobsink run makes it")
			return
		}
		f.fail("store", err)
		return
	}
	defer func() { _ = r.Close() }() // it has only read
	b, err := r.Binding(ctx)
	switch {
	case errors.Is(err, lobwriter.ErrNotFound):
		f.ok("store", "%s: the tables are there, no stream was stored yet", driverText(cfg))
		return
	case err != nil:
		f.fail("store", err)
		return
	case stream == nil:
		f.ok("store", "%s: database %s, life %d of stream %s", driverText(cfg), b.DatabaseID, b.Life, b.Name)
		return
	}
	if err := b.Serves(*stream); err != nil {
		f.fail("store", err)
		return
	}
	if b.Created != stream.Created {
		f.fail("store", misconfigured("the database was fed from a stream %s that was created at %s, the one at the server was created at %s: lobsink run stops and says what to do", b.Name, timestamp(b.Created), timestamp(stream.Created)))
		return
	}
	f.ok("store", "%s: database %s, life %d of stream %s", driverText(cfg), b.DatabaseID, b.Life, b.Name)
}

// driverText names the kind of database and where it is.
func driverText(cfg *Config) string {
	return fmt.Sprintf("%s (%s)", cfg.driver(), strings.TrimPrefix(redact(cfg.Store), "sqlite:"))
}
