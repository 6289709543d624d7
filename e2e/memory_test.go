package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The budget that these tests give lobsink, and what it may take on top.
const (
	budgetMiB = 256
	aboveMiB  = 100
)

// peakMiB is the most memory that a process has had resident.
func (s *sink) peakMiB() int {
	s.t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var kb int
		if n, _ := fmt.Sscanf(lines.Text(), "VmHWM: %d kB", &kb); n == 1 {
			return kb >> 10
		}
	}
	s.t.Fatal("no VmHWM")
	return 0
}

// publishMany publishes asynchronously, as fast as the server takes it.
func publishMany(t testing.TB, b *broker, count int, message func(i int) *nats.Msg) {
	t.Helper()
	nc, err := nats.Connect(b.url())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2000))
	if err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if _, err := js.PublishMsgAsync(message(i)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(2 * time.Minute):
		t.Fatal("publishing did not end")
	}
}

// TestMemoryOpenDocuments: peak memory stays under budget + 100 MiB with
// 500,000 open documents (O51, O53).
func TestMemoryOpenDocuments(t *testing.T) {
	documents := 100_000
	if *long {
		documents = 500_000
	}
	b, db := startBroker(t), postgresDatabase(t)
	must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", "4")
	s := startSink(t, "--nats", b.url(), "--store", db.url, "--max-age", "1h", "--memory", fmt.Sprintf("%dMiB", budgetMiB))
	publishMany(t, b, documents, func(i int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprintf("fragments.document-%d", i), Data: []byte(fmt.Sprintf("<r d=\"%d\">%0100d</r>", i, i))}
	})
	js := b.connect()
	eventually(t, 2*time.Minute, func() error {
		stream, err := js.Stream(t.Context(), streamName)
		if err != nil {
			return err
		}
		for info := range stream.ListConsumers(t.Context()).Info() {
			if info.NumPending > 0 {
				return fmt.Errorf("%d messages not read yet", info.NumPending)
			}
		}
		return nil
	})
	peak := s.peakMiB()
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if peak > budgetMiB+aboveMiB {
		t.Errorf("peak %d MiB with %d open documents, budget %d MiB", peak, documents, budgetMiB)
	} else {
		t.Logf("peak %d MiB with %d open documents, budget %d MiB", peak, documents, budgetMiB)
	}
	db.exact(t, readTruth(t, js, streamName))
}

// TestMemorySlowDatabase: with a database that answers a second late, memory
// stays under budget + 100 MiB whatever is published (O51).
func TestMemorySlowDatabase(t *testing.T) {
	megabytes := 100
	if *long {
		megabytes = 500
	}
	b, db := startBroker(t), postgresDatabase(t)
	must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", "4")
	u, err := url.Parse(db.url)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = startSlowProxy(t, u.Host, time.Second)
	s := startSink(t, "--nats", b.url(), "--store", u.String(), "--memory", fmt.Sprintf("%dMiB", budgetMiB))
	text := strings.Repeat("x", 10_000)
	publishMany(t, b, megabytes*100, func(i int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprintf("fragments.document-%d", i%500), Data: []byte(text)}
	})
	time.Sleep(10 * time.Second)
	if peak := s.peakMiB(); peak > budgetMiB+aboveMiB {
		t.Errorf("peak %d MiB, budget %d MiB", peak, budgetMiB)
	} else {
		t.Logf("peak %d MiB, budget %d MiB", peak, budgetMiB)
	}
}

// startSlowProxy forwards connections to an address and delivers each piece of
// a request a while later: latency, not a lack of bandwidth.
func startSlowProxy(t testing.TB, target string, delay time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			wg.Go(func() { forward(client, server, delay) })
			wg.Go(func() { forward(server, client, 0) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

func forward(from, to net.Conn, delay time.Duration) {
	type piece struct {
		data []byte
		due  time.Time
	}
	pieces := make(chan piece, 4096)
	go func() {
		defer close(pieces)
		for {
			buf := make([]byte, 64<<10)
			n, err := from.Read(buf)
			if n > 0 {
				pieces <- piece{buf[:n], time.Now().Add(delay)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			from.Close()
		}
	}
	to.Close()
}
