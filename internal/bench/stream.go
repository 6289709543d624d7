package bench

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/consumer"
)

// stream is the stream of the benchmark.
type stream struct {
	js     jetstream.JetStream
	name   string
	layout consumer.Layout
}

func (p *Pipeline) stream() (*stream, error) {
	js, err := jetstream.New(p.Config.NATS)
	if err != nil {
		return nil, err
	}
	return &stream{js: js, name: p.Config.Stream,
		layout: consumer.Layout{Root: p.Config.Root, Partitions: p.Partitions}}, nil
}

func (s *stream) create(ctx context.Context) error {
	spec := consumer.StreamSpec{Name: s.name, Root: s.layout.Root, Partitions: s.layout.Partitions}
	if _, err := consumer.CreateStream(ctx, s.js, spec); err != nil {
		return err
	}
	_, err := consumer.CreateDeadStream(ctx, s.js, s.name, 1)
	return err
}

func (s *stream) remove(ctx context.Context) error {
	for _, name := range []string{s.name, consumer.DeadStream(s.name)} {
		if err := s.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
	}
	return nil
}

// clear removes all consumers.
func (s *stream) clear(ctx context.Context) error {
	st, err := s.js.Stream(ctx, s.name)
	if err != nil {
		return err
	}
	names := st.ConsumerNames(ctx)
	for name := range names.Name() {
		if err := st.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		}
	}
	return names.Err()
}
