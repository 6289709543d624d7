package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/lobsink/lobsink/internal/embednats"
	"github.com/lobsink/lobsink/internal/pgtest"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/postgres"
)

// crew is a rig on PostgreSQL, with any number of members. Each has connections
// of its own to both servers, as a process has.
type crew struct {
	*rig
	server   *pgtest.Server
	database postgres.Options
	hands    []*hand
}

// hand is one member of a crew.
type hand struct {
	crew    *crew
	cfg     Config
	gate    *gated
	metrics *prometheus.Registry
	kill    context.CancelFunc
	stop    chan struct{}
	ended   chan error
}

func newCrew(t *testing.T, partitions int) *crew {
	t.Helper()
	return newCrewOn(t, partitions, embednats.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
}

func newCrewOn(t *testing.T, partitions int, options embednats.Options) *crew {
	t.Helper()
	c := &crew{rig: newRigOn(t, partitions, options)}
	// A busy machine does not let a lease run out, and one that runs out is soon
	// over.
	c.cfg.Lease, c.cfg.Renew, c.cfg.FlushTimeout = 4*time.Second, 1200*time.Millisecond, 3*time.Second
	c.server = pgtest.Start(t, pgtest.NoSync())
	c.database = postgres.Options{URL: c.server.CreateDatabase(t), Lease: c.cfg.Lease, FlushTimeout: c.cfg.FlushTimeout}
	if _, _, err := postgres.Setup(t.Context(), c.database); err != nil {
		t.Fatal(err)
	}
	reader, err := postgres.OpenReader(t.Context(), c.database)
	if err != nil {
		t.Fatal(err)
	}
	c.reader = reader
	t.Cleanup(func() {
		for _, h := range c.hands {
			h.dies()
		}
		reader.Close()
	})
	return c
}

// hire starts a member.
func (c *crew) hire(name string, change ...func(*Config)) *hand {
	t := c.t
	t.Helper()
	store, err := postgres.Open(t.Context(), c.database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	nc, err := c.srv.Connect(nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	h := &hand{crew: c, cfg: c.cfg, gate: &gated{Store: store}, metrics: prometheus.NewRegistry()}
	h.cfg.Store, h.cfg.NATS = h.gate, nc
	h.cfg.Member = lobwriter.Member{ID: NewID(), Name: name}
	h.cfg.Log = c.cfg.Log.With("member", name)
	h.cfg.Metrics, h.cfg.Status = NewMetrics(h.metrics), NewStatus()
	for _, f := range change {
		f(&h.cfg)
	}
	ctx, kill := context.WithCancel(context.WithoutCancel(t.Context()))
	h.kill, h.stop, h.ended = kill, make(chan struct{}), make(chan error, 1)
	go func() { h.ended <- Run(ctx, h.stop, h.cfg) }()
	c.hands = append(c.hands, h)
	return h
}

// dies ends the member as if its process had died: whatever it still says to the
// database is lost.
func (h *hand) dies() {
	h.gate.set(away, away)
	h.kill()
	select {
	case <-h.ended:
	case <-time.After(30 * time.Second):
		h.crew.t.Fatal("a member does not end")
	}
	h.ended <- nil // for the next call
}

// leaves stops the member softly.
func (h *hand) leaves() {
	h.crew.t.Helper()
	close(h.stop)
	select {
	case err := <-h.ended:
		if err != nil && !errors.Is(err, context.Canceled) {
			h.crew.t.Errorf("Run: %v", err)
		}
	case <-time.After(30 * time.Second):
		h.crew.t.Fatal("a member does not stop")
	}
	h.ended <- nil
}

// metric returns the sum of all series of a metric; of a histogram, how many were
// observed.
func (h *hand) metric(name string) (sum float64) {
	h.crew.t.Helper()
	families, err := h.metrics.Gather()
	if err != nil {
		h.crew.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "lobsink_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				sum += float64(m.GetHistogram().GetSampleCount())
			case dto.MetricType_COUNTER:
				sum += m.GetCounter().GetValue()
			default:
				sum += m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// owns waits until members own so many partitions each, in any order.
func (c *crew) owns(want ...int) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("shares of %v", want), func() bool {
		left := map[int]int{}
		for _, n := range want {
			left[n]++
		}
		for _, h := range c.hands {
			left[int(h.metric("partition_owned"))]--
		}
		delete(left, 0) // those that have left, too
		for _, n := range left {
			if n != 0 {
				return false
			}
		}
		return true
	})
}

// epochs is how often the partitions were claimed, all together.
func (c *crew) epochs() (sum int64) {
	c.t.Helper()
	for p := range c.spec.Partitions {
		f, err := c.reader.Fence(c.t.Context(), p)
		if err != nil {
			c.t.Fatal(err)
		}
		sum += f.Epoch
	}
	return sum
}
