package lobtest

import (
	"context"
	"slices"

	"github.com/lobsink/lobsink/lobwriter"
)

// MoveCheckpoint implements lobwriter.Checkpointer.
func (m *Memory) MoveCheckpoint(ctx context.Context, c lobwriter.CheckpointMove) (lobwriter.Fence, error) {
	defer m.lock()()
	f := m.fence(c.Partition)
	if ctx.Err() != nil {
		return lobwriter.Fence{}, ctx.Err()
	}
	if f.Life != c.Life || f.Checkpoint != c.From {
		return lobwriter.Fence{}, &lobwriter.FencedError{Stored: f}
	}
	if err := c.BelowPurged(m.tables.purged[c.Partition]); err != nil {
		return lobwriter.Fence{}, err
	}
	f.Epoch++
	f.ClaimID, f.Flush, f.Checkpoint = c.ClaimID, 0, c.To
	if c.To.Seq > f.Highest.Seq {
		f.Highest = c.To
	}
	m.tables.fences[c.Partition] = f
	for key, d := range m.tables.documents {
		if c.Reason != "" && d.Partition == c.Partition && d.State == lobwriter.Open && (c.Keys == nil || slices.Contains(c.Keys, key)) {
			d.State, d.Reason, d.UpdatedAt = lobwriter.Incomplete, c.Reason, m.Now()
			m.tables.documents[key] = d
		}
	}
	return f, nil
}

// Rebind implements lobwriter.Checkpointer.
func (m *Memory) Rebind(ctx context.Context, r lobwriter.Rebinding) error {
	defer m.lock()()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if m.tables.binding != r.From {
		return &lobwriter.FencedError{Stored: m.fence(0)}
	}
	for p, l := range m.tables.leases {
		if r.From.Partitions != r.To.Partitions && l.until > m.Now() {
			return failure("rebind", lobwriter.Held, "partition %d is held by %s", p, l.memberID)
		}
	}
	fences := map[int]lobwriter.Fence{}
	for p := range r.To.Partitions {
		f := m.fence(p)
		fences[p] = lobwriter.Fence{Life: r.To.Life, Epoch: f.Epoch + 1, ClaimID: r.ClaimID, Checkpoint: r.Checkpoint, Highest: r.Checkpoint}
	}
	m.tables.binding, m.tables.fences = r.To, fences
	if r.PartitionOf != nil {
		var last lobwriter.Mark
		for _, mark := range m.tables.purged {
			if last.Before(mark) {
				last = mark
			}
		}
		for p := range r.To.Partitions {
			m.tables.purged[p] = last
		}
	}
	for key, d := range m.tables.documents {
		if r.PartitionOf != nil {
			d.Partition = r.PartitionOf(key)
		}
		if r.Restart && (d.State == lobwriter.Open || d.State == lobwriter.Incomplete) {
			d.Row, d.text, d.repairs, d.UpdatedAt = d.Restarted(r.To.Life), nil, nil, m.Now()
		}
		m.tables.documents[key] = d
	}
	return nil
}
