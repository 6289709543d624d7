package rebuild_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/embednats"
	"github.com/lobsink/lobsink/internal/rebuild"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/sqlite"
)

var messages = flag.Int("messages", 1_000_000, "how many messages the stream of BenchmarkReplay has")

// BenchmarkReplay builds one document of 100 fragments again out of a large stream,
// and compares that with a bare read of the same fragments by their subject. It
// reports how many times as long it takes ("times-bare-read").
func BenchmarkReplay(b *testing.B) {
	const partitions, fragments = 64, 100
	srv, err := embednats.Start(b.Context(), embednats.Options{Dir: b.TempDir(), Listen: "127.0.0.1:0", MaxPayload: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(srv.Shutdown)
	nc, err := srv.Connect()
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000))
	if err != nil {
		b.Fatal(err)
	}
	spec := consumer.StreamSpec{Name: "FRAGMENTS", Root: "fragments", Partitions: partitions}
	if _, err := consumer.CreateStream(b.Context(), js, spec); err != nil {
		b.Fatal(err)
	}
	if _, err := consumer.CreateDeadStream(b.Context(), js, spec.Name, 1); err != nil {
		b.Fatal(err)
	}
	documents := *messages / fragments
	text := strings.Repeat("x", 190)
	for i := range *messages {
		if _, err := js.PublishAsync(fmt.Sprintf("fragments.doc-%d", i%documents), fmt.Appendf(nil, "%010d%s", i, text)); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()

	key := fmt.Sprintf("doc-%d", documents/2)
	partition := consumer.PartitionOf(key, partitions)
	stream, err := consumer.OpenFragments(b.Context(), js, spec.Name, 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	o := sqlite.Options{Path: filepath.Join(b.TempDir(), "lobsink.db")}
	if _, _, err := sqlite.Setup(b.Context(), o); err != nil {
		b.Fatal(err)
	}
	store, err := sqlite.Open(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Bind(b.Context(), lobwriter.Stream{Name: spec.Name, Created: stream.Facts().Created, Partitions: partitions}); err != nil {
		b.Fatal(err)
	}
	claim, err := store.Claim(b.Context(), lobwriter.ClaimRequest{Partition: partition, MemberID: "00000000000000aa", ClaimID: "00000000000000cc", Lease: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	own := &lobtest.Owner{Store: store, Claim: claim, Rows: map[string]lobwriter.Row{}}
	for i := range fragments {
		n := documents/2 + i*documents
		own.Flush(b, own.Append(key, lobtest.Text(uint64(n+1), fmt.Sprintf("%010d%s", n, text))))
	}
	op, err := sqlite.OpenOperator(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	defer op.Close()
	r, err := rebuild.New(b.Context(), op, stream, consumer.NewDeadLetters(js, spec.Name))
	if err != nil {
		b.Fatal(err)
	}

	var bare, whole time.Duration
	for b.Loop() {
		start := time.Now()
		if n := bareRead(b, js, fmt.Sprintf("fragments.%d.%s", partition, key)); n != fragments {
			b.Fatalf("read %d fragments", n)
		}
		bare += time.Since(start)
		start = time.Now()
		res, err := r.Document(b.Context(), key, rebuild.Options{})
		if err != nil || res.After.Fragments != fragments {
			b.Fatalf("built %+v, %v", res, err)
		}
		whole += time.Since(start)
	}
	b.ReportMetric(float64(bare.Microseconds())/float64(b.N)/1000, "ms-bare-read")
	b.ReportMetric(float64(whole.Microseconds())/float64(b.N)/1000, "ms-replay")
	b.ReportMetric(float64(whole)/float64(bare), "times-bare-read")
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
