package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// fleet is a fault test with several lobsinks on one PostgreSQL.
type fleet struct {
	*run
	members []*sink
}

func newFleet(t *testing.T, documents, fragments int, pause time.Duration) *fleet {
	t.Helper()
	return &fleet{run: newRun(t, postgresDatabase(t), documents, fragments, pause)}
}

// join starts a member. A lease is long enough for a busy machine.
func (f *fleet) join(args ...string) *sink {
	f.t.Helper()
	s := f.consume(append([]string{"--lease", "3s", "--flush-timeout", "2s"}, args...)...)
	f.members = append(f.members, s)
	return s
}

// owned is how many partitions each member that runs owns, in the order in which
// they joined.
func (f *fleet) owned() (all []int) {
	for _, s := range f.members {
		if s.running() {
			n, err := s.scrape("lobsink_partition_owned")
			if err != nil {
				n = -1 // it is about to end
			}
			all = append(all, int(n))
		}
	}
	return all
}

// shares waits until the members that run own so many partitions each, in any
// order.
func (f *fleet) shares(want ...int) {
	f.t.Helper()
	eventually(f.t, time.Minute, func() error {
		count := map[int]int{}
		got := f.owned()
		for _, n := range want {
			count[n]++
		}
		for _, n := range got {
			count[n]--
		}
		for _, n := range count {
			if n != 0 {
				return fmt.Errorf("members own %v partitions, want %v", got, want)
			}
		}
		return nil
	})
}

// check waits until everything is stored, ends all members, and compares.
func (f *fleet) check() {
	t := f.t
	t.Helper()
	select {
	case <-f.done:
	case <-time.After(3 * time.Minute):
		t.Fatal("publishing did not end")
	}
	js := f.broker.connect()
	want := readTruth(t, js, streamName)
	allPublished(t, f.prod, want)
	f.db.stored(t, want, time.Minute)
	for _, s := range f.members {
		if s.running() {
			if code := s.terminate(); code != 0 {
				t.Errorf("exit code %d after SIGTERM", code)
			}
		}
	}
	f.db.exact(t, want)
	floored(t, js, 0)
}

// TestMembers: two members, a third one, a kill -9, and one that is left at the
// end; the command that shows them agrees (O31, O34, O39).
func TestMembers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 50, 6000, time.Millisecond)
	f.publish()
	a := f.join()
	f.shares(4)
	b := f.join()
	f.shares(2, 2)
	c := f.join()
	f.shares(2, 1, 1)
	f.shown(3)

	a.kill()
	f.shares(2, 2)
	if n := b.metric("lobsink_takeover_seconds_count") + c.metric("lobsink_takeover_seconds_count"); n < 1 {
		t.Errorf("%g takeovers after a kill", n)
	}
	a.start()
	f.shares(2, 1, 1)
	if code := b.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	f.shares(2, 2)
	c.terminate()
	f.shares(4)
	f.shown(1)
	f.check()
	f.shown(0)
}

// shown compares what `lobsink partitions show` says with what the members do.
func (f *fleet) shown(members int) {
	t := f.t
	t.Helper()
	var v struct {
		Partitions []struct {
			Owner, Member_ID *string
			Epoch            int64
			Checkpoint, Lag  *uint64
			Lease_Seconds    *float64
		}
		Members []struct {
			ID         string
			Partitions int
		}
	}
	// Members that have died are shown until their time is over.
	eventually(t, time.Minute, func() error {
		out := must(t, "partitions", "show", "-o", "json", "--store", f.db.url, "--nats", f.broker.url())
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatal(err)
		}
		if len(v.Members) != members {
			return fmt.Errorf("%d members shown, want %d:\n%s", len(v.Members), members, out)
		}
		return nil
	})
	owned := map[string]int{}
	for p, v := range v.Partitions {
		if v.Epoch < 1 || v.Lag == nil {
			t.Errorf("partition %d: %+v", p, v)
		}
		if (members > 0) != (v.Member_ID != nil) || (members > 0) != (v.Lease_Seconds != nil) {
			t.Errorf("partition %d with %d members: %+v", p, members, v)
		}
		if members == 0 && (*v.Lag != 0 || v.Checkpoint == nil) {
			t.Errorf("partition %d in the end: %+v", p, v)
		}
		if v.Member_ID != nil {
			owned[*v.Member_ID]++
		}
	}
	for _, m := range v.Members {
		if owned[m.ID] != m.Partitions {
			t.Errorf("member %s: %d partitions, the partitions say %d", m.ID, m.Partitions, owned[m.ID])
		}
	}
	if out := must(t, "partitions", "show", "--store", f.db.url, "--nats", f.broker.url()); !strings.Contains(out, "CHECKPOINT") {
		t.Errorf("the table:\n%s", out)
	}
}

// TestMembersOneKey: several producers publish to one document while its
// partition changes hands: everything is there, once, in the stream's order (O31).
func TestMembersOneKey(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0, 0, 0)
	f.publish()
	a := f.join()
	f.join()
	f.shares(2, 2)
	var wg sync.WaitGroup
	for producer := range 2 {
		wg.Go(func() {
			js := f.broker.connect()
			for i := range 200 {
				publish(t, js, "fragments.doc", fmt.Sprintf("<r p=\"%d\" n=\"%d\"/>\n", producer, i))
			}
		})
	}
	f.wait(100*time.Millisecond, 500*time.Millisecond)
	a.signal(syscall.SIGTERM)
	wg.Wait()
	f.shares(4)
	f.check()
	if n := strings.Count(f.db.texts(t)["doc"], "<r "); n != 400 {
		t.Errorf("%d fragments, want 400", n)
	}
}

// TestMembersFrozen: one of three members is frozen past its lease and goes on: it
// commits nothing, and nobody's reading is disturbed.
func TestMembersFrozen(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 30, 8000, time.Millisecond)
	f.publish()
	for range 3 {
		f.join()
	}
	f.shares(2, 1, 1)
	all := f.members
	disturbed := func(s *sink) (sum float64) {
		for _, reason := range []string{"order", "quiet", "consumer"} {
			sum += s.metric(fmt.Sprintf("lobsink_doubts_total{reason=%q}", reason))
		}
		return sum
	}
	for round := range 3 {
		frozen := all[round]
		others := append(append([]*sink{}, all[:round]...), all[round+1:]...)
		f.wait(50*time.Millisecond, 300*time.Millisecond)
		frozen.signal(syscall.SIGSTOP)
		f.members = others
		f.shares(2, 2)
		before := disturbed(others[0]) + disturbed(others[1])
		frozen.signal(syscall.SIGCONT)
		f.members = all
		f.shares(2, 1, 1)
		if n := disturbed(others[0]) + disturbed(others[1]); n != before {
			t.Errorf("%g doubts of the others when a frozen member went on", n-before)
		}
	}
	f.check()
}

// TestMembersCutOff: a member that NATS does not answer any more, and the database
// does, leaves its partitions to the others, and comes back.
func TestMembersCutOff(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20, 6000, time.Millisecond)
	f.publish()
	f.join()
	f.shares(4)
	direct := f.nats
	proxy, through := startProxyOf(t, f.nats)
	f.nats = through
	cut := f.join()
	f.nats = direct
	f.shares(2, 2)
	proxy.silence(true)
	f.shares(4, 0)
	proxy.silence(false)
	cut.ready()
	f.shares(2, 2)
	f.check()
}

// TestMembersMeddled: three members while somebody edits, deletes and makes
// consumers, the server restarts, and every answer of the database takes its time
// (O37, O40, O41, O42, O43, O44, O46).
func TestMembersMeddled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 30, 8000, 2*time.Millisecond)
	proxy, through := startProxyOf(t, f.db.url)
	f.store = through
	proxy.late(50 * time.Millisecond)
	f.publish()
	for range 3 {
		f.join()
	}
	f.shares(2, 1, 1)
	js := f.broker.connect()
	stream, err := js.Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	each := func(do func(ctx context.Context, c jetstream.ConsumerConfig) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for info := range stream.ListConsumers(ctx).Info() {
			if info.Config.Durable == "" {
				continue
			}
			if err := do(ctx, info.Config); err != nil {
				t.Logf("%s: %v", info.Name, err) // it is gone already
			}
		}
	}
	for _, meddle := range []struct {
		name string
		do   func(ctx context.Context, c jetstream.ConsumerConfig) error
	}{
		{"O40 O43 a back-off, an inactivity threshold", func(ctx context.Context, c jetstream.ConsumerConfig) error {
			c.BackOff, c.MaxDeliver, c.InactiveThreshold = []time.Duration{50 * time.Millisecond, time.Second}, 3, time.Hour
			_, err := stream.UpdateConsumer(ctx, c)
			return err
		}},
		{"O41 deleted", func(ctx context.Context, c jetstream.ConsumerConfig) error {
			return stream.DeleteConsumer(ctx, c.Durable)
		}},
		{"O42 deleted and made again", func(ctx context.Context, c jetstream.ConsumerConfig) error {
			if err := stream.DeleteConsumer(ctx, c.Durable); err != nil {
				return err
			}
			_, err := stream.CreateConsumer(ctx, c)
			return err
		}},
		{"O46 another one beside it", func(ctx context.Context, c jetstream.ConsumerConfig) error {
			c.Durable, c.Name, c.AckWait = c.Durable+"-by-hand", "", time.Second
			_, err := stream.CreateConsumer(ctx, c)
			return err
		}},
	} {
		f.wait(200*time.Millisecond, 600*time.Millisecond)
		t.Log(meddle.name)
		each(meddle.do)
	}
	f.wait(200*time.Millisecond, 600*time.Millisecond)
	f.broker.stop()
	time.Sleep(4 * time.Second) // O44; longer than a lease
	f.broker.start()
	for _, s := range f.members {
		s.ready()
	}
	f.shares(2, 1, 1)
	<-f.done
	eventually(t, time.Minute, func() error {
		sum := 0.0
		for _, s := range f.members {
			sum += s.metric("lobsink_lag_messages")
		}
		if sum != 0 {
			return fmt.Errorf("a lag of %g messages", sum)
		}
		return nil
	})
	f.check()
}
