package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestStreamGoesBack: the folder of NATS is put back to an older copy of itself.
// What the database holds is no longer in the stream, so lobsink stops and names
// both sides; it neither loses nor changes what is stored.
func TestStreamGoesBack(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := newRun(t, db, 5, 200, 0)
		copied := t.TempDir()
		r.sink = r.consume()
		r.sink.ready()
		js := r.broker.connect()
		publish(t, js, "fragments.first", "<first/>")
		r.broker.stop()
		copyFolder(t, r.broker.dir, copied)
		r.broker.start()
		r.publish()
		<-r.done
		want := readTruth(t, js, streamName)
		db.stored(t, want, time.Minute)
		r.broker.stop()
		if err := os.RemoveAll(r.broker.dir); err != nil {
			t.Fatal(err)
		}
		copyFolder(t, copied, r.broker.dir)
		r.broker.start()
		r.sink.says("is not the one this database was fed from")
		r.sink.unready("last sequence")
		db.exact(t, want)
		if code := r.sink.terminate(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
		db.exact(t, want)
	})
}

// TestStreamCreatedAgain: somebody deletes the stream and makes a new one under
// the same name. Its sequences begin anew; nothing of it may be taken for what is
// stored already.
func TestStreamCreatedAgain(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := newRun(t, db, 5, 200, 0)
		r.publish()
		<-r.done
		r.sink = r.consume()
		js := r.broker.connect()
		want := readTruth(t, js, streamName)
		db.stored(t, want, time.Minute)
		s, err := js.Stream(t.Context(), streamName)
		if err != nil {
			t.Fatal(err)
		}
		if err := js.DeleteStream(t.Context(), streamName); err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(t.Context(), s.CachedInfo().Config); err != nil {
			t.Fatal(err)
		}
		for range 300 {
			publish(t, js, "fragments.doc-1", "<other/>")
		}
		r.sink.says("creation time")
		r.sink.unready("creation time")
		db.exact(t, want)
		r.sink.terminate()
	})
}

// TestMeddling: somebody edits and deletes lobsink's consumers while it runs. The
// partition is claimed again, with the reason, and everything goes on (O36, O38,
// O40, O41, O42, O46).
func TestMeddling(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := startRun(t, db, 20, 4000, time.Millisecond)
		js := r.broker.connect()
		stream, err := js.Stream(t.Context(), streamName)
		if err != nil {
			t.Fatal(err)
		}
		each := func(do func(ctx context.Context, c *jetstream.ConsumerInfo) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for info := range stream.ListConsumers(ctx).Info() {
				if info.Config.Durable == "" {
					continue
				}
				if err := do(ctx, info); err != nil {
					t.Logf("%s: %v", info.Name, err) // it is gone already
				}
			}
		}
		edit := func(change func(c *jetstream.ConsumerConfig)) func() {
			return func() {
				t.Helper()
				each(func(ctx context.Context, info *jetstream.ConsumerInfo) error {
					c := info.Config
					change(&c)
					_, err := stream.UpdateConsumer(ctx, c)
					return err
				})
			}
		}
		for _, meddle := range []func(){
			func() {
				each(func(ctx context.Context, info *jetstream.ConsumerInfo) error {
					return stream.DeleteConsumer(ctx, info.Name)
				})
			},
			edit(func(c *jetstream.ConsumerConfig) { c.AckWait = 100 * time.Millisecond }),
			edit(func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 10 }),
			edit(func(c *jetstream.ConsumerConfig) {
				c.BackOff, c.MaxDeliver = []time.Duration{50 * time.Millisecond, time.Second}, 3
			}),
		} {
			r.sink.ready()
			r.wait(200*time.Millisecond, 800*time.Millisecond)
			meddle()
		}
		r.check()
	})
}

func copyFolder(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}
