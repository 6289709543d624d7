package publish

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/embednats"
)

func start(t *testing.T, o embednats.Options) jetstream.JetStream {
	t.Helper()
	o.Dir, o.Log = t.TempDir(), slog.New(slog.DiscardHandler)
	srv, err := embednats.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := consumer.CreateStream(t.Context(), js, consumer.StreamSpec{Name: "S", Root: "s", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	return js
}

// contents reads the stream: key token to joined data.
func contents(t *testing.T, js jetstream.JetStream) map[string]string {
	t.Helper()
	s, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	state := s.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		got[strings.TrimPrefix(m.Subject, "s.")] += string(m.Data)
	}
	return got
}

func TestOrder(t *testing.T) {
	js := start(t, embednats.Options{})
	var last uint64
	p := New(js, Options{Layout: consumer.Layout{Root: "s", Partitions: 1}, Run: "r", Window: 7, Published: func(_ Fragment, seq uint64) { last = seq }})
	want := map[string]string{}
	for i := range 500 {
		f := Fragment{Key: fmt.Sprint("k", i%3), Data: fmt.Appendf(nil, "<%d/>", i), Index: uint64(i/3 + 1), Final: i > 496}
		want[f.Key] += string(f.Data)
		if err := p.Publish(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil || last != 500 {
		t.Fatalf("%v, last sequence %d", err, last)
	}
	for k, v := range contents(t, js) {
		if v != want[k] {
			t.Errorf("%s: %d bytes, want %d", k, len(v), len(want[k]))
		}
	}
}

// TestTooLarge/O48: what the server would not take is refused with its size, and
// what comes after it is stored.
func TestTooLarge(t *testing.T) {
	t.Run("O48", func(t *testing.T) {
		js := start(t, embednats.Options{MaxPayload: 64 << 10})
		p := New(js, Options{Layout: consumer.Layout{Root: "s", Partitions: 1}, Run: "r"})
		if err := p.Publish(t.Context(), Fragment{Key: "k", Data: make([]byte, 64<<10+1), Index: 1}); !errors.Is(err, ErrTooLarge) {
			t.Fatalf("%v, want %v", err, ErrTooLarge)
		}
		if err := errors.Join(p.Publish(t.Context(), Fragment{Key: "k", Data: []byte("0123456789"), Index: 2}), p.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, js)["k"]; got != "0123456789" {
			t.Errorf("got %q", got)
		}
	})
}

// TestFullStream: a stream that refuses ends the publishing, and what it has is
// a beginning of the document.
func TestFullStream(t *testing.T) {
	js := start(t, embednats.Options{})
	s, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgs = 10
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	p := New(js, Options{Layout: consumer.Layout{Root: "s", Partitions: 1}, Run: "r", Window: 5})
	var all string
	var failed error
	for i := range 50 {
		data := fmt.Sprintf("<%d/>", i)
		all += data
		if failed = p.Publish(t.Context(), Fragment{Key: "k", Data: []byte(data), Index: uint64(i + 1)}); failed != nil {
			break
		}
	}
	if failed == nil {
		t.Fatal("a full stream took everything")
	}
	if got := contents(t, js)["k"]; !strings.HasPrefix(all, got) || got == "" {
		t.Errorf("the stream has %q", got)
	}
}
