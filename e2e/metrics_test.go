package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestSeries: the number of series on /metrics does not grow with keys (O53).
func TestSeries(t *testing.T) {
	t.Parallel()
	keys := 20_000
	if *long {
		keys = 100_000
	}
	b, db := startBroker(t), sqliteDatabase(t)
	must(t, "setup", "--nats", b.url(), "--store", db.url)
	s := startSink(t, "--nats", b.url(), "--store", db.url, "--max-age", "20ms")
	js := b.connect()
	names := func() map[string]bool {
		out := map[string]bool{}
		lines, err := s.series()
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			name, _, _ := strings.Cut(line, " ")
			out[name] = true
		}
		return out
	}
	few := func(round int) {
		for i := range 100 {
			publish(t, js, fmt.Sprintf("fragments.few-%d-%d", round, i), "<a/>")
		}
		db.stored(t, readTruth(t, js, streamName), time.Minute)
	}
	few(0)
	before := names()
	publishMany(t, b, keys, func(i int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprintf("fragments.key-%d", i), Data: []byte("<a/>")}
	})
	few(1)
	for name := range names() {
		if !before[name] {
			t.Errorf("a new series after %d keys: %s", keys, name)
		}
	}
	s.terminate()
	db.exact(t, readTruth(t, js, streamName))
}

// TestTimeLimit: the last fragment before silence is not left in memory (O52).
func TestTimeLimit(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		b := startBroker(t)
		must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
		s := startSink(t, "--nats", b.url(), "--store", db.url, "--max-age", "200ms")
		s.ready()
		js := b.connect()
		publish(t, js, "fragments.alone", "<a/>")
		db.stored(t, readTruth(t, js, streamName), 20*time.Second)
		floored(t, js, 20*time.Second)
	})
}

// TestDrain: 37 fragments wait for an hour; SIGTERM stores and acknowledges them
// (O50).
func TestDrain(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		b := startBroker(t)
		must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
		s := startSink(t, "--nats", b.url(), "--store", db.url, "--max-age", "1h")
		s.ready()
		js := b.connect()
		for i := range 37 {
			publish(t, js, fmt.Sprintf("fragments.d-%d", i%5), fmt.Sprintf("<f n=\"%d\"/>", i))
		}
		eventually(t, time.Minute, func() error {
			if n := s.metric("lobsink_messages_received_total"); n != 37 {
				return fmt.Errorf("%g messages received", n)
			}
			return nil
		})
		if got := db.texts(t); len(got) != 0 {
			t.Errorf("%d documents stored before they were due", len(got))
		}
		if code := s.terminate(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
		want := readTruth(t, js, streamName)
		db.exact(t, want)
		floored(t, js, 0)
	})
}
