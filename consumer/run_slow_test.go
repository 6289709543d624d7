package consumer

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lobsink/lobsink/internal/embednats"
)

// slowly forwards one connection after the other to a server, and what the
// server says at so many bytes per second.
func slowly(t *testing.T, server string, perSecond int) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", strings.TrimPrefix(server, "nats://"))
			if err != nil {
				_ = client.Close()
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(up, client) // ends with the connection
				_ = up.Close()
			})
			wg.Go(func() {
				const tick = 10 * time.Millisecond
				for {
					if _, err := io.CopyN(client, up, int64(perSecond)*int64(tick)/int64(time.Second)); err != nil {
						break
					}
					time.Sleep(tick)
				}
				_ = client.Close()
				_ = up.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return "nats://" + l.Addr().String()
}

// TestSlowNetwork: a fetch that takes longer than it waits is not given up while
// messages come: what is still on its way would be missing, and the partition
// claimed again and again.
func TestSlowNetwork(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, 1, embednats.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	nc, err := nats.Connect(slowly(t, r.srv.ClientURL(), 300<<10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close) // before the proxy, which waits for it
	r.cfg.NATS = nc
	r.patient()
	text := []byte(strings.Repeat("x", 2<<10))
	for range 700 {
		r.publish("k", text, nil)
	}
	r.start()
	r.exact()
	if n := r.epoch(); n != 1 {
		t.Errorf("claimed %d times, want once", n)
	}
	r.halt()
}
