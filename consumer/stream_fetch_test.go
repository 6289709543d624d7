package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/internal/embednats"
)

// TestFetch pins what reading depends on and nats.go does not promise: how a
// fetch ends. A new version that ends one differently must show here, not as a
// claim that starts again for no reason (O41) or never.
func TestFetch(t *testing.T) {
	srv, js := server(t, embednats.Options{Listen: "127.0.0.1:0"})
	ctx := t.Context()
	if _, err := CreateStream(ctx, js, StreamSpec{Name: "S", Root: "s", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	cfg := jetstream.ConsumerConfig{Durable: "D", AckPolicy: jetstream.AckAllPolicy, AckWait: time.Hour}
	c := consumerOf(t, js, cfg)

	t.Run("no messages", func(t *testing.T) {
		fetched(t, c, 0, nil, nil, jetstream.FetchMaxWait(200*time.Millisecond))
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		fetched(t, c, 0, nil, nil, jetstream.FetchContext(soon))
	})
	t.Run("canceled", func(t *testing.T) {
		stop, cancel := context.WithCancel(ctx)
		fetched(t, c, 0, context.Canceled, cancel, jetstream.FetchContext(stop))
	})
	t.Run("wait and context", func(t *testing.T) {
		if _, err := c.Fetch(1, jetstream.FetchMaxWait(time.Second), jetstream.FetchContext(ctx)); !errors.Is(err, jetstream.ErrInvalidOption) {
			t.Errorf("%v, want %v", err, jetstream.ErrInvalidOption)
		}
	})
	t.Run("bytes and count", func(t *testing.T) {
		for range 5 {
			if _, err := js.Publish(ctx, "s.k", make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		wait := jetstream.FetchMaxWait(time.Second)
		fetched(t, c, 2, nil, nil, wait, jetstream.FetchMaxBytes(2500))
		// A limit below the next message brings nothing, and no error.
		fetched(t, c, 0, nil, nil, wait, jetstream.FetchMaxBytes(500))
		fetched(t, c, 3, nil, nil, wait, jetstream.FetchMaxBytes(1<<20))
	})
	t.Run("create", func(t *testing.T) {
		// Only an identical one is taken for a repeat of the first request.
		consumerOf(t, js, cfg)
		other := cfg
		other.AckWait = time.Minute
		if _, err := js.CreateConsumer(ctx, "S", other); !errors.Is(err, jetstream.ErrConsumerExists) {
			t.Errorf("%v, want %v", err, jetstream.ErrConsumerExists)
		}
	})
	t.Run("O41", func(t *testing.T) {
		remove := func() { _ = js.DeleteConsumer(ctx, "S", "D") }
		fetched(t, c, 0, jetstream.ErrConsumerDeleted, remove, jetstream.FetchMaxWait(20*time.Second))
		// Then nobody answers a request; but one that comes while the server is
		// still busy deleting is swallowed, and looks like no messages.
		for deadline := time.Now().Add(20 * time.Second); ; {
			batch, err := c.Fetch(1, jetstream.FetchMaxWait(200*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			for range batch.Messages() {
				t.Error("a message of a deleted consumer")
			}
			if err = batch.Error(); errors.Is(err, nats.ErrNoResponders) {
				break
			}
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("%v, want %v", err, nats.ErrNoResponders)
			}
		}
	})
	t.Run("connection", func(t *testing.T) {
		nc, err := nats.Connect(srv.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		remote, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		cfg.DeliverPolicy = jetstream.DeliverNewPolicy
		c := consumerOf(t, remote, cfg)
		// Nothing tells that the connection broke: it looks like no messages.
		fetched(t, c, 0, nil, func() { _ = nc.ForceReconnect() }, jetstream.FetchMaxWait(time.Second))
		fetched(t, c, 0, jetstream.ErrServerShutdown, srv.Shutdown, jetstream.FetchMaxWait(20*time.Second))
		fetched(t, c, 0, nil, nil, jetstream.FetchMaxWait(200*time.Millisecond))
		nc.Close()
		if _, err := c.Fetch(1); !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("%v, want %v", err, nats.ErrConnectionClosed)
		}
	})
}

func consumerOf(t *testing.T, js jetstream.JetStream, cfg jetstream.ConsumerConfig) jetstream.Consumer {
	t.Helper()
	c, err := js.CreateConsumer(t.Context(), "S", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fetched expects a fetch to bring so many messages and to end with an error,
// while something happens.
func fetched(t *testing.T, c jetstream.Consumer, messages int, end error, meanwhile func(), opts ...jetstream.FetchOpt) {
	t.Helper()
	batch, err := c.Fetch(1000, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if meanwhile != nil {
		time.AfterFunc(50*time.Millisecond, meanwhile)
	}
	n := 0
	for range batch.Messages() {
		n++
	}
	if err := batch.Error(); n != messages || !errors.Is(err, end) || (err == nil) != (end == nil) {
		t.Errorf("%d messages, %v; want %d, %v", n, err, messages, end)
	}
}
