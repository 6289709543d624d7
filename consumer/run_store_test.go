package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// TestStoreFailsOnce: each call fails once, before it is made and after its
// commit, and every document is exact.
func TestStoreFailsOnce(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{false, true} {
		for n := 1; n <= 12; n++ {
			t.Run(fmt.Sprintf("call %d, committed %v", n, committed), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, 1)
				failing := lobtest.NewFailing(r.store, lobtest.Nth(n, lobtest.Fault{Err: errors.New("connection reset"), Committed: committed}))
				r.cfg.Store = failing
				r.load(uint64(n), 100, 3)
				r.start()
				r.load(uint64(n)+100, 100, 3)
				r.exact()
				r.eventually("the call that fails", func() bool { return failing.Calls() >= n })
				r.halt()
				r.acked()
			})
		}
	}
}

// TestStoreAway: the database is away for three seconds, more than a lease, at
// different moments of a load.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	lost := func(context.Context, string, int) error { return errors.New("the reply was lost") }
	for name, gates := range map[string][2]gate{"refuses": {away, nil}, "loses replies": {nil, lost}} {
		for _, after := range []time.Duration{0, 20 * time.Millisecond, 150 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s after %v", name, after), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, 2)
				g := r.gate()
				r.start()
				if after == 0 {
					g.set(gates[0], gates[1])
				}
				r.load(4, 300, 5)
				time.Sleep(after)
				g.set(gates[0], gates[1])
				r.load(5, 300, 5)
				time.Sleep(3 * time.Second)
				g.set(nil, nil)
				r.exact()
				r.halt()
				r.acked()
			})
		}
	}
}

// TestStoreHangs: calls that answer only when their deadline has passed, the
// flush included, cost time and nothing else.
func TestStoreHangs(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	g := r.gate()
	r.start()
	r.load(6, 200, 3)
	hang, hung := hanging("flush")
	g.set(hang, nil)
	r.load(7, 200, 3)
	<-hung
	time.Sleep(2 * r.cfg.FlushTimeout)
	g.set(nil, nil)
	r.exact()
	r.halt()
	r.acked()
}

// TestRejected: of A, B and C in one flush, B fails for good and C once: A and C
// are stored once, B is quarantined with its text in the dead letters (O26).
func TestRejected(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.cfg.MaxAge = 200 * time.Millisecond
	reject := &rejecting{Store: r.store, key: "B"}
	g := &gated{Store: reject}
	failed := false
	g.set(func(_ context.Context, op string, _ int) error {
		if op == "flush" && !failed {
			failed = true
			return errAway
		}
		return nil
	}, nil)
	r.cfg.Store = g
	for _, key := range []string{"A", "B", "C"} {
		r.publish(key, []byte("<"+key+">"), nil)
	}
	last := r.publish("B", []byte("</B>"), final())
	r.start()
	r.stored("B", last)
	r.halt()
	for _, key := range []string{"A", "C"} {
		if text, d, _ := r.text(key); text != "<"+key+">" || d.Fragments != 1 || d.State != lobwriter.Open {
			t.Errorf("%s: %q, %+v", key, text, d.Row)
		}
	}
	if text, d, _ := r.text("B"); text != "" || d.State != lobwriter.Quarantined || d.Holes != 2 || d.Reason == "" {
		t.Errorf("B: %q, %+v", text, d.Row)
	}
	if l := r.deadLetters(); len(l) != 2 || l[0].Code != "22021" {
		t.Errorf("letters %+v", l)
	}
	r.acked()
}

// rejecting is a store that refuses the text of one document, and stores the
// rest of the flush.
type rejecting struct {
	lobwriter.Store
	key string
}

func (s *rejecting) Flush(ctx context.Context, f *lobwriter.Flush) (lobwriter.Receipt, error) {
	at := -1
	for i := range f.Groups {
		if f.Groups[i].Key == s.key && len(f.Groups[i].Chunks) > 0 {
			at = i
		}
	}
	if at < 0 {
		return s.Store.Flush(ctx, f)
	}
	rows, err := s.Store.Rows(ctx, f.Partition, []string{s.key})
	if err != nil {
		return lobwriter.Receipt{}, err
	}
	rest := *f
	rest.Checkpoint = lobwriter.Position{} // it moves only if every document was appended
	rest.Groups = append(append([]lobwriter.Group{}, f.Groups[:at]...), f.Groups[at+1:]...)
	r, err := s.Store.Flush(ctx, &rest)
	if err != nil {
		return r, err
	}
	no := lobwriter.Answer{Status: lobwriter.Rejected, Row: rows[0], Code: "22021", Text: "invalid byte sequence"}
	r.Answers = append(append(append([]lobwriter.Answer{}, r.Answers[:at]...), no), r.Answers[at:]...)
	return r, nil
}

// TestFailureKeepsOrder: the first flush of a document fails twice while later
// fragments come: they wait, other documents of other partitions go on (O33).
func TestFailureKeepsOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	g := r.gate()
	stuck, free := keyOf(0), keyOf(1)
	held := make(chan struct{})
	g.set(func(_ context.Context, op string, partition int) error {
		if op == "flush" && partition == 0 {
			select {
			case <-held:
			default:
				return errAway
			}
		}
		return nil
	}, nil)
	r.start()
	r.publish(stuck, []byte("1"), nil)
	for _, text := range []string{"2", "3"} {
		r.publish(stuck, []byte(text), nil)
		r.stored(free, r.publish(free, []byte(text), nil))
	}
	if _, _, err := r.text(stuck); !errors.Is(err, lobwriter.ErrNotFound) {
		t.Errorf("something of %s was stored meanwhile: %v", stuck, err)
	}
	close(held)
	r.exact()
	r.halt()
	r.acked()
}

// keyOf returns a key of a partition of two.
func keyOf(partition int) string {
	return keysOf(partition, 2, 1)[0]
}

// TestReportStands: a database that only an operator can help is reported as
// long as it does, also while the partition is owned.
func TestReportStands(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.cfg.Status = NewStatus()
	g := r.gate()
	g.set(func(_ context.Context, op string, _ int) error {
		if op == "flush" {
			return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "flush", Err: errors.New("permission denied")}
		}
		return nil
	}, nil)
	seq := r.publish("k", []byte("x"), nil)
	r.start()
	r.eventually("a report", func() bool {
		err := check(r.cfg.Status, "partitions")
		return err != nil && strings.Contains(err.Error(), "permission denied")
	})
	for range 20 { // renewals and checks come and go meanwhile
		if err := check(r.cfg.Status, "partitions"); err == nil {
			t.Fatal("ready, while nothing can be stored")
		}
		time.Sleep(50 * time.Millisecond)
	}
	g.set(nil, nil)
	r.stored("k", seq)
	r.eventually("no report", func() bool { return check(r.cfg.Status, "partitions") == nil })
	r.halt()
}

// TestLentMemory: a partition whose flushes fail keeps to what is guaranteed to
// it, so that the others have the rest.
func TestLentMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.smallMessages(64 << 10)
	r.cfg.Memory = 8 << 20 // guaranteed: 2 MiB
	r.cfg.Metrics = NewMetrics(nil)
	g := r.gate()
	refused := make(chan struct{}, 100)
	g.set(func(_ context.Context, op string, partition int) error {
		if op == "flush" && partition == 0 {
			select {
			case refused <- struct{}{}:
			default:
			}
			return errAway
		}
		return nil
	}, nil)
	r.start()
	stuck := keyOf(0)
	r.publish(stuck, []byte("first"), nil)
	<-refused
	time.Sleep(2 * r.cfg.fetchWait()) // what was asked for before may be as large as all
	text := []byte(strings.Repeat("x", 50<<10))
	for range 150 {
		r.publish(stuck, text, nil)
	}
	most := 0.0
	for range 50 {
		most = max(most, r.buffered(0))
		time.Sleep(10 * time.Millisecond)
	}
	if most > 3<<20 { // all of it are 6 MiB
		t.Errorf("%.0f bytes held behind a database that takes nothing, guaranteed are %d", most, 2<<20)
	}
	g.set(nil, nil)
	r.exact()
	r.halt()
}

// TestNoRoom: a database that renews leases and has no room for text is not
// ready, and is again as soon as there is room.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.cfg.Status = NewStatus()
	g := r.gate()
	r.start()
	g.set(func(_ context.Context, op string, _ int) error {
		if op == "flush" {
			return errors.New("disk full")
		}
		return nil
	}, nil)
	r.load(9, 50, 2)
	r.eventually("a report", func() bool {
		err := check(r.cfg.Status, "partitions")
		return err != nil && strings.Contains(err.Error(), "partition 0 is not stored: disk full")
	})
	g.set(nil, nil)
	r.exact()
	r.eventually("readiness", func() bool { return check(r.cfg.Status, "partitions") == nil })
	r.halt()
	r.acked()
}
