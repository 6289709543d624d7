package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/lobsink/lobsink/internal/embednats"
)

var errLost = errors.New("the answer got lost")

// unanswered publishes fragments of the key k and forgets the answers of some.
func unanswered(t *testing.T, p *Publisher, fragments int, lost func(number uint64) bool) {
	t.Helper()
	for i := range fragments {
		if err := p.Publish(t.Context(), Fragment{Key: "k", Data: fmt.Appendf(nil, "<%d/>", i+1)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range p.sent {
		if err := m.await(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lost(m.number) {
			m.seq, m.err = 0, errLost
		}
	}
}

// TestLostAnswers: what is repeated although it was stored is stored once, even
// when the stream no longer remembers message IDs.
func TestLostAnswers(t *testing.T) {
	for _, window := range []time.Duration{100 * time.Millisecond, 2 * time.Minute} {
		t.Run(window.String(), func(t *testing.T) {
			r := start(t, embednats.Options{}, 2, func(c *jetstream.StreamConfig) { c.Duplicates = window })
			p := r.publisher(Options{PerKey: 10})
			unanswered(t, p, 10, func(n uint64) bool { return n%3 == 1 })
			if window < time.Second {
				time.Sleep(3 * window)
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.wantText(map[string]string{"k": "<1/><2/><3/><4/><5/><6/><7/><8/><9/><10/>"})
		})
	}
}

// TestLostMessages: what was not stored is stored behind the fragment before it
// if nothing else is; otherwise publishing ends and says so.
func TestLostMessages(t *testing.T) {
	forget := func(r *rig, seqs ...uint64) {
		t.Helper()
		for _, seq := range seqs {
			if err := r.stream().DeleteMsg(t.Context(), seq); err != nil {
				t.Fatal(err)
			}
		}
	}
	short := func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond }
	t.Run("at the end", func(t *testing.T) {
		r := start(t, embednats.Options{}, 1, short)
		p := r.publisher(Options{PerKey: 10})
		unanswered(t, p, 5, func(n uint64) bool { return n >= 3 })
		forget(r, 3, 4, 5)
		time.Sleep(300 * time.Millisecond)
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for seq := range uint64(8) {
			if m, err := r.stream().GetMsg(t.Context(), seq+1); err == nil {
				text.Write(m.Data)
			}
		}
		if text.String() != "<1/><2/><3/><4/><5/>" {
			t.Errorf("the stream has %q", text.String())
		}
	})
	t.Run("in the middle", func(t *testing.T) {
		r := start(t, embednats.Options{}, 1, short)
		p := r.publisher(Options{PerKey: 10})
		// Fragment 3 is not stored. It does not matter whether the answer of 4
		// is known.
		unanswered(t, p, 5, func(n uint64) bool { return n == 3 || n == 4 })
		forget(r, 3)
		time.Sleep(300 * time.Millisecond)
		var broken *BrokenError
		err := p.Flush(t.Context())
		if !errors.As(err, &broken) || broken.Key != "k" || broken.Number != 3 || !errors.Is(err, errLost) {
			t.Errorf("%v, want a BrokenError of fragment 3", err)
		}
		if last := r.stream().CachedInfo().State.LastSeq; last != 5 {
			t.Errorf("something was published behind it, at %d", last)
		}
	})
}

// TestRestart: a server that restarts in the middle puts nothing out of order.
// With one fragment of a key under way publishing always succeeds; with more it
// may say that a document is broken.
func TestRestart(t *testing.T) {
	for _, perKey := range []int{1, 100} {
		t.Run(fmt.Sprintf("%d under way", perKey), func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
			dir, listen := t.TempDir(), "127.0.0.1:0"
			launch := func() *embednats.Server {
				t.Helper()
				srv, err := embednats.Start(t.Context(), embednats.Options{Dir: dir, Listen: listen, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				listen = strings.TrimPrefix(srv.ClientURL(), "nats://")
				return srv
			}
			srv := launch()
			defer func() { srv.Shutdown() }()
			nc, err := nats.Connect(srv.ClientURL(), append(ConnectOptions(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))...)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			r := newRig(t, nc, 1, nil)
			begun, ended := make(chan struct{}), make(chan struct{})
			count := 0
			p := r.publisher(Options{PerKey: perKey, AnswerWithin: time.Second, Published: func(Fragment, uint64) {
				if count++; count == 2000 {
					close(begun)
				}
			}})
			var want map[string]string
			go func() {
				defer close(ended)
				want, err = publishAll(context.WithoutCancel(t.Context()), p, 7, 10_000)
			}()
			<-begun
			srv.Shutdown()
			srv = launch()
			<-ended
			var broken *BrokenError
			switch {
			case err == nil:
				r.wantText(want)
			case perKey > 1 && errors.As(err, &broken):
				t.Log(err)
			default:
				t.Fatal(err)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	r := start(t, embednats.Options{}, 1, func(c *jetstream.StreamConfig) { c.MaxMsgs = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	p := r.publisher(Options{Log: slog.New(onLog(cancel))})
	if _, err := publishAll(ctx, p, 1, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}
