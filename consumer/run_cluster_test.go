package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// newClusterRig returns a rig whose streams are on three servers. See e2e for
// servers that die, freeze and lose their disks.
func newClusterRig(t *testing.T, partitions int) *rig {
	t.Helper()
	if testing.Short() {
		t.Skip("starts three servers")
	}
	js := cluster(t)[0]
	r := &rig{t: t, nc: js.Conn(), js: js,
		spec:  StreamSpec{Name: "FRAGMENTS", Root: "fragments", Partitions: partitions, Replicas: 3},
		store: lobtest.NewMemory(lobwriter.Limits{Documents: 1024, Bytes: 4 << 20, ChunkBytes: 32767}),
	}
	r.reader = r.store
	r.eventually("streams on three servers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := CreateStream(ctx, js, r.spec)
		if err == nil {
			_, err = CreateDeadStream(ctx, js, r.spec.Name, 3)
		}
		return err == nil
	})
	r.cfg = Config{
		Store: r.store, NATS: js.Conn(), Stream: r.spec.Name, Root: r.spec.Root,
		Member: lobwriter.Member{ID: NewID(), Name: "test"}, Status: NewStatus(),
		MaxAge: 20 * time.Millisecond, ChunkBytes: 1000, MaxFragment: 1 << 20, Memory: 1 << 30,
		Lease: 4 * time.Second, Renew: 1200 * time.Millisecond, FlushTimeout: 3 * time.Second, DrainTimeout: 30 * time.Second,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	return r
}

// leaders returns who leads the stream, and who leads the first consumer of a
// partition; "": nobody.
func (r *rig) leaders(partition int) (stream, consumer, name string) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	s, err := r.js.Stream(ctx, r.spec.Name)
	if err != nil || s.CachedInfo().Cluster == nil {
		return "", "", ""
	}
	stream = s.CachedInfo().Cluster.Leader
	// To the end: a list that is left has a goroutine that stays.
	for info := range s.ListConsumers(ctx).Info() {
		if name == "" && strings.HasPrefix(info.Name, fmt.Sprintf("lobsink-0badcafe-%d-", partition)) && info.Cluster != nil {
			consumer, name = info.Cluster.Leader, info.Name
		}
	}
	return stream, consumer, name
}

// stepDown has the stream, or a consumer of it, choose another leader.
func (r *rig) stepDown(consumer string) {
	subject := "$JS.API.STREAM.LEADER.STEPDOWN." + r.spec.Name
	if consumer != "" {
		subject = "$JS.API.CONSUMER.LEADER.STEPDOWN." + r.spec.Name + "." + consumer
	}
	_, _ = r.nc.Request(subject, nil, 2*time.Second) // whoever asks sees what became of it
}

// TestClusterLeaders: the leaders of the stream and of the consumers change
// under a load, and every document is exact.
func TestClusterLeaders(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, 2)
	r.start()
	for i := range 4 {
		r.load(uint64(i), 300, 10)
		if i%2 == 0 {
			r.stepDown("")
		} else if _, _, name := r.leaders(0); name != "" {
			r.stepDown(name)
		}
		r.load(uint64(i)+10, 300, 10)
	}
	r.exact()
	r.halt()
}

// TestClusterIdle: on a replicated stream the checkpoint of an idle partition
// follows the stream, also while stream and consumer have different leaders.
func TestClusterIdle(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, 2)
	r.start()
	first := r.publish(keyOf(0), []byte("once"), nil)
	r.stored(keyOf(0), first)
	r.eventually("two leaders", func() bool {
		stream, consumer, name := r.leaders(0)
		if stream != "" && consumer != "" && stream != consumer {
			return true
		}
		if name != "" {
			r.stepDown(name)
		}
		time.Sleep(500 * time.Millisecond)
		return false
	})
	busy := r.publish(keyOf(1), []byte("busy"), nil)
	r.eventually("the idle checkpoint to follow", func() bool {
		f, err := r.store.Fence(t.Context(), 0)
		return err == nil && f.Checkpoint.Seq >= busy
	})
	if stream, consumer, _ := r.leaders(0); stream == consumer {
		t.Logf("meanwhile %s leads both", stream)
	}
	r.exact()
	r.halt()
}

// TestDomain: behind a leaf node, JetStream has a domain. A wrong one is an error
// that names stream and domain, within ten seconds (O49).
func TestDomain(t *testing.T) {
	t.Parallel()
	start := func(o *natsserver.Options) *natsserver.Server {
		t.Helper()
		o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", natsserver.RANDOM_PORT, true, true
		s, err := natsserver.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(20 * time.Second) {
			t.Fatal("the server is not ready")
		}
		return s
	}
	port := freePorts(t, 1)[0]
	hub := start(&natsserver.Options{
		JetStream: true, StoreDir: t.TempDir(), JetStreamDomain: "hub",
		LeafNode: natsserver.LeafNodeOpts{Host: "127.0.0.1", Port: port},
	})
	leaf := start(&natsserver.Options{LeafNode: natsserver.LeafNodeOpts{Remotes: []*natsserver.RemoteLeafOpts{{
		URLs: []*url.URL{{Scheme: "nats-leaf", Host: net.JoinHostPort("127.0.0.1", fmt.Sprint(port))}},
	}}}})
	r := newRig(t, 2)
	hubConn, err := nats.Connect(hub.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hubConn.Close)
	if r.js, err = jetstream.New(hubConn); err != nil {
		t.Fatal(err)
	}
	r.nc = hubConn
	if _, err := CreateStream(t.Context(), r.js, r.spec); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateDeadStream(t.Context(), r.js, r.spec.Name, 1); err != nil {
		t.Fatal(err)
	}
	leafConn, err := nats.Connect(leaf.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leafConn.Close)
	r.cfg.NATS, r.cfg.Status = leafConn, NewStatus()

	r.cfg.Domain = "hub"
	r.start()
	r.load(1, 300, 10)
	r.exact()
	r.halt()
	r.acked()

	r.cfg.Domain = "hubb"
	began := time.Now()
	err = Run(t.Context(), nil, r.cfg)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("refused after %v", took)
	}
	if lobwriter.KindOf(err) != lobwriter.Fatal || !strings.Contains(err.Error(), `"hubb"`) || !strings.Contains(err.Error(), "FRAGMENTS") {
		t.Errorf("a wrong domain: %v", err)
	}
	r.cfg.Domain, r.cfg.Stream = "hub", "NOBODY"
	if err := Run(t.Context(), nil, r.cfg); lobwriter.KindOf(err) != lobwriter.Fatal || !strings.Contains(err.Error(), `"hub"`) || !strings.Contains(err.Error(), "NOBODY") {
		t.Errorf("a stream that is not there: %v", err)
	}
	// Without a domain it waits, as for a server that is about to start.
	r.cfg.Domain, r.cfg.Stream = "", "FRAGMENTS"
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := Run(ctx, nil, r.cfg); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no domain: %v", err)
	}
	if check(r.cfg.Status, "nats") == nil {
		t.Error("ready, although no JetStream answers")
	}
}
