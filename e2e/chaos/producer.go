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

// producers publish the fragments of all documents, evenly over a time. Each
// document has one producer, which publishes one fragment at a time and repeats
// with the same Nats-Msg-Id what was not acknowledged.
type producers struct {
	js        jetstream.JetStream
	documents []*document
	fragments int // in all
	over      time.Duration
	seed      uint64

	began time.Time
	taken atomic.Int64 // how many fragments have been taken up

	mu    sync.Mutex
	acked check.Acked
}

// workers is how many producers there are.
const workers = 32

// run publishes everything, or fails when ctx ends.
func (p *producers) run(ctx context.Context) error {
	p.acked = check.Acked{}
	p.began = time.Now()
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
		p.mu.Lock()
		p.acked[id] = check.Publication{Key: d.key, Digest: check.DigestOf(text)}
		p.mu.Unlock()
	}
	return nil
}

// pace waits until it is time for one more fragment. After an outage all
// producers catch up as fast as they can.
func (p *producers) pace(ctx context.Context) {
	due := time.Duration(float64(p.over) * float64(p.taken.Add(1)) / float64(p.fragments))
	select {
	case <-time.After(due - time.Since(p.began)):
	case <-ctx.Done():
	}
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
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
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
