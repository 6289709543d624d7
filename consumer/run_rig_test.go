package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lobsink/lobsink/internal/embednats"
	"github.com/lobsink/lobsink/lobwriter"
)

// gated is a store whose calls pass gates that a test can close: one before the
// call, one after it, where an error means that the reply was lost.
type gated struct {
	lobwriter.Store
	mu            sync.Mutex
	before, after gate
}

// gate lets a call pass, after whatever time, or fails it.
type gate func(ctx context.Context, op string, partition int) error

func (g *gated) set(before, after gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before, g.after = before, after
}

func passing[T any](ctx context.Context, g *gated, op string, partition int, call func() (T, error)) (T, error) {
	g.mu.Lock()
	before, after := g.before, g.after
	g.mu.Unlock()
	var zero T
	if before != nil {
		if err := before(ctx, op, partition); err != nil {
			return zero, err
		}
	}
	v, err := call()
	if err == nil && after != nil {
		if err := after(ctx, op, partition); err != nil {
			return zero, err
		}
	}
	return v, err
}

func (g *gated) Bind(ctx context.Context, s lobwriter.Stream) (lobwriter.Binding, error) {
	return passing(ctx, g, "bind", -1, func() (lobwriter.Binding, error) { return g.Store.Bind(ctx, s) })
}

func (g *gated) Attend(ctx context.Context, m lobwriter.Member, lease time.Duration) (lobwriter.Roster, error) {
	return passing(ctx, g, "attend", -1, func() (lobwriter.Roster, error) { return g.Store.Attend(ctx, m, lease) })
}

func (g *gated) Leave(ctx context.Context, id string) error {
	_, err := passing(ctx, g, "leave", -1, func() (any, error) { return nil, g.Store.Leave(ctx, id) })
	return err
}

func (g *gated) Claim(ctx context.Context, r lobwriter.ClaimRequest) (lobwriter.Claim, error) {
	return passing(ctx, g, "claim", r.Partition, func() (lobwriter.Claim, error) { return g.Store.Claim(ctx, r) })
}

func (g *gated) Renew(ctx context.Context, c lobwriter.Claim, lease time.Duration) (lobwriter.Fence, error) {
	return passing(ctx, g, "renew", c.Partition, func() (lobwriter.Fence, error) { return g.Store.Renew(ctx, c, lease) })
}

func (g *gated) Release(ctx context.Context, c lobwriter.Claim) error {
	_, err := passing(ctx, g, "release", c.Partition, func() (any, error) { return nil, g.Store.Release(ctx, c) })
	return err
}

func (g *gated) Fence(ctx context.Context, partition int) (lobwriter.Fence, error) {
	return passing(ctx, g, "fence", partition, func() (lobwriter.Fence, error) { return g.Store.Fence(ctx, partition) })
}

func (g *gated) Rows(ctx context.Context, partition int, keys []string) ([]lobwriter.Row, error) {
	return passing(ctx, g, "rows", partition, func() ([]lobwriter.Row, error) { return g.Store.Rows(ctx, partition, keys) })
}

func (g *gated) Flush(ctx context.Context, f *lobwriter.Flush) (lobwriter.Receipt, error) {
	return passing(ctx, g, "flush", f.Partition, func() (lobwriter.Receipt, error) { return g.Store.Flush(ctx, f) })
}

// hanging is a gate that holds the calls of op until their contexts end. entered
// is closed when the first one hangs.
func hanging(op string) (g gate, entered <-chan struct{}) {
	hung := make(chan struct{})
	var once sync.Once
	return func(ctx context.Context, o string, _ int) error {
		if o != op {
			return nil
		}
		once.Do(func() { close(hung) })
		<-ctx.Done()
		return ctx.Err()
	}, hung
}

// errAway is what an absent database says.
var errAway = errors.New("connection refused")

func away(context.Context, string, int) error { return errAway }

// gate puts gates in front of the rig's store.
func (r *rig) gate() *gated {
	g := &gated{Store: r.store}
	r.cfg.Store = g
	return g
}

// load publishes n fragments of documents from 0 to docs.
func (r *rig) load(seed uint64, n, docs int) {
	r.t.Helper()
	rng := rand.New(rand.NewPCG(seed, seed))
	for i := range n {
		text := fmt.Sprintf("<r n=\"%d\">%s</r>\n", i, strings.Repeat("é😀", rng.IntN(20)))
		token, _ := Token(fmt.Sprintf("doc %d", rng.IntN(docs)))
		// Whether it was stored is read from the stream in the end.
		_ = r.nc.Publish(Layout{Root: r.spec.Root}.Subject(token), []byte(text))
		if i%50 == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// truth reads from the stream what every document must be, and its last
// sequence.
func (r *rig) truth() (texts map[string]string, last map[string]uint64) {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), r.spec.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	built := map[string]*strings.Builder{}
	last = map[string]uint64{}
	state := s.CachedInfo().State
	layout := Layout{Root: r.spec.Root, Partitions: r.spec.Partitions}
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		m, err := s.GetMsg(r.t.Context(), seq)
		if err != nil {
			continue // deleted
		}
		_, token, err := layout.Parse(m.Subject)
		if err != nil {
			r.t.Fatal(err)
		}
		key, err := Key(token)
		if err != nil {
			r.t.Fatal(err)
		}
		if built[key] == nil {
			built[key] = &strings.Builder{}
		}
		built[key].Write(m.Data)
		last[key] = seq
	}
	texts = map[string]string{}
	for key, b := range built {
		texts[key] = b.String()
	}
	return texts, last
}

// exact waits until everything in the stream is stored, and compares.
func (r *rig) exact() {
	r.t.Helper()
	// Once this is confirmed, everything published before it is in the stream.
	r.eventually("a confirmation", func() bool {
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		defer cancel()
		_, err := r.js.Publish(ctx, Layout{Root: r.spec.Root}.Subject("end"), []byte("."))
		return err == nil
	})
	texts, last := r.truth()
	for key, seq := range last {
		r.stored(key, seq)
	}
	for key, want := range texts {
		if got, _, _ := r.text(key); got != want {
			r.t.Errorf("%s: %d bytes, want the stream's %d", key, len(got), len(want))
		}
	}
}

// ends waits for Run to return.
func (r *rig) ends(within time.Duration) error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(within):
		r.t.Fatalf("Run did not end within %v", within)
		return nil
	}
}

// startUntil starts the consumer with a context.
func (r *rig) startUntil(ctx context.Context) {
	r.stop, r.ended = make(chan struct{}), make(chan error, 1)
	go func(stop chan struct{}, ended chan error, cfg Config) { ended <- Run(ctx, stop, cfg) }(r.stop, r.ended, r.cfg)
}

// check returns the error of a check of the status.
func check(s *Status, name string) error {
	for _, c := range s.Checks() {
		if c.Name == name {
			return c.Err
		}
	}
	return fmt.Errorf("no check %s", name)
}

// restart stops the server, and starts it again on its folder and port.
func (r *rig) restart(down time.Duration) {
	r.t.Helper()
	url := r.srv.ClientURL()
	r.srv.Shutdown()
	time.Sleep(down)
	o := r.options
	o.Listen = url
	srv, err := embednats.Start(r.t.Context(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.srv = srv
}

// epoch is how often partition 0 was claimed.
func (r *rig) epoch() int64 {
	r.t.Helper()
	f, err := r.store.Fence(r.t.Context(), 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return f.Epoch
}

// patient gives the consumer a lease that a busy machine does not let run out,
// for tests that count claims.
func (r *rig) patient() {
	r.cfg.Lease, r.cfg.FlushTimeout = 30*time.Second, 20*time.Second
}

// another returns a second member beside r: another connection, the same stream
// and database.
func (r *rig) another(t *testing.T) *rig {
	t.Helper()
	o := *r
	nc, err := r.srv.Connect(nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	o.nc = nc
	o.cfg.NATS = nc
	o.cfg.Member = lobwriter.Member{ID: NewID(), Name: "another"}
	o.cfg.Status = nil
	return &o
}
