package consumer

import (
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// cluster starts three servers and returns a way to each.
func cluster(t *testing.T) []jetstream.JetStream {
	t.Helper()
	ports := freePorts(t, 3)
	var routes []*url.URL
	for _, p := range ports {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprint("127.0.0.1:", p)})
	}
	var all []jetstream.JetStream
	for i, p := range ports {
		s, err := natsserver.NewServer(&natsserver.Options{
			ServerName: fmt.Sprint("n", i), JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
			// A server does not open its routes before its client port.
			Host: "127.0.0.1", Port: natsserver.RANDOM_PORT,
			JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 256 << 20,
			Cluster: natsserver.ClusterOpts{Name: "C", Host: "127.0.0.1", Port: p}, Routes: routes,
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		nc, err := nats.Connect("", nats.InProcessServer(s))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, js)
	}
	return all
}

func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// TestLettersReplicated: a replicated stream refuses a repeat with another code
// than a single server does, and while two owners publish the same letter it
// refuses one of them before the other's is stored.
func TestLettersReplicated(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	ways := cluster(t)
	deadline := time.Now().Add(60 * time.Second)
	for {
		_, err := CreateDeadStream(t.Context(), ways[0], "S", 3)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	const count = 20
	var wait sync.WaitGroup
	for _, js := range ways {
		wait.Go(func() {
			d := NewDeadLetters(js, "S")
			for seq := range uint64(count) {
				x := letter(random(1000 + int(seq)))
				x.Seq = seq + 1
				for err := d.Publish(t.Context(), x); err != nil; err = d.Publish(t.Context(), x) {
					if time.Now().After(deadline) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wait.Wait()
	l := &letters{NewDeadLetters(ways[1], "S"), t, ways[1]}
	all := l.list(Filter{})
	if len(all) != count {
		t.Fatalf("%d letters, want %d", len(all), count)
	}
	for _, r := range all {
		if _, err := l.Payload(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	if n := l.stream().CachedInfo().State.Msgs; n != 2*count {
		t.Errorf("%d messages, want %d", n, 2*count)
	}
}
