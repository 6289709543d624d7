package consumer

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/internal/embednats"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// BenchmarkRun drains a filled stream into the reference store: what reading,
// batching and acknowledging cost by themselves, server included.
func BenchmarkRun(b *testing.B) {
	const fragments, documents, size = 200_000, 500, 200
	for _, partitions := range []int{1, 8} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				drain(b, partitions, fragments, documents, size)
			}
			b.ReportMetric(float64(fragments*b.N)/b.Elapsed().Seconds(), "fragments/s")
		})
	}
}

// drain runs the consumer over a stream that it fills first; only the run is
// timed.
func drain(b *testing.B, partitions, fragments, documents, size int) {
	srv, err := embednats.Start(b.Context(), embednats.Options{Dir: b.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Shutdown()
	nc, err := srv.Connect()
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := CreateStream(b.Context(), js, StreamSpec{Name: "FRAGMENTS", Root: "fragments", Partitions: partitions}); err != nil {
		b.Fatal(err)
	}
	if _, err := CreateDeadStream(b.Context(), js, "FRAGMENTS", 1); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range fragments {
		data := make([]byte, size)
		for i := range data {
			data[i] = 'a' + byte(rng.IntN(26))
		}
		if _, err := js.PublishMsgAsync(&nats.Msg{Subject: fmt.Sprintf("fragments.doc-%d", rng.IntN(documents)), Data: data}); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	store := lobtest.NewMemory(lobwriter.Limits{Documents: 1024, Bytes: 4 << 20, ChunkBytes: 32767})
	stop, ended := make(chan struct{}), make(chan error, 1)
	b.StartTimer()
	go func() {
		ended <- Run(b.Context(), stop, Config{
			Store: store, NATS: nc, Stream: "FRAGMENTS", Root: "fragments", Member: lobwriter.Member{ID: NewID()},
			MaxAge: time.Second, ChunkBytes: 32767, MaxFragment: 8 << 20, Memory: 256 << 20,
			Lease: 10 * time.Second, Renew: 3 * time.Second, FlushTimeout: 8 * time.Second, DrainTimeout: time.Minute,
			Log: slog.New(slog.DiscardHandler),
		})
	}()
	for stored := int64(0); stored < int64(fragments); time.Sleep(5 * time.Millisecond) {
		docs, err := store.Documents(b.Context(), lobwriter.Query{Limit: documents})
		if err != nil {
			b.Fatal(err)
		}
		stored = 0
		for _, d := range docs {
			stored += d.Fragments
		}
	}
	b.StopTimer()
	close(stop)
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}
