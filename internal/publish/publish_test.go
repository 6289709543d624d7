package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/embednats"
)

// rig is a real server with a stream.
type rig struct {
	t      *testing.T
	nc     *nats.Conn
	js     jetstream.JetStream
	layout consumer.Layout
	url    string // "": it listens to nobody
}

func start(t *testing.T, o embednats.Options, partitions int, change func(*jetstream.StreamConfig)) *rig {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
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
	r := newRig(t, nc, partitions, change)
	r.url = srv.ClientURL()
	return r
}

func newRig(t *testing.T, nc *nats.Conn, partitions int, change func(*jetstream.StreamConfig)) *rig {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	spec := consumer.StreamSpec{Name: "S", Root: "s", Partitions: partitions}
	cfg := spec.Config()
	if change != nil {
		change(&cfg)
	}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, nc: nc, js: js, layout: consumer.Layout{Root: "s", Partitions: partitions}}
}

func (r *rig) stream() jetstream.Stream {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), "S")
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) publisher(o Options) *Publisher {
	r.t.Helper()
	p, err := New(r.nc, r.stream(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// stored is what the stream has of a key.
type stored struct {
	text    string
	indexes []string
	final   int // fragments that say so
}

func (r *rig) contents() map[string]stored {
	r.t.Helper()
	s := r.stream()
	got := map[string]stored{}
	state := s.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		m, err := s.GetMsg(r.t.Context(), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		_, token, err := r.layout.Parse(m.Subject)
		if err != nil {
			r.t.Fatal(err)
		}
		d := got[token]
		d.text += string(m.Data)
		d.indexes = append(d.indexes, m.Header.Get(consumer.HeaderIndex))
		if m.Header.Get(consumer.HeaderFinal) == "true" {
			d.final++
		}
		got[token] = d
	}
	return got
}

// wantText fails unless the stream has exactly these documents.
func (r *rig) wantText(want map[string]string) {
	r.t.Helper()
	got := map[string]string{}
	for key, d := range r.contents() {
		got[key] = d.text
	}
	for key := range want {
		if got[key] != want[key] {
			r.t.Errorf("%s has %d bytes, want %d; it begins %.80q", key, len(got[key]), len(want[key]), got[key])
		}
	}
	if len(got) != len(want) {
		r.t.Errorf("documents %q", slices.Collect(maps.Keys(got)))
	}
}

// publishAll publishes fragments of some keys in turn, the last ones final.
func publishAll(ctx context.Context, p *Publisher, keys, fragments int) (want map[string]string, err error) {
	want = map[string]string{}
	for i := range fragments {
		f := Fragment{Key: fmt.Sprint("k", i%keys), Data: fmt.Appendf(nil, "<%d/>", i), Final: i >= fragments-keys}
		want[f.Key] += string(f.Data)
		if err == nil {
			err = p.Publish(ctx, f)
		}
	}
	if err == nil {
		err = p.Flush(ctx)
	}
	return want, err
}

func TestOrder(t *testing.T) {
	for _, c := range []struct{ partitions, keys, perKey int }{{1, 1, 1}, {1, 1, 20}, {1, 50, 1}, {4, 50, 3}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			r := start(t, embednats.Options{}, c.partitions, nil)
			var seqs []uint64
			p := r.publisher(Options{Window: 7, PerKey: c.perKey, Published: func(_ Fragment, seq uint64) { seqs = append(seqs, seq) }})
			want, err := publishAll(t.Context(), p, c.keys, 500)
			if err != nil {
				t.Fatal(err)
			}
			if len(seqs) != 500 || !slices.IsSorted(seqs) {
				t.Errorf("told of %d fragments, sorted %t", len(seqs), slices.IsSorted(seqs))
			}
			r.wantText(want)
			for key, d := range r.contents() {
				for i, index := range d.indexes {
					if index != fmt.Sprint(i+1) {
						t.Fatalf("%s: fragment %d has index %s", key, i+1, index)
					}
				}
				if d.final != 1 {
					t.Errorf("%s: %d final fragments", key, d.final)
				}
			}
		})
	}
}

// TestTooLarge/O48: what the server would not take is refused with its size, and
// what comes after it is stored.
func TestTooLarge(t *testing.T) {
	t.Run("O48", func(t *testing.T) {
		r := start(t, embednats.Options{MaxPayload: 1 << 20}, 1, nil)
		checkLimit(t, r, 1<<20)
	})
	t.Run("the stream's limit", func(t *testing.T) {
		r := start(t, embednats.Options{}, 1, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 32 << 10 })
		checkLimit(t, r, 32<<10)
	})
}

func checkLimit(t *testing.T, r *rig, limit int) {
	key := strings.Repeat("ß", 127) // each byte becomes three, twice in a message
	p := r.publisher(Options{})
	if err := p.Publish(t.Context(), Fragment{Key: key, Data: make([]byte, limit+1)}); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("%v, want %v", err, ErrTooLarge)
	}
	room := Room(r.nc, r.stream().CachedInfo())
	if room < limit-2<<10 {
		t.Errorf("room for %d bytes, the limit is %d", room, limit)
	}
	largest := bytes.Repeat([]byte("x"), room)
	for _, data := range [][]byte{[]byte("0123456789"), largest} {
		if err := p.Publish(t.Context(), Fragment{Key: key, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	token, _ := consumer.Token(key)
	r.wantText(map[string]string{token: "0123456789" + string(largest)})
}

func TestBadKey(t *testing.T) {
	r := start(t, embednats.Options{}, 1, nil)
	p := r.publisher(Options{})
	for _, key := range []string{"", "a\x00b", strings.Repeat("x", 256), "\xff"} {
		if err := p.Publish(t.Context(), Fragment{Key: key}); err == nil {
			t.Errorf("key %q is taken", key)
		}
	}
	if err := p.Publish(t.Context(), Fragment{Key: "a.b *>\té", Data: []byte("x")}); err != nil {
		t.Error(err)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFullStream: a stream that refuses is asked again; when it has room, what it
// gets is what was published.
func TestFullStream(t *testing.T) {
	r := start(t, embednats.Options{}, 1, func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 })
	t.Run("for good", func(t *testing.T) {
		p := r.publisher(Options{RetryFor: 100 * time.Millisecond})
		want, err := publishAll(t.Context(), p, 1, 50)
		var api *jetstream.APIError
		if !errors.As(err, &api) || p.Flush(t.Context()) == nil || p.Publish(t.Context(), Fragment{Key: "other"}) == nil {
			t.Fatalf("%v, and the publisher goes on", err)
		}
		if got := r.contents()["k0"].text; !strings.HasPrefix(want["k0"], got) || got == "" {
			t.Errorf("the stream has %q", got)
		}
	})
	t.Run("for a while", func(t *testing.T) {
		p := r.publisher(Options{Log: slog.New(onLog(func() {
			cfg := r.stream().CachedInfo().Config
			cfg.MaxMsgs = -1
			if _, err := r.js.UpdateStream(t.Context(), cfg); err != nil {
				t.Error(err)
			}
		}))})
		if err := r.stream().Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		want, err := publishAll(t.Context(), p, 3, 50)
		if err != nil {
			t.Fatal(err)
		}
		r.wantText(want)
	})
}

// onLog is a log that calls a function instead.
type onLog func()

func (onLog) Enabled(context.Context, slog.Level) bool { return true }
func (f onLog) Handle(context.Context, slog.Record) error {
	f()
	return nil
}
func (f onLog) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f onLog) WithGroup(string) slog.Handler      { return f }

// TestGoOn: a second run with the same name goes on where the first one ended.
func TestGoOn(t *testing.T) {
	r := start(t, embednats.Options{}, 2, nil)
	part := func(run string, from, to int, end bool) error {
		p := r.publisher(Options{Run: run})
		for i := from; i < to; i++ {
			if err := p.Publish(t.Context(), Fragment{Key: "k", Data: fmt.Appendf(nil, "<%d/>", i), Final: end && i == to-1}); err != nil {
				return err
			}
		}
		return p.Flush(t.Context())
	}
	text := func(to int) (s string) {
		for i := range to {
			s += fmt.Sprintf("<%d/>", i)
		}
		return s
	}
	check := func(step string, err error, want string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		r.wantText(map[string]string{"k": want})
	}
	check("some", part("one", 0, 4, false), text(4))
	check("the same again", part("one", 0, 4, false), text(4))
	check("the rest", part("one", 0, 7, false), text(7))
	check("another run appends", part("two", 7, 9, false), text(9))
	check("and completes", part("three", 9, 12, true), text(12))
	check("again", part("three", 9, 12, true), text(12))
	if d := r.contents()["k"]; fmt.Sprint(d.indexes) != "[1 2 3 4 5 6 7 8 9 10 11 12]" || d.final != 1 {
		t.Errorf("%+v", d)
	}
	if err := part("four", 0, 1, false); !errors.Is(err, ErrComplete) {
		t.Errorf("after the final fragment: %v, want %v", err, ErrComplete)
	}
	for _, changed := range [][2]int{{8, 11}, {9, 11}, {8, 10}} {
		if err := part("three", changed[0], changed[1], true); !errors.Is(err, ErrChanged) {
			t.Errorf("other fragments under the name of an earlier run: %v, want %v", err, ErrChanged)
		}
	}
	r.wantText(map[string]string{"k": text(12)})
}

// TestUnnumbered: behind fragments that somebody published without numbers there
// are none either; beginning at 1 would look like a repetition.
func TestUnnumbered(t *testing.T) {
	r := start(t, embednats.Options{}, 1, nil)
	if _, err := r.js.Publish(t.Context(), "s.k", []byte("by hand,")); err != nil {
		t.Fatal(err)
	}
	p := r.publisher(Options{})
	if err := errors.Join(p.Publish(t.Context(), Fragment{Key: "k", Data: []byte("by us")}), p.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	if d := r.contents()["k"]; d.text != "by hand,by us" || fmt.Sprintf("%q", d.indexes) != `["" ""]` {
		t.Errorf("%+v", d)
	}
}

func TestFinalIsTheLast(t *testing.T) {
	r := start(t, embednats.Options{}, 1, nil)
	p := r.publisher(Options{})
	if err := p.Publish(t.Context(), Fragment{Key: "k", Final: true}); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(t.Context(), Fragment{Key: "k", Data: []byte("late")}); !errors.Is(err, ErrComplete) {
		t.Errorf("%v, want %v", err, ErrComplete)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wantText(map[string]string{"k": ""})
}

func TestConnection(t *testing.T) {
	r := start(t, embednats.Options{Listen: "127.0.0.1:0"}, 1, nil)
	var nc *nats.Conn
	var err error
	for range 50 { // a busy machine may need a moment to accept
		if nc, err = nats.Connect(r.url); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := New(nc, r.stream(), Options{}); err == nil {
		t.Error("a connection that keeps messages for later is taken")
	}
}
