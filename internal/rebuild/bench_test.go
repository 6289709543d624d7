package rebuild_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/embednats"
	"github.com/lobsink/lobsink/internal/rebuild"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/sqlite"
)

var messages = flag.Int("messages", 1_000_000, "how many messages the stream of BenchmarkReplay has")

// stage is a stream with documents, a database, and a rebuilder between them.
type stage struct {
	js        jetstream.JetStream
	documents int
	partition int // of the documents that are stored
	rebuilder *rebuild.Rebuilder
	own       *lobtest.Owner
	total     int
}

// fragment is the n-th message of the stream: documents take turns.
func fragment(n int) batcher.Fragment {
	return lobtest.Text(uint64(n+1), fmt.Sprintf("%010d%s", n, strings.Repeat("x", 190)))
}

func (s *stage) key(document int) string { return fmt.Sprintf("doc-%d", document) }

func newStage(b *testing.B, messages, fragments, partitions int) *stage {
	s := &stage{documents: messages / fragments, total: messages}
	srv, err := embednats.Start(b.Context(), embednats.Options{Dir: b.TempDir(), Listen: "127.0.0.1:0", MaxPayload: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(srv.Shutdown)
	nc, err := srv.Connect()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	if s.js, err = jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000)); err != nil {
		b.Fatal(err)
	}
	spec := consumer.StreamSpec{Name: "FRAGMENTS", Root: "fragments", Partitions: partitions}
	if _, err := consumer.CreateStream(b.Context(), s.js, spec); err != nil {
		b.Fatal(err)
	}
	if _, err := consumer.CreateDeadStream(b.Context(), s.js, spec.Name, 1); err != nil {
		b.Fatal(err)
	}
	for i := range messages {
		if _, err := s.js.PublishAsync("fragments."+s.key(i%s.documents), fragment(i).Data); err != nil {
			b.Fatal(err)
		}
	}
	<-s.js.PublishAsyncComplete()
	s.partition = consumer.PartitionOf(s.key(s.documents/2), partitions)
	s.open(b, partitions)
	return s
}

// open makes the database, owns a partition of it, and opens the rebuilder.
func (s *stage) open(b *testing.B, partitions int) {
	o := sqlite.Options{Path: filepath.Join(b.TempDir(), "lobsink.db")}
	if _, _, err := sqlite.Setup(b.Context(), o); err != nil {
		b.Fatal(err)
	}
	store, err := sqlite.Open(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close() })
	stream, err := consumer.OpenFragments(b.Context(), s.js, "FRAGMENTS", 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := store.Bind(b.Context(), lobwriter.Stream{Name: "FRAGMENTS", Created: stream.Facts().Created, Partitions: partitions}); err != nil {
		b.Fatal(err)
	}
	claim, err := store.Claim(b.Context(), lobwriter.ClaimRequest{Partition: s.partition, MemberID: "00000000000000aa", ClaimID: "00000000000000cc", Lease: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	s.own = &lobtest.Owner{Store: store, Claim: claim, Rows: map[string]lobwriter.Row{}}
	op, err := sqlite.OpenOperator(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { op.Close() })
	if s.rebuilder, err = rebuild.New(b.Context(), op, stream, consumer.NewDeadLetters(s.js, "FRAGMENTS")); err != nil {
		b.Fatal(err)
	}
}

// store stores a document.
func (s *stage) store(b *testing.B, document int) {
	var fragments []batcher.Fragment
	for n := document; n < s.total; n += s.documents {
		fragments = append(fragments, fragment(n))
	}
	s.own.Flush(b, s.own.Append(s.key(document), fragments...))
}

// BenchmarkReplay builds one document of 100 fragments again out of a large stream,
// and compares that with a bare read of the same fragments by their subject. It
// reports how many times as long it takes ("times-bare-read").
func BenchmarkReplay(b *testing.B) {
	const fragments = 100
	s := newStage(b, *messages, fragments, 64)
	s.store(b, s.documents/2)
	key := s.key(s.documents / 2)
	var bare, whole time.Duration
	for b.Loop() {
		start := time.Now()
		if n := bareRead(b, s.js, fmt.Sprintf("fragments.%d.%s", s.partition, key)); n != fragments {
			b.Fatalf("read %d fragments", n)
		}
		bare += time.Since(start)
		start = time.Now()
		res, err := s.rebuilder.Document(b.Context(), key, rebuild.Options{})
		if err != nil || res.After.Fragments != fragments {
			b.Fatalf("built %+v, %v", res, err)
		}
		whole += time.Since(start)
	}
	b.ReportMetric(float64(bare.Microseconds())/float64(b.N)/1000, "ms-bare-read")
	b.ReportMetric(float64(whole.Microseconds())/float64(b.N)/1000, "ms-replay")
	b.ReportMetric(float64(whole)/float64(bare), "times-bare-read")
}

// BenchmarkReplayMany builds all of many small documents again: one by one, and in
// passes over the stream.
func BenchmarkReplayMany(b *testing.B) {
	const fragments, documents = 10, 2000
	s := newStage(b, fragments*documents, fragments, 1)
	keys := make([]string, documents)
	for i := range documents {
		keys[i] = s.key(i)
		s.store(b, i)
	}
	check := func(_ string, res rebuild.Result, err error) error {
		if err != nil || res.After.Fragments != fragments {
			b.Fatalf("built %+v, %v", res, err)
		}
		return nil
	}
	for name, all := range map[string]func(){
		"one by one": func() {
			for _, key := range keys {
				res, err := s.rebuilder.Document(b.Context(), key, rebuild.Options{})
				check(key, res, err)
			}
		},
		"in passes": func() {
			if err := s.rebuilder.Batch(b.Context(), keys, rebuild.Options{}, check); err != nil {
				b.Fatal(err)
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				all()
			}
			b.ReportMetric(float64(documents*b.N)/b.Elapsed().Seconds(), "documents/s")
		})
	}
}

// bareRead reads what is stored under a subject, by plain means.
func bareRead(b *testing.B, js jetstream.JetStream, subject string) (n int) {
	c, err := js.CreateConsumer(b.Context(), "FRAGMENTS", jetstream.ConsumerConfig{
		FilterSubject: subject, AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, InactiveThreshold: time.Minute,
	})
	if err != nil {
		b.Fatal(err)
	}
	batch, err := c.FetchNoWait(1000)
	if err != nil {
		b.Fatal(err)
	}
	for range batch.Messages() {
		n++
	}
	if err := js.DeleteConsumer(b.Context(), "FRAGMENTS", c.CachedInfo().Name); err != nil {
		b.Fatal(err)
	}
	return n
}
