package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// run is one fault test: a broker, a database, a producer and a lobsink.
type run struct {
	t      *testing.T
	broker *broker
	db     *database
	nats   string // for --nats
	store  string // for --store
	sink   *sink
	prod   *producer
	done   chan struct{} // closed when everything is published
	rng    *rand.Rand
}

const streamName = "FRAGMENTS"

// newRun sets everything up.
func newRun(t *testing.T, db *database, documents, fragments int, pause time.Duration) *run {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	b := startBroker(t)
	r := &run{
		t: t, broker: b, db: db, nats: b.url(), store: db.url,
		done: make(chan struct{}), rng: rand.New(rand.NewPCG(seed, 2)),
	}
	must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
	r.prod = newProducer(t, b.connect(), seed, documents, fragments, pause)
	return r
}

// publish starts publishing.
func (r *run) publish() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(r.done)
		r.prod.run(ctx)
	}()
	r.t.Cleanup(func() {
		cancel()
		<-r.done
	})
}

// consume starts a lobsink, with a lease of 1 s.
func (r *run) consume(args ...string) *sink {
	r.t.Helper()
	return startSink(r.t, append([]string{
		"--nats", r.nats, "--store", r.store, "--lease", "1s", "--flush-timeout", "800ms", "--max-age", "100ms",
	}, args...)...)
}

// startRun sets everything up and starts publishing and consuming.
func startRun(t *testing.T, db *database, documents, fragments int, pause time.Duration) *run {
	t.Helper()
	r := newRun(t, db, documents, fragments, pause)
	r.publish()
	r.sink = r.consume()
	return r
}

// check waits for the end of publishing and until everything is stored, drains,
// and compares.
func (r *run) check() {
	t := r.t
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(3 * time.Minute):
		t.Fatal("publishing did not end")
	}
	js := r.broker.connect()
	want := readTruth(t, js, streamName)
	allPublished(t, r.prod, want)
	if len(want.text) == 0 {
		t.Fatal("nothing was published")
	}
	r.db.stored(t, want, time.Minute)
	r.sink.ready()
	if code := r.sink.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	r.db.exact(t, want)
	floored(t, js, 0)
}

func (r *run) wait(min, max time.Duration) {
	time.Sleep(min + time.Duration(r.rng.Int64N(int64(max-min))))
}

func kills() int {
	if *long {
		return 20
	}
	return 5
}

// TestKill: kill -9 at random moments (O39).
func TestKill(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := startRun(t, db, 50, 1500*kills(), 500*time.Microsecond)
		for range kills() {
			r.wait(200*time.Millisecond, 1500*time.Millisecond)
			r.sink.kill()
			r.sink.start()
		}
		r.check()
	})
}

// TestTerminate: SIGTERM flushes what is buffered, ends with 0, and nothing is
// lost or doubled by the restart (O50).
func TestTerminate(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := startRun(t, db, 20, 4000, 500*time.Microsecond)
		for range 3 {
			r.wait(300*time.Millisecond, time.Second)
			if code := r.sink.terminate(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			r.sink.start()
		}
		r.check()
	})
}

// TestFreeze: a process stopped past its lease goes on, with beliefs that are
// no longer true.
func TestFreeze(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := startRun(t, db, 20, 4000, time.Millisecond)
		for range 2 {
			r.wait(300*time.Millisecond, time.Second)
			r.sink.signal(syscall.SIGSTOP)
			time.Sleep(2500 * time.Millisecond)
			r.sink.signal(syscall.SIGCONT)
		}
		r.check()
	})
}

// TestBrokerRestart: NATS stopped and started again on the same store (O44,
// O45).
func TestBrokerRestart(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := startRun(t, db, 20, 4000, time.Millisecond)
		for range 2 {
			r.wait(500*time.Millisecond, time.Second)
			r.broker.stop()
			time.Sleep(1500 * time.Millisecond)
			r.broker.start()
		}
		r.check()
	})
}

// TestDatabaseCrash: PostgreSQL stopped with -m immediate and started again.
func TestDatabaseCrash(t *testing.T) {
	t.Parallel()
	db := postgresDatabase(t)
	r := startRun(t, db, 20, 4000, time.Millisecond)
	for range 3 {
		r.wait(500*time.Millisecond, 1500*time.Millisecond)
		db.pg.StopImmediate()
		r.wait(200*time.Millisecond, 1500*time.Millisecond)
		db.pg.Restart()
	}
	r.check()
}

// TestBothDown: broker and database away at once.
func TestBothDown(t *testing.T) {
	t.Parallel()
	db := postgresDatabase(t)
	r := startRun(t, db, 20, 4000, time.Millisecond)
	r.wait(500*time.Millisecond, time.Second)
	db.pg.StopImmediate()
	r.broker.stop()
	time.Sleep(2 * time.Second)
	r.sink.unready("NATS")
	r.broker.start()
	time.Sleep(time.Second)
	db.pg.Restart()
	r.check()
}

// TestDatabaseGoesBack: PostgreSQL is put back to an older copy of itself while
// lobsink runs; documents heal from the stream by themselves.
func TestDatabaseGoesBack(t *testing.T) {
	t.Parallel()
	db := postgresDatabase(t)
	r := startRun(t, db, 20, 6000, time.Millisecond)
	r.wait(1500*time.Millisecond, 2*time.Second)
	copied := fmt.Sprintf("%s-copy", db.pg.Dir())
	t.Cleanup(func() { os.RemoveAll(copied) })
	db.pg.StopImmediate()
	db.pg.CopyTo(copied)
	db.pg.Restart()
	r.wait(2*time.Second, 3*time.Second)
	db.pg.StopImmediate()
	db.pg.RestoreFrom(copied)
	db.pg.Restart()
	r.check()
}

// TestSecondSignal: the second SIGTERM ends the process at once, although the
// database hangs and what is held cannot be flushed.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	r := newRun(t, postgresDatabase(t), 5, 500, 0)
	proxy, through := startProxyOf(t, r.db.url)
	r.store = through
	r.prod.open = true
	r.sink = r.consume("--max-age", "1h")
	r.sink.ready()
	r.publish()
	<-r.done
	eventually(t, time.Minute, func() error {
		if n := r.sink.metric("lobsink_open_documents"); n != 5 {
			return fmt.Errorf("%g documents in memory, want 5", n)
		}
		return nil
	})
	proxy.silence(true)
	r.sink.signal(syscall.SIGTERM)
	eventually(t, 20*time.Second, func() error {
		if status, body, err := r.sink.get("/readyz"); status != 503 || !strings.Contains(body, "draining") {
			return fmt.Errorf("/readyz after SIGTERM: %d %q %v", status, body, err)
		}
		return nil
	})
	if !r.sink.running() {
		t.Fatal("it ended without having flushed")
	}
	r.sink.signal(syscall.SIGTERM)
	select {
	case <-r.sink.done:
	case <-time.After(20 * time.Second):
		t.Fatal("still running 20 s after the second SIGTERM")
	}
	proxy.silence(false)
	r.sink = r.consume()
	r.check()
}

// TestLostReplies: the connection breaks after the database has carried out what
// it was asked, and before lobsink learns of it (O19, O20).
func TestLostReplies(t *testing.T) {
	t.Parallel()
	r := newRun(t, postgresDatabase(t), 20, 4000, time.Millisecond)
	proxy, through := startProxyOf(t, r.db.url)
	r.store = through
	r.publish()
	r.sink = r.consume("--max-age", "0s")
	r.sink.ready()
	cuts := 4 * kills()
	for range cuts {
		proxy.cutAnswers(1)
		r.wait(20*time.Millisecond, 250*time.Millisecond)
	}
	eventually(t, time.Minute, func() error {
		if n := proxy.cutsLeft(); n > 0 {
			return fmt.Errorf("%d connections are still to be cut", n)
		}
		return nil
	})
	r.check()
}

// TestLostAcknowledgements: connections to NATS break at an answer; what is
// stored and acknowledged may come again (O22, O42).
func TestLostAcknowledgements(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := newRun(t, db, 20, 3000, time.Millisecond)
		proxy, through := startProxyOf(t, r.nats)
		r.nats = through
		r.publish()
		r.sink = r.consume()
		for range kills() {
			r.sink.ready()
			r.wait(50*time.Millisecond, 300*time.Millisecond)
			proxy.cutAnswers(1)
		}
		r.check()
	})
}

// TestSilence: nothing passes between lobsink and its servers for longer than a
// lease, and no connection breaks (O24, O43).
func TestSilence(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := newRun(t, db, 20, 4000, time.Millisecond)
		var between []*proxy
		stand := func(server *string) {
			p, through := startProxyOf(t, *server)
			*server = through
			between = append(between, p)
		}
		stand(&r.nats)
		if db.pg != nil {
			stand(&r.store)
		}
		r.publish()
		r.sink = r.consume()
		for _, p := range between {
			r.sink.ready()
			r.wait(100*time.Millisecond, 500*time.Millisecond)
			p.silence(true)
			r.wait(2*time.Second, 3*time.Second)
			p.silence(false)
		}
		r.check()
	})
}

// TestTakeover: an owner is frozen, another lobsink takes its partitions over,
// and the first one goes on with beliefs that are no longer true.
func TestTakeover(t *testing.T) {
	t.Parallel()
	r := newRun(t, postgresDatabase(t), 30, 6000, time.Millisecond)
	r.publish()
	owner, other := r.consume(), r.consume()
	owned := func(s *sink) float64 { return s.metric("lobsink_partition_owned") }
	all := func(s *sink) func() error {
		return func() error {
			if n := owned(s); n != 4 {
				return fmt.Errorf("%g partitions owned, want 4", n)
			}
			return nil
		}
	}
	eventually(t, 30*time.Second, func() error {
		if n := owned(owner) + owned(other); n != 4 {
			return fmt.Errorf("%g partitions owned, want 4", n)
		}
		return nil
	})
	for range kills() {
		r.wait(100*time.Millisecond, 400*time.Millisecond)
		owner.signal(syscall.SIGSTOP)
		eventually(t, 30*time.Second, all(other))
		r.wait(50*time.Millisecond, 200*time.Millisecond)
		owner.signal(syscall.SIGCONT)
		owner, other = other, owner
	}
	if code := other.terminate(); code != 0 {
		t.Errorf("exit code %d of the other one after SIGTERM", code)
	}
	r.sink = owner
	r.check()
}
