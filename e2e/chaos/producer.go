package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/e2e/chaos/check"
)

// producers publish the fragments of all documents: some at once, the others
// evenly over a time. Each document has one producer, which publishes one fragment
// at a time and repeats with the same Nats-Msg-Id what was not acknowledged.
type producers struct {
	js        jetstream.JetStream
	documents []*document
	fragments int // in all
	backlog   int // of them, how many are published at once
	over      time.Duration
	seed      uint64

	taken atomic.Int64  // how many fragments have been taken up
	ready chan struct{} // closed when the backlog is acknowledged
	began time.Time     // when that was

	mu    sync.Mutex
	acked check.Acked
}

func newProducers(o options, js jetstream.JetStream) *producers {
	return &producers{
		js: js, documents: newDocuments(o.seed, o.documents, o.fragments), fragments: o.fragments,
		backlog: max(1, o.fragments/backlogShare), over: o.phase, seed: o.seed,
		ready: make(chan struct{}), acked: check.Acked{},
	}
}

// backlogShare: of so many fragments, one is there before the first member is.
const backlogShare = 2

// workers is how many producers there are.
const workers = 32

// run publishes everything, or fails when ctx ends.
func (p *producers) run(ctx context.Context) error {
	errs := make(chan error, workers)
	for w := range workers {
		go func() { errs <- p.work(ctx, w) }()
	}
	var first error
	for range workers {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

// work publishes one producer's documents, interleaved.
func (p *producers) work(ctx context.Context, w int) error {
	rng := rand.New(rand.NewPCG(p.seed, uint64(w)<<8|'w'))
	var turns []*document // one for each fragment
	for i := w; i < len(p.documents); i += workers {
		for range p.documents[i].left {
			turns = append(turns, p.documents[i])
		}
	}
	rng.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
	for _, d := range turns {
		p.pace(ctx)
		text, number, last := d.fragment()
		msg := nats.NewMsg("fragments." + d.token())
		msg.Data = []byte(text)
		id := fmt.Sprintf("%s:%d", d.key, number)
		msg.Header.Set(jetstream.MsgIDHeader, id)
		if last && d.final {
			msg.Header.Set("Lobsink-Final", "true")
		}
		if err := p.publish(ctx, msg); err != nil {
			return fmt.Errorf("publishing %s: %w", id, err)
		}
		p.note(id, check.Publication{Key: d.key, Digest: check.DigestOf(text)})
	}
	return nil
}

// note takes in an acknowledgement.
func (p *producers) note(id string, published check.Publication) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.acked[id] = published; len(p.acked) == p.backlog {
		p.began = time.Now()
		close(p.ready)
	}
}

// pace waits until it is time for one more fragment. After an outage all
// producers catch up as fast as they can.
func (p *producers) pace(ctx context.Context) {
	n := int(p.taken.Add(1)) - p.backlog
	if n <= 0 {
		return
	}
	select {
	case <-p.ready:
	case <-ctx.Done():
		return
	}
	due := time.Duration(float64(p.over) * float64(n) / float64(p.fragments-p.backlog))
	sleep(ctx, due-time.Since(p.began))
}

// publish repeats until the server acknowledges.
func (p *producers) publish(ctx context.Context, msg *nats.Msg) error {
	var last error
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := p.js.PublishMsg(call, msg)
		cancel()
		if err == nil {
			return nil
		}
		last = err
		sleep(ctx, 100*time.Millisecond)
	}
	return fmt.Errorf("%w; last answer: %w", context.Cause(ctx), last)
}

// acknowledged returns what was acknowledged so far.
func (p *producers) acknowledged() check.Acked {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(check.Acked, len(p.acked))
	for id, publication := range p.acked {
		out[id] = publication
	}
	return out
}
