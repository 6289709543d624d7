package e2e

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// aboveMiB is what lobsink may take on top of its budget.
const aboveMiB = 100

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
		if _, err := js.PublishMsgAsync(message(i), jetstream.WithStallWait(time.Minute)); err != nil {
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
	const budgetMiB = 256
	documents := 100_000
	if *long {
		documents = 500_000
	}
	b, db := startBroker(t), postgresDatabase(t)
	must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", "4")
	s := startBinary(t, plain, "", "--nats", b.url(), "--store", db.url, "--max-age", "1h", "--memory", fmt.Sprintf("%dMiB", budgetMiB))
	publishMany(t, b, documents, func(i int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprintf("fragments.document-%d", i), Data: []byte(fmt.Sprintf("<r d=\"%d\">%0100d</r>", i, i))}
	})
	eventually(t, 2*time.Minute, func() error {
		if n := s.metric("lobsink_messages_received_total"); n < float64(documents) {
			return fmt.Errorf("%g messages read of %d", n, documents)
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
	db.exact(t, readTruth(t, b.connect(), streamName))
}

// TestMemorySlowDatabase: with a database that answers a second late, memory
// stays under budget + 100 MiB whatever is published (O51).
func TestMemorySlowDatabase(t *testing.T) {
	megabytes, budgetMiB := 150, 96
	if *long {
		megabytes, budgetMiB = 500, 256
	}
	b, db := startBroker(t), postgresDatabase(t)
	must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", "4")
	proxy, through := startProxyOf(t, db.url)
	s := startBinary(t, plain, "", "--nats", b.url(), "--store", through, "--partitions", "4", "--memory", fmt.Sprintf("%dMiB", budgetMiB))
	s.ready()
	proxy.late(time.Second)
	text := strings.Repeat("x", 10_000)
	publishMany(t, b, megabytes*100, func(i int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprintf("fragments.document-%d", i%500), Data: []byte(text)}
	})
	// It stands still in the end: as much as the budget allows is held.
	read, since := 0.0, time.Now()
	eventually(t, 2*time.Minute, func() error {
		if n := s.metric("lobsink_messages_received_total"); n != read {
			read, since = n, time.Now()
		}
		if all := float64(megabytes * 100); read < all && time.Since(since) < 5*time.Second {
			return fmt.Errorf("%g of %g messages read, and still reading", read, all)
		}
		return nil
	})
	peak := s.peakMiB()
	t.Logf("peak %d MiB, budget %d MiB, %g messages read", peak, budgetMiB, read)
	if peak > budgetMiB+aboveMiB {
		t.Errorf("peak %d MiB, budget %d MiB", peak, budgetMiB)
	}
	proxy.late(0)
	js := b.connect()
	want := readTruth(t, js, streamName)
	db.stored(t, want, 3*time.Minute)
	if peak := s.peakMiB(); peak > budgetMiB+aboveMiB {
		t.Errorf("peak %d MiB once the database was quick again, budget %d MiB", peak, budgetMiB)
	}
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	db.exact(t, want)
}
