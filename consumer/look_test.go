package consumer

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/internal/embednats"
	"github.com/lobsink/lobsink/lobwriter"
)

// TestLookAsksTheStream: whether a partition has more messages is what the stream
// says. The consumer's own count does for no more than a quick answer: under load
// the server has been seen to deliver and count messages long after it had stored
// and acknowledged them, and an idle checkpoint then passed them for good.
func TestLookAsksTheStream(t *testing.T) {
	for _, partitions := range []int{1, 2} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			srv, js := server(t, embednats.Options{Listen: "127.0.0.1:0"})
			if _, err := CreateStream(t.Context(), js, StreamSpec{Name: "S", Root: "s", Partitions: partitions}); err != nil {
				t.Fatal(err)
			}
			st, err := js.Stream(t.Context(), "S")
			if err != nil {
				t.Fatal(err)
			}
			layout, _, err := DescribeStream(st.CachedInfo())
			if err != nil {
				t.Fatal(err)
			}
			nc, err := srv.Connect()
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			s := &source{js: js, conn: nc, api: jetstream.DefaultAPIPrefix, name: "S", layout: layout}
			// The consumer begins far behind the end and so never counts anything,
			// as one does that has not been told of what is stored.
			pull, err := s.open(t.Context(), jetstream.ConsumerConfig{
				Durable: "D", DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 1 << 30,
				AckPolicy: jetstream.AckAllPolicy, FilterSubject: layout.Filter(0),
			})
			if err != nil {
				t.Fatal(err)
			}
			var own, last uint64 // the last message of partition 0, and of all
			for i := 0; own == 0 || last == own; i++ {
				key := fmt.Sprint("k", i)
				ack, err := js.Publish(t.Context(), "s."+key, []byte("x"))
				if err != nil {
					t.Fatal(err)
				}
				if last = ack.Sequence; own == 0 && PartitionOf(key, partitions) == 0 {
					own = last
				}
				if partitions == 1 && i == 1 {
					own = last
					break
				}
				if own != 0 && PartitionOf(key, partitions) == 0 {
					own = last
				}
			}
			look := func(read uint64) bool {
				t.Helper()
				l, err := s.look(t.Context(), pull, DoLook{Last: lobwriter.Position{Seq: read}, Read: read})
				if err != nil {
					t.Fatal(err)
				}
				if l.Last.Seq != last {
					t.Fatalf("the stream ends at %d, want %d", l.Last.Seq, last)
				}
				return l.More
			}
			if !look(own - 1) {
				t.Errorf("nothing follows %d, but message %d is stored", own-1, own)
			}
			if look(own) {
				t.Errorf("something follows %d, the last message of the partition", own)
			}
		})
	}
}
