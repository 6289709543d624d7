package consumer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// own returns the consumers of the stream.
func (r *rig) consumers() []*jetstream.ConsumerInfo {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), r.spec.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	var all []*jetstream.ConsumerInfo
	for info := range s.ListConsumers(r.t.Context()).Info() {
		all = append(all, info)
	}
	return all
}

// TestMeddling: somebody edits, deletes or reads lobsink's own consumer while it
// runs. It notices, claims again, and every document is exact.
func TestMeddling(t *testing.T) {
	update := func(edit func(c *jetstream.ConsumerConfig)) func(r *rig, name string) {
		return func(r *rig, name string) {
			c, err := r.js.Consumer(r.t.Context(), r.spec.Name, name)
			if err != nil {
				r.t.Fatal(err)
			}
			cfg := c.CachedInfo().Config
			edit(&cfg)
			if _, err := r.js.UpdateConsumer(r.t.Context(), r.spec.Name, cfg); err != nil {
				r.t.Logf("the server refuses the edit: %v", err)
			}
		}
	}
	remove := func(r *rig, name string) {
		if err := r.js.DeleteConsumer(r.t.Context(), r.spec.Name, name); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		meddle func(r *rig, name string)
	}{
		{"O36 ack wait shorter than the batching", update(func(c *jetstream.ConsumerConfig) { c.AckWait = 50 * time.Millisecond })},
		{"O38 fewer pending than a batch", update(func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 10 })},
		{"O40 back-off in place of ack wait", update(func(c *jetstream.ConsumerConfig) {
			c.BackOff = []time.Duration{50 * time.Millisecond, 100 * time.Millisecond}
			c.MaxDeliver = 5
		})},
		{"O29 finite deliveries", update(func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 1; c.AckWait = 50 * time.Millisecond })},
		{"O43 inactivity", update(func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Hour })},
		{"O41 deleted", remove},
		{"O42 deleted and created again", func(r *rig, name string) {
			c, err := r.js.Consumer(r.t.Context(), r.spec.Name, name)
			if err != nil {
				r.t.Fatal(err)
			}
			cfg := c.CachedInfo().Config
			remove(r, name)
			if _, err := r.js.CreateConsumer(r.t.Context(), r.spec.Name, cfg); err != nil {
				r.t.Fatal(err)
			}
		}},
		{"trap 2 somebody else pulls", func(r *rig, name string) {
			c, err := r.js.Consumer(r.t.Context(), r.spec.Name, name)
			if err != nil {
				r.t.Fatal(err)
			}
			batch, err := c.Fetch(20, jetstream.FetchMaxWait(300*time.Millisecond))
			if err != nil {
				r.t.Fatal(err)
			}
			for range batch.Messages() { // taken and never acknowledged
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1)
			r.cfg.MaxAge = 200 * time.Millisecond
			r.start()
			r.eventually("a consumer", func() bool { return len(r.consumers()) == 1 })
			var want strings.Builder
			var last uint64
			for i := range 200 {
				text := fmt.Sprintf("<r n=\"%d\"/>", i)
				want.WriteString(text)
				last = r.publish("k", []byte(text), nil)
				if i == 100 {
					c.meddle(r, r.consumers()[0].Name)
				}
				time.Sleep(time.Millisecond)
			}
			r.stored("k", last)
			r.eventually("settings of its own", func() bool {
				all := r.consumers()
				return len(all) == 1 && all[0].Config.AckWait == ackWait && all[0].Config.MaxDeliver == -1 && all[0].Config.InactiveThreshold == 0
			})
			r.halt()
			if got, _, _ := r.text("k"); got != want.String() {
				t.Errorf("got %d bytes, want %d", len(got), want.Len())
			}
			r.acked()
		})
	}
}

// TestExistingConsumer: a consumer that an earlier claim left, or somebody made
// by hand under such a name, is never taken over with its settings: each claim
// makes its own, and deletes the others of its partition. A work-queue stream,
// on which consumers would share messages, is refused with the reason.
func TestExistingConsumer(t *testing.T) {
	t.Run("O46", func(t *testing.T) {
		r := newRig(t, 1)
		old := jetstream.ConsumerConfig{
			Durable: "lobsink-0badcafe-0-1-deadbeef", AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: time.Second, MaxDeliver: 3, MaxAckPending: 5, FilterSubject: "fragments.other",
		}
		if _, err := r.js.CreateConsumer(t.Context(), r.spec.Name, old); err != nil {
			t.Fatal(err)
		}
		last := r.publish("k", []byte("text"), nil)
		r.start()
		r.stored("k", last)
		r.eventually("the old consumer to go", func() bool {
			all := r.consumers()
			return len(all) == 1 && all[0].Name != old.Durable && all[0].Config.AckWait == ackWait && all[0].Config.FilterSubject == ""
		})
		r.halt()
		r.acked()
	})
	t.Run("O46 work queue", func(t *testing.T) {
		r := newRig(t, 1)
		if err := r.js.DeleteStream(t.Context(), r.spec.Name); err != nil {
			t.Fatal(err)
		}
		cfg := r.spec.Config()
		cfg.Retention = jetstream.WorkQueuePolicy
		if _, err := r.js.CreateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		err := Run(t.Context(), nil, r.cfg)
		if err == nil || !strings.Contains(err.Error(), "retention") {
			t.Errorf("Run: %v, want a refusal that names the retention", err)
		}
	})
}

// TestMissingStreams: without the stream, or without the one for dead letters,
// nothing begins; the error names it and the command that makes it.
func TestMissingStreams(t *testing.T) {
	for _, name := range []string{"FRAGMENTS", "FRAGMENTS_DEAD"} {
		r := newRig(t, 1)
		if err := r.js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		err := Run(t.Context(), nil, r.cfg)
		if err == nil || !strings.Contains(err.Error(), name+" does not exist") || !strings.Contains(err.Error(), "lobsink setup") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
