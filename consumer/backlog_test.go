package consumer

import (
	"testing"

	"github.com/lobsink/lobsink/batcher"
)

// TestBacklogWithStraggler: a document that waits for an hour and never fills a
// chunk does not hold the acknowledgement of a backlog. What is read and not
// stored stays under the distance, one flush and one batch.
func TestBacklogWithStraggler(t *testing.T) {
	const (
		fragments = 250_000
		oneFlush  = 4 << 20 / 200
		most      = batcher.DefaultMaxDistance + oneFlush + pumpBatch
	)
	u := newPump(100, 200, 64, 0)
	straggler := Received{
		Fragment: batcher.Fragment{Key: "straggler", Seq: 1, Time: 1, Data: []byte("<waits/>")}, Consumer: 1, Deliveries: 1,
	}
	u.seq = 1
	u.p.Received(start, u.p.Turn(), []Received{straggler})
	highest := uint64(0)
	for u.seq < fragments {
		u.step()
		if !u.p.Owning() {
			t.Fatal("the turn ended")
		}
		highest = max(highest, u.seq-u.fence.Checkpoint.Seq)
	}
	if highest > most || highest < batcher.DefaultMaxDistance-pumpBatch {
		t.Errorf("up to %d messages were read and not stored, want about %d and at most %d", highest, batcher.DefaultMaxDistance, most)
	}
}
