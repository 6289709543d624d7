package e2e

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// cluster is three nats-server processes.
type cluster struct {
	t       *testing.T
	binary  string
	servers []*natsProcess
}

type natsProcess struct {
	name   string
	client string // its address for clients
	config string
	dir    string // of its streams
	cmd    *exec.Cmd
	done   chan struct{} // closed when it has ended
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{t: t, binary: filepath.Join(dir, "nats-server")}
	build := exec.Command("go", "build", "-o", c.binary, "github.com/nats-io/nats-server/v2")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building nats-server: %v\n%s", err, out)
	}
	var routes []string
	for range 3 {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", freePort(t)))
	}
	for i, route := range routes {
		s := &natsProcess{
			name: fmt.Sprintf("n%d", i+1), client: fmt.Sprintf("127.0.0.1:%d", freePort(t)),
			config: filepath.Join(dir, fmt.Sprintf("n%d.conf", i+1)), dir: filepath.Join(dir, fmt.Sprintf("n%d", i+1)),
		}
		config := fmt.Sprintf("server_name: %s\nlisten: %q\nmax_payload: 8MB\njetstream { store_dir: %q }\ncluster { name: C, listen: %q, routes: [ %s ] }\n",
			s.name, s.client, s.dir, strings.TrimPrefix(route, "nats://"), strings.Join(routes, ", "))
		if err := os.WriteFile(s.config, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		c.servers = append(c.servers, s)
		c.start(s)
		t.Cleanup(func() { c.kill(s) })
	}
	return c
}

func (c *cluster) start(s *natsProcess) {
	c.t.Helper()
	s.cmd = exec.Command(c.binary, "-c", s.config)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	cmd, done := s.cmd, make(chan struct{})
	s.done = done
	go func() {
		cmd.Wait()
		close(done)
	}()
}

func (c *cluster) kill(s *natsProcess) {
	s.cmd.Process.Signal(syscall.SIGKILL)
	<-s.done
}

func (c *cluster) url() string {
	var all []string
	for _, s := range c.servers {
		all = append(all, "nats://"+s.client)
	}
	return strings.Join(all, ",")
}

// connect opens a connection of the test's own, to any server.
func (c *cluster) connect() jetstream.JetStream {
	c.t.Helper()
	nc, err := nats.Connect(c.url(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		c.t.Fatal(err)
	}
	return js
}

// whole waits until every server has all of the stream, and returns the one that
// leads it.
func (c *cluster) whole(js jetstream.JetStream) (leader *natsProcess) {
	c.t.Helper()
	eventually(c.t, 2*time.Minute, func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
		defer cancel()
		s, err := js.Stream(ctx, streamName)
		if err != nil {
			return err
		}
		info := s.CachedInfo().Cluster
		if info == nil || len(info.Replicas) != 2 {
			return fmt.Errorf("the stream is not on three servers: %+v", info)
		}
		for _, r := range info.Replicas {
			if !r.Current || r.Offline {
				return fmt.Errorf("server %s is behind by %d", r.Name, r.Lag)
			}
		}
		for _, p := range c.servers {
			if p.name == info.Leader {
				leader = p
			}
		}
		if leader == nil {
			return fmt.Errorf("nobody leads the stream")
		}
		return nil
	})
	return leader
}

// TestCluster: three NATS servers, of which one after another is killed, frozen,
// and started with an empty disk, while the stream's leader changes; every
// document is exact, with three members on PostgreSQL.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	db := postgresDatabase(t)
	eventually(t, 2*time.Minute, func() error {
		_, stderr, code := call(t, "setup", "--nats", c.url(), "--store", db.url, "--partitions", db.partitions(), "--replicas", "3")
		if code != 0 {
			return fmt.Errorf("setup: exit %d, %s", code, stderr)
		}
		return nil
	})
	js := c.connect()
	ctx, cancel := context.WithCancel(context.Background())
	prod, done := newProducer(t, js, uint64(time.Now().UnixNano()), 40, 8000, 2*time.Millisecond), make(chan struct{})
	go func() {
		defer close(done)
		prod.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	var members []*sink
	for range 3 {
		members = append(members, startSink(t, "--nats", c.url(), "--store", db.url, "--lease", "3s", "--flush-timeout", "2s", "--max-age", "100ms"))
	}
	for _, s := range members {
		s.ready()
	}
	for _, fault := range []struct {
		name string
		do   func(leader *natsProcess)
	}{
		{"another leader", func(*natsProcess) {
			_, _ = js.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+streamName, nil, 2*time.Second)
		}},
		{"killed", func(leader *natsProcess) {
			c.kill(leader)
			time.Sleep(2 * time.Second)
			c.start(leader)
		}},
		{"cut off", func(leader *natsProcess) {
			leader.cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(5 * time.Second)
			leader.cmd.Process.Signal(syscall.SIGCONT)
		}},
		{"an empty disk", func(leader *natsProcess) {
			c.kill(leader)
			if err := os.RemoveAll(leader.dir); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			c.start(leader)
		}},
	} {
		leader := c.whole(js)
		t.Logf("%s: %s", fault.name, leader.name)
		fault.do(leader)
		time.Sleep(500 * time.Millisecond)
	}
	c.whole(js)
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		t.Fatal("publishing did not end")
	}
	want := readTruth(t, js, streamName)
	allPublished(t, prod, want)
	db.stored(t, want, 2*time.Minute)
	for _, s := range members {
		s.ready()
		if code := s.terminate(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
	}
	db.exact(t, want)
}

// TestLeafNode: three members behind a leaf node, with the domain of the streams.
// A wrong domain is an error that names it and the stream, within ten seconds (O49).
func TestLeafNode(t *testing.T) {
	t.Parallel()
	start := func(o *server.Options) *server.Server {
		t.Helper()
		o.Host, o.Port, o.NoSigs, o.NoLog, o.MaxPayload = "127.0.0.1", server.RANDOM_PORT, true, true, 8<<20
		s, err := server.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(20 * time.Second) {
			t.Fatal("nats-server not ready")
		}
		return s
	}
	port := freePort(t)
	hub := start(&server.Options{
		JetStream: true, StoreDir: t.TempDir(), JetStreamDomain: "hub", LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: port},
	})
	leaf := start(&server.Options{LeafNode: server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{{
		URLs: []*url.URL{{Scheme: "nats-leaf", Host: fmt.Sprintf("127.0.0.1:%d", port)}},
	}}}})
	db := postgresDatabase(t)
	eventually(t, time.Minute, func() error { // the leaf node finds its hub
		_, stderr, code := call(t, "setup", "--nats", leaf.ClientURL(), "--nats-domain", "hub", "--store", db.url, "--partitions", db.partitions())
		if code != 0 {
			return fmt.Errorf("setup: exit %d, %s", code, stderr)
		}
		return nil
	})
	nc, err := nats.Connect(hub.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var members []*sink
	for range 3 {
		members = append(members, startSink(t, "--nats", leaf.ClientURL(), "--nats-domain", "hub", "--store", db.url, "--lease", "3s", "--flush-timeout", "2s"))
	}
	newProducer(t, js, 49, 20, 1000, 0).run(t.Context())
	want := readTruth(t, js, streamName)
	db.stored(t, want, time.Minute)
	for _, s := range members {
		s.ready()
		if code := s.terminate(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
	}
	db.exact(t, want)
	floored(t, js, 0)

	began := time.Now()
	_, stderr, code := call(t, "run", "--http", "off", "--nats", leaf.ClientURL(), "--nats-domain", "hubb", "--store", db.url)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a wrong domain was refused after %v", took)
	}
	if code != 78 || !strings.Contains(stderr, `"hubb"`) || !strings.Contains(stderr, streamName) {
		t.Errorf("a wrong domain: exit code %d, %s", code, stderr)
	}
}
