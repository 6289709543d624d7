package consumer

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// pump drives an owning Partition with batches of fragments, and answers what it
// asks at once: everything is appended.
type pump struct {
	p     *Partition
	keys  []string
	text  []byte
	rng   *rand.Rand
	batch []Received
	seq   uint64
	fence lobwriter.Fence
}

const pumpBatch = 256

// newPump returns a pump for a number of documents, whose groups have about
// perGroup fragments of size bytes. distance is batcher.Limits.MaxDistance.
func newPump(documents, size, perGroup int, distance uint64) *pump {
	u := &pump{
		p: New(Options{
			Binding: lobwriter.Binding{Stream: lobwriter.Stream{Name: "FRAGMENTS", Created: 1, Partitions: 1}, Life: 1},
			Batch:   batcher.Limits{MaxAge: time.Hour, ChunkBytes: size * perGroup, MaxDistance: distance},
			Flush:   lobwriter.Limits{Documents: 1024, Bytes: 4 << 20, ChunkBytes: 32767},
			// Nothing of this is the subject.
			MaxMessage: 1 << 20, Rows: 1 << 30, Lease: time.Hour, Renew: time.Hour, Quiet: time.Hour,
		}),
		keys: make([]string, documents), text: make([]byte, size), rng: rand.New(rand.NewPCG(1, 1)),
		batch: make([]Received, pumpBatch),
		fence: lobwriter.Fence{Life: 1, Epoch: 1, ClaimID: "00000000000000aa"},
	}
	for i := range u.text {
		u.text[i] = 'x'
	}
	for i := range u.keys {
		u.keys[i] = fmt.Sprintf("order-%08d", i)
	}
	u.p.Allow(1 << 40)
	u.p.Connected(start, true)
	u.perform()
	return u
}

// step brings one batch.
func (u *pump) step() {
	for i := range u.batch {
		u.seq++
		u.batch[i] = Received{
			Fragment: batcher.Fragment{Key: u.keys[u.rng.IntN(len(u.keys))], Seq: u.seq, Time: int64(u.seq), Data: u.text},
			Consumer: u.seq, Deliveries: 1,
		}
	}
	u.p.Received(start, u.p.Turn(), u.batch)
	u.perform()
}

func (u *pump) perform() {
	for actions := u.p.Actions(); len(actions) > 0; actions = u.p.Actions() {
		for _, a := range actions {
			u.answer(a)
		}
	}
}

func (u *pump) answer(a Action) {
	turn := u.p.Turn()
	switch a := a.(type) {
	case DoClaim:
		u.p.Claimed(start, turn, start, lobwriter.Claim{Fence: u.fence}, nil)
	case DoInspect:
		u.p.Inspected(start, turn, Inspection{StreamFacts: StreamFacts{Created: 1, First: 1}}, nil)
	case DoOpen:
		u.p.Opened(start, turn, nil)
	case DoConfirm:
		u.p.Confirmed(start, turn, u.fence, nil)
	case DoRead:
		u.p.RowsRead(start, turn, make([]lobwriter.Row, len(a.Keys)), nil)
	case DoFlush:
		r := lobwriter.Receipt{Number: a.Flush.Number + 1, Checkpoint: a.Flush.Checkpoint, Answers: make([]lobwriter.Answer, len(a.Flush.Groups))}
		for i := range r.Answers {
			r.Answers[i].Status = lobwriter.Appended
		}
		if r.Checkpoint.Seq < u.fence.Checkpoint.Seq {
			r.Checkpoint = u.fence.Checkpoint
		}
		u.fence.Checkpoint = r.Checkpoint
		u.p.Flushed(start, turn, r, nil)
	case DoAck:
		u.p.Acked(start, turn, a.Seq, nil)
	}
}

// BenchmarkPartition is the way of a fragment through a Partition: received,
// batched, composed into a flush, answered, acknowledged. There are about 16
// fragments in a group.
func BenchmarkPartition(b *testing.B) {
	for _, documents := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("documents=%d", documents), func(b *testing.B) {
			u := newPump(documents, 200, 16, 1<<40)
			for range 4 * documents / pumpBatch { // open documents, known rows
				u.step()
			}
			if !u.p.Owning() {
				b.Fatal("the turn ended")
			}
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += pumpBatch {
				u.step()
			}
		})
	}
}
