package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/consumer"
)

// The window of messages that are not answered yet.
const (
	windowMessages = 4000
	windowBytes    = 16 << 20
)

// maxStall is how long nothing may happen before a measurement gives up.
const maxStall = 2 * time.Minute

// publisher publishes workloads to the benchmark's stream, which refuses nothing:
// one that is not stored is an error, and nothing is published again.
type publisher struct {
	js     jetstream.JetStream
	root   string
	failed chan error // the first failure
}

func newPublisher(nc *nats.Conn, root string, size int) (*publisher, error) {
	window := max(1, min(windowMessages, windowBytes/size))
	failed := make(chan error, 1)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(window),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) {
			select {
			case failed <- err:
			default:
			}
		}))
	if err != nil {
		return nil, err
	}
	return &publisher{js, root, failed}, nil
}

// fill publishes a workload as fast as the server takes it.
func (p *publisher) fill(ctx context.Context, w *Workload, progress func(int)) error {
	err := w.Each(func(document, number int, last bool) error {
		if err := p.publish(w, document, number, last); err != nil {
			return err
		}
		progress(1)
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	return p.settle(ctx)
}

func (p *publisher) publish(w *Workload, document, number int, last bool) error {
	m := &nats.Msg{
		Subject: p.root + "." + w.Key(document),
		Data:    w.Append(make([]byte, 0, w.Size+3), document, number),
	}
	if last {
		m.Header = nats.Header{consumer.HeaderFinal: {"true"}}
	}
	_, err := p.js.PublishMsgAsync(m, jetstream.WithStallWait(maxStall))
	return err
}

// settle waits until everything is answered.
func (p *publisher) settle(ctx context.Context) error {
	select {
	case <-p.js.PublishAsyncComplete():
		select {
		case err := <-p.failed:
			return fmt.Errorf("publishing: %w", err)
		default:
			return nil
		}
	case <-time.After(maxStall):
		return errors.New("the stream stores nothing any more")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// trickle publishes a workload at a steady rate, per second, and tells when each
// fragment should have been published: a publisher that is late is no excuse.
func (p *publisher) trickle(ctx context.Context, w *Workload, rate int, due func(key string, at time.Time)) error {
	began, i := time.Now(), 0
	err := w.Each(func(document, number int, last bool) error {
		at := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		i++
		if wait := time.Until(at); wait > 0 {
			time.Sleep(wait)
		}
		due(w.Key(document), at)
		return errors.Join(p.publish(w, document, number, last), ctx.Err())
	})
	if err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	return p.settle(ctx)
}
