package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"
)

// run is one fault test: a broker, a database, a producer and a lobsink.
type run struct {
	t      *testing.T
	broker *broker
	db     *database
	sink   *sink
	prod   *producer
	done   chan struct{} // closed when everything is published
	rng    *rand.Rand
}

const streamName = "FRAGMENTS"

// startRun sets everything up with a lease of 1 s and starts publishing.
func startRun(t *testing.T, db *database, documents, fragments int, pause time.Duration) *run {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := &run{t: t, broker: startBroker(t), db: db, done: make(chan struct{}), rng: rand.New(rand.NewPCG(seed, 2))}
	partitions := "1"
	if db.pg != nil {
		partitions = "4"
	}
	must(t, "setup", "--nats", r.broker.url(), "--store", db.url, "--partitions", partitions)
	js := r.broker.connect()
	r.prod = newProducer(t, js, seed, documents, fragments, pause)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(r.done)
		r.prod.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	r.sink = startSink(t, "--nats", r.broker.url(), "--store", db.url, "--lease", "1s", "--flush-timeout", "800ms", "--max-age", "100ms")
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
	r.db.stored(t, want, time.Minute)
	if code := r.sink.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	r.db.exact(t, want)
	floors := ackFloors(t, js, streamName)
	for p, last := range want.seqs {
		if floors[p] < last {
			t.Errorf("partition %d: ack floor %d after a drain, last stored message %d", p, floors[p], last)
		}
	}
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
	db := postgresDatabase(t)
	r := startRun(t, db, 20, 4000, time.Millisecond)
	r.wait(500*time.Millisecond, time.Second)
	db.pg.StopImmediate()
	r.broker.stop()
	time.Sleep(2 * time.Second)
	if !r.sink.running() {
		t.Error("lobsink ended while both were away")
	}
	r.broker.start()
	time.Sleep(time.Second)
	db.pg.Restart()
	r.check()
}

// TestDatabaseGoesBack: PostgreSQL is put back to an older copy of itself while
// lobsink runs; documents heal from the stream by themselves.
func TestDatabaseGoesBack(t *testing.T) {
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

// TestSecondSignal: the second SIGTERM ends the process at once, even when the
// database hangs.
func TestSecondSignal(t *testing.T) {
	db := postgresDatabase(t)
	r := startRun(t, db, 5, 500, time.Millisecond)
	<-r.done
	db.pg.StopImmediate()
	r.sink.signal(syscall.SIGTERM)
	time.Sleep(300 * time.Millisecond)
	if !r.sink.running() {
		t.Skip("it had nothing left to flush")
	}
	r.sink.signal(syscall.SIGTERM)
	select {
	case <-r.sink.done:
	case <-time.After(20 * time.Second):
		t.Fatal("still running 20 s after the second SIGTERM")
	}
	db.pg.Restart()
	r.sink.start()
	r.check()
}
