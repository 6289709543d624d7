package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/internal/embednats"
	"github.com/lobsink/lobsink/lobwriter"
)

func (r *rig) stream() jetstream.Stream {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), r.spec.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// TestServerRestarts: the server goes away under load and comes back, for less
// and for more than a lease.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, 2, embednats.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", SyncAlways: true, Log: slog.New(slog.DiscardHandler)})
	r.start()
	for i, down := range []time.Duration{0, 1500 * time.Millisecond} {
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			r.load(uint64(i), 1000, 5)
		}()
		time.Sleep(30 * time.Millisecond)
		r.restart(down)
		<-loaded
	}
	if err := r.nc.FlushTimeout(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	r.exact()
	r.halt()
	r.acked()
}

// TestReconnects: connections that break and are back at once, faster than
// anybody looks.
func TestReconnects(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.start()
	for i := range 5 {
		r.load(uint64(i), 200, 5)
		for range 3 {
			_ = r.nc.ForceReconnect() // fails only when closed
			time.Sleep(time.Millisecond)
		}
	}
	r.eventually("a connection", r.nc.IsConnected)
	r.exact()
	r.halt()
	r.acked()
}

// TestDeletedInside: a message that somebody deletes from the middle of the
// stream is no gap, before it is read and after.
func TestDeletedInside(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.patient()
	for i := range 20 {
		r.publish("k", fmt.Appendf(nil, "%d,", i), nil)
	}
	if err := r.stream().DeleteMsg(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.exact()
	want, _, _ := r.text("k")
	if err := r.stream().DeleteMsg(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	r.stored("k", r.publish("k", []byte("end"), nil))
	r.halt()
	if got, _, _ := r.text("k"); got != want+"end" {
		t.Errorf("%q, want %q and the end", got, want)
	}
	if n := r.epoch(); n != 1 {
		t.Errorf("claimed %d times, want once", n)
	}
	r.acked()
}

// TestPurged: a purge takes nothing from what is stored; what is published after
// it is appended.
func TestPurged(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.start()
	r.stored("k", r.publish("k", []byte("before,"), nil))
	if err := r.stream().Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.stored("k", r.publish("k", []byte("after"), nil))
	r.halt()
	if got, _, _ := r.text("k"); got != "before,after" {
		t.Errorf("got %q", got)
	}
	r.acked()
}

// TestStreamDeleted: a stream that is gone is said to be gone. Created again it
// is another one: the partition stops, says why, and writes nothing of it.
func TestStreamDeleted(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("while running %v", running), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 1)
			r.cfg.Status = NewStatus()
			r.start()
			r.stored("k", r.publish("k", []byte("first life"), nil))
			if !running {
				r.halt()
			}
			if err := r.js.DeleteStream(t.Context(), r.spec.Name); err != nil {
				t.Fatal(err)
			}
			if running {
				r.eventually("word of the missing stream", func() bool {
					err := check(r.cfg.Status, "nats")
					return errors.Is(err, jetstream.ErrStreamNotFound)
				})
			}
			if _, err := CreateStream(t.Context(), r.js, r.spec); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				r.publish("k", []byte("second life"), nil)
				r.publish("new", []byte("second life"), nil)
			}
			if !running {
				r.start()
			}
			var identity *IdentityError
			r.eventually("a report", func() bool { return errors.As(check(r.cfg.Status, "partitions"), &identity) })
			r.halt()
			if got, _, _ := r.text("k"); got != "first life" {
				t.Errorf("got %q", got)
			}
			if _, _, err := r.text("new"); !errors.Is(err, lobwriter.ErrNotFound) {
				t.Errorf("a document of another stream: %v", err)
			}
		})
	}
}

// TestRetentionPassesCheckpoint: messages that the stream discarded before they
// were read are a gap: the partition stops and says so.
func TestRetentionPassesCheckpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.cfg.Status = NewStatus()
	r.start()
	r.stored("k", r.publish("k", []byte("stored"), nil))
	r.halt()
	cfg := r.stream().CachedInfo().Config
	cfg.MaxMsgs, cfg.Discard = 3, jetstream.DiscardOld
	if _, err := r.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		r.publish("k", []byte("more"), nil)
	}
	r.start()
	var gap *GapError
	r.eventually("a report", func() bool { return errors.As(check(r.cfg.Status, "partitions"), &gap) })
	r.halt()
	if gap.Checkpoint != 1 || gap.First != 9 {
		t.Errorf("%+v", gap)
	}
	if got, _, _ := r.text("k"); got != "stored" {
		t.Errorf("got %q", got)
	}
}

// TestTransformEdited: a message on a subject of another partition stops the
// partition before its text reaches a document.
func TestTransformEdited(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.cfg.Status = NewStatus()
	r.start()
	key := keyOf(1)
	r.stored(key, r.publish(key, []byte("in its place"), nil))
	cfg := r.stream().CachedInfo().Config
	cfg.SubjectTransform.Destination = "fragments.0.{{wildcard(1)}}"
	if _, err := r.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r.publish(key, []byte("stray"), nil)
	r.eventually("a report", func() bool {
		err := check(r.cfg.Status, "partitions")
		return err != nil && strings.Contains(err.Error(), "transform was edited")
	})
	r.halt()
	if got, _, _ := r.text(key); got != "in its place" {
		t.Errorf("got %q", got)
	}
}

// TestTwoMembers: of two members on one database each partition has one owner;
// when one dies the other takes its partitions over, exactly where it stood.
func TestTwoMembers(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	r.startUntil(ctx)
	r.load(1, 300, 10)
	r.eventually("something stored", func() bool { _, _, err := r.text("doc 1"); return err == nil })
	o := r.another(t)
	o.start()
	r.load(2, 300, 10)
	kill()
	if err := r.ends(10 * time.Second); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.load(3, 300, 10)
	o.exact()
	o.halt()
	r.acked()
}
