package check

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ReadStream reads a whole stream in its order, up to its last message at the
// moment of the call. The key is the last token of the subject, percent-encoded.
// It is an error if the stream lacks one of its messages.
func ReadStream(ctx context.Context, server, name string) (Stream, error) {
	nc, err := nats.Connect(server, nats.MaxReconnects(-1))
	if err != nil {
		return nil, fmt.Errorf("reading the stream: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("reading the stream: %w", err)
	}
	state := s.CachedInfo().State
	out := Stream{}
	if state.LastSeq == 0 {
		return out, nil
	}
	if state.Msgs != state.LastSeq {
		return nil, fmt.Errorf("reading the stream: it ends at %d and has %d messages, so some are gone", state.LastSeq, state.Msgs)
	}
	consumer, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, fmt.Errorf("reading the stream: %w", err)
	}
	it, err := consumer.Messages()
	if err != nil {
		return nil, fmt.Errorf("reading the stream: %w", err)
	}
	defer it.Stop()
	// Not until nothing is pending: a replica that is behind says that too early.
	for want := uint64(1); want <= state.LastSeq; want++ {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("reading the stream at sequence %d of %d: %w", want, state.LastSeq, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		if meta.Sequence.Stream != want {
			return nil, fmt.Errorf("reading the stream: sequence %d comes in place of %d", meta.Sequence.Stream, want)
		}
		subject := m.Subject()
		key, err := url.PathUnescape(subject[strings.LastIndexByte(subject, '.')+1:])
		if err != nil {
			return nil, fmt.Errorf("reading the stream: sequence %d: %w", want, err)
		}
		out[key] = append(out[key], Fragment{
			Seq: want, ID: m.Headers().Get("Nats-Msg-Id"), Data: string(m.Data()), Final: m.Headers().Get("Lobsink-Final") == "true",
		})
	}
	return out, nil
}
