package consumer

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/lobsink/lobsink/internal/embednats"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// rig is a real server, a reference store and a running consumer.
type rig struct {
	t       *testing.T
	srv     *embednats.Server
	options embednats.Options // of the server
	nc      *nats.Conn
	js      jetstream.JetStream
	spec    StreamSpec
	store   *lobtest.Memory
	reader  lobwriter.Reader // of the database: store, unless a test has another one
	stop    chan struct{}
	ended   chan error
	cfg     Config
}

// TestMain looks for goroutines that outlive all tests: those of Run and of
// whatever a test forgot to end.
func TestMain(m *testing.M) {
	// Most tests here wait for leases and time-outs, not for a processor.
	_ = flag.Set("test.parallel", "6") // which -parallel overrides
	goleak.VerifyTestMain(m)
}

func newRig(t *testing.T, partitions int) *rig {
	t.Helper()
	return newRigOn(t, partitions, embednats.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
}

// newRigOn returns a rig whose server has options of its own. One that listens
// can be shut down and started again on its port.
func newRigOn(t *testing.T, partitions int, options embednats.Options) *rig {
	t.Helper()
	srv, err := embednats.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	connect := srv.Connect
	if options.Listen != "" {
		connect = func(options ...nats.Option) (*nats.Conn, error) { return nats.Connect(srv.ClientURL(), options...) }
	}
	nc, err := connect(nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, srv: srv, options: options, nc: nc, js: js,
		spec:  StreamSpec{Name: "FRAGMENTS", Root: "fragments", Partitions: partitions},
		store: lobtest.NewMemory(lobwriter.Limits{Documents: 1024, Bytes: 4 << 20, ChunkBytes: 32767}),
	}
	r.reader = r.store
	t.Cleanup(func() {
		nc.Close()
		r.srv.Shutdown()
	})
	if _, err := CreateStream(t.Context(), js, r.spec); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateDeadStream(t.Context(), js, r.spec.Name, 1); err != nil {
		t.Fatal(err)
	}
	r.cfg = Config{
		Store: r.store, NATS: nc, Stream: r.spec.Name, Root: r.spec.Root,
		Member: lobwriter.Member{ID: NewID(), Name: "test"},
		MaxAge: 20 * time.Millisecond, ChunkBytes: 1000, MaxFragment: 8 << 20, Memory: 1 << 30,
		Lease: time.Second, Renew: 300 * time.Millisecond, FlushTimeout: 800 * time.Millisecond, DrainTimeout: 10 * time.Second,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	if testing.Short() {
		r.cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return r
}

// start runs the consumer until halt.
func (r *rig) start() {
	r.stop, r.ended = make(chan struct{}), make(chan error, 1)
	go func() { r.ended <- Run(context.Background(), r.stop, r.cfg) }()
}

// halt stops the consumer softly.
func (r *rig) halt() {
	r.t.Helper()
	close(r.stop)
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Errorf("Run: %v", err)
		}
	case <-time.After(30 * time.Second):
		r.t.Fatal("Run did not end")
	}
}

func (r *rig) publish(key string, data []byte, header nats.Header) uint64 {
	r.t.Helper()
	token, err := Token(key)
	if err != nil {
		r.t.Fatal(err)
	}
	ack, err := r.js.PublishMsg(r.t.Context(), &nats.Msg{Subject: Layout{Root: r.spec.Root}.Subject(token), Data: data, Header: header})
	if err != nil {
		r.t.Fatal(err)
	}
	return ack.Sequence
}

// text reads a document back.
func (r *rig) text(key string) (string, lobwriter.Document, error) {
	var b strings.Builder
	d, err := r.reader.Read(r.t.Context(), key, func(p []byte) error {
		b.Write(p)
		return nil
	})
	return b.String(), d, err
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// stored waits until a document's mark has reached a sequence.
func (r *rig) stored(key string, seq uint64) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%q stored up to %d", key, seq), func() bool {
		_, d, err := r.text(key)
		return err == nil && d.Mark.Seq >= seq
	})
}

// acked checks the server's ack floors after a drain.
func (r *rig) acked() {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), r.spec.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	for info := range s.ListConsumers(r.t.Context()).Info() {
		if info.NumPending > 0 || info.NumAckPending > 0 {
			r.t.Errorf("consumer %s: %d pending, %d not acknowledged after a drain", info.Name, info.NumPending, info.NumAckPending)
		}
	}
}

func TestRun(t *testing.T) {
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d partitions", partitions), func(t *testing.T) {
			r := newRig(t, partitions)
			r.start()
			want := map[string]*strings.Builder{}
			last := map[string]uint64{}
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range 3000 {
				key := fmt.Sprintf("doc %d", rng.IntN(25))
				text := fmt.Sprintf("<r n=\"%d\">%s</r>\n", i, strings.Repeat("é😀", rng.IntN(20)))
				last[key] = r.publish(key, []byte(text), nil)
				if want[key] == nil {
					want[key] = &strings.Builder{}
				}
				want[key].WriteString(text)
			}
			for key := range want {
				r.stored(key, last[key])
			}
			r.halt()
			for key, b := range want {
				if got, _, _ := r.text(key); got != b.String() {
					t.Errorf("%s: %d bytes, want %d", key, len(got), b.Len())
				}
			}
			r.acked()
		})
	}
}
