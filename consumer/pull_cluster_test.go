package consumer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestReplicatedBacklog: a replicated consumer sends a message after its servers
// have agreed on it, and the answer that ends a pull at once: the answer comes
// before the messages that it stands behind. Nothing of what the server delivers
// may be lost by that, whether it is the number or the bytes that end a pull.
func TestReplicatedBacklog(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	ways := cluster(t)
	js := ways[0]
	deadline := time.Now().Add(2 * time.Minute)
	spec := StreamSpec{Name: "S", Root: "s", Partitions: 1, Replicas: 3}
	for _, err := CreateStream(t.Context(), js, spec); err != nil; _, err = CreateStream(t.Context(), js, spec) {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	const backlog = 2*fetchMessages + 100
	for i := range backlog {
		if _, err := js.PublishAsync("s.k", []byte(strings.Repeat("x", 200))); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			<-js.PublishAsyncComplete()
		}
	}
	<-js.PublishAsyncComplete()

	for _, c := range []struct {
		name  string
		bytes int64
	}{{"number", 64 << 20}, {"bytes", 256 << 10}} {
		t.Run(c.name, func(t *testing.T) {
			layout := Layout{Root: "s", Partitions: 1}
			s := &source{js: js, conn: js.Conn(), api: jetstream.DefaultAPIPrefix, name: "S", layout: layout, maxFragment: 1 << 20}
			p, err := s.open(t.Context(), jetstream.ConsumerConfig{
				Durable: "D-" + c.name, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 1,
				AckPolicy: jetstream.AckAllPolicy, AckWait: ackWait, MaxDeliver: -1, MaxAckPending: -1,
			})
			if err != nil {
				t.Fatal(err)
			}
			last := uint64(0)
			for last < backlog {
				p.begin()
				_, err := p.fetch(t.Context(), c.bytes, time.Second, func(batch []Received) {
					for _, r := range batch {
						if r.Consumer != last+1 {
							t.Fatalf("consumer sequence %d after %d: messages between were lost", r.Consumer, last)
						}
						last = r.Consumer
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				if time.Now().After(deadline) {
					t.Fatal(fmt.Sprintf("%d of %d messages", last, backlog))
				}
			}
		})
	}
}
