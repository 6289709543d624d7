package bench

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// discard is a store that stores nothing and says that it did. Reading into it
// costs what everything before a store costs.
type discard struct {
	limits lobwriter.Limits
	wanted int64
	// stored counts fragments; reached is closed when it is wanted.
	stored  atomic.Int64
	reached chan struct{}

	mu     sync.Mutex
	fences map[int]lobwriter.Fence
}

func newDiscard(l lobwriter.Limits, wanted int) *discard {
	return &discard{limits: l, wanted: int64(wanted), reached: make(chan struct{}), fences: map[int]lobwriter.Fence{}}
}

var _ lobwriter.Store = (*discard)(nil)

// Limits implements lobwriter.Store.
func (d *discard) Limits() lobwriter.Limits { return d.limits }

// Bind implements lobwriter.Store.
func (d *discard) Bind(_ context.Context, s lobwriter.Stream) (lobwriter.Binding, error) {
	return lobwriter.Binding{Stream: s, DatabaseID: "00000000", Life: 1}, nil
}

// Attend implements lobwriter.Store: the member is alone, and has all that it
// claimed.
func (d *discard) Attend(_ context.Context, m lobwriter.Member, lease time.Duration) (lobwriter.Roster, error) {
	r := lobwriter.Roster{Members: []lobwriter.Presence{{Member: m, Left: lease}}}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range slices.Sorted(maps.Keys(d.fences)) {
		r.Leases = append(r.Leases, lobwriter.Lease{Partition: p, MemberID: m.ID, Left: lease})
	}
	return r, nil
}

// Leave implements lobwriter.Store.
func (d *discard) Leave(context.Context, string) error { return nil }

// Claim implements lobwriter.Store.
func (d *discard) Claim(_ context.Context, r lobwriter.ClaimRequest) (lobwriter.Claim, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.fences[r.Partition]
	f.Life, f.Epoch, f.ClaimID, f.Flush = 1, f.Epoch+1, r.ClaimID, 0
	d.fences[r.Partition] = f
	return lobwriter.Claim{Partition: r.Partition, MemberID: r.MemberID, Fence: f}, nil
}

// Renew implements lobwriter.Store.
func (d *discard) Renew(ctx context.Context, c lobwriter.Claim, _ time.Duration) (lobwriter.Fence, error) {
	return d.Fence(ctx, c.Partition)
}

// Release implements lobwriter.Store.
func (d *discard) Release(context.Context, lobwriter.Claim) error { return nil }

// Fence implements lobwriter.Store.
func (d *discard) Fence(_ context.Context, partition int) (lobwriter.Fence, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fences[partition], nil
}

// Rows implements lobwriter.Store: there are none.
func (d *discard) Rows(_ context.Context, _ int, keys []string) ([]lobwriter.Row, error) {
	return make([]lobwriter.Row, len(keys)), nil
}

// Flush implements lobwriter.Store: everything is appended.
func (d *discard) Flush(_ context.Context, f *lobwriter.Flush) (lobwriter.Receipt, error) {
	more := int64(0)
	answers := make([]lobwriter.Answer, len(f.Groups))
	for i := range f.Groups {
		answers[i].Status = lobwriter.Appended
		more += f.Groups[i].After.Fragments - f.Groups[i].Believed.Fragments
	}
	d.mu.Lock()
	fence := d.fences[f.Partition]
	fence.Flush = f.Number + 1
	if f.Checkpoint.Seq > fence.Checkpoint.Seq {
		fence.Checkpoint = f.Checkpoint
	}
	if f.Highest.Seq > fence.Highest.Seq {
		fence.Highest = f.Highest
	}
	d.fences[f.Partition] = fence
	d.mu.Unlock()
	if now := d.stored.Add(more); now >= d.wanted && now-more < d.wanted {
		close(d.reached)
	}
	return lobwriter.Receipt{Number: fence.Flush, Checkpoint: fence.Checkpoint, Answers: answers}, nil
}

// Close implements lobwriter.Store.
func (d *discard) Close() error { return nil }
