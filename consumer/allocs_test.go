package consumer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestAllocationsReceived: turning a message into a fragment allocates nothing,
// but a copy where the payload shares an array with headers, and a key that is
// written differently from its token.
func TestAllocationsReceived(t *testing.T) {
	s := &source{layout: Layout{Root: "fragments", Partitions: 8}, maxFragment: 1 << 20}
	for _, c := range []struct {
		name, token string
		header      nats.Header
		most        float64
	}{
		{"plain", "doc-1", nil, 0},
		{"index", "doc-1", nats.Header{HeaderIndex: {"17"}}, 1},
		{"escaped key", "doc%201", nil, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &nats.Msg{
				Subject: fmt.Sprintf("fragments.%d.%s", PartitionOf(c.token, 8), c.token), Header: c.header,
				Reply: "$JS.ACK.FRAGMENTS.lobsink-0badcafe-0-1-12345678.1.123456.123456.1764556490000000000.1000",
				Data:  []byte(strings.Repeat("x", 200)),
			}
			m.Size() // counts the headers once
			got := testing.AllocsPerRun(100, func() {
				if r := s.received(m); r.Fragment.Hole != nil || r.Stray != nil {
					t.Fatal(r)
				}
			})
			if got > c.most {
				t.Errorf("%v allocations, at most %v", got, c.most)
			}
		})
	}
}

// TestAllocationsPartition: a fragment's way through a Partition allocates once,
// for the fragment that is held, and what its share of a group and of a flush is.
func TestAllocationsPartition(t *testing.T) {
	u := newPump(100, 200, 64, 0)
	for range 200 {
		u.step()
	}
	const most = 1.3
	if got := testing.AllocsPerRun(100, u.step) / pumpBatch; got > most {
		t.Errorf("%.2f allocations per fragment, at most %v", got, most)
	}
	if !u.p.Owning() {
		t.Fatal("the turn ended")
	}
}
