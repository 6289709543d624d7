package consumer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// BenchmarkReceived is what turning a message into a fragment costs, outside
// nats.go.
func BenchmarkReceived(b *testing.B) {
	s := &source{layout: Layout{Root: "fragments", Partitions: 8}, maxFragment: 1 << 20}
	for _, c := range []struct {
		name, token string
		header      nats.Header
	}{
		{"plain", "doc-1", nil},
		{"index", "doc-1", nats.Header{HeaderIndex: {"17"}}},
		{"escaped key", "doc%201", nil},
	} {
		m := &nats.Msg{
			Subject: fmt.Sprintf("fragments.%d.%s", PartitionOf(c.token, 8), c.token), Header: c.header,
			Reply: "$JS.ACK.FRAGMENTS.lobsink-0badcafe-0-1-12345678.1.123456.123456.1764556490000000000.1000",
			Data:  []byte(strings.Repeat("x", 200)),
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r := s.received(m); r.Fragment.Hole != nil || r.Stray != nil {
					b.Fatal(r)
				}
			}
		})
	}
}
