package lobtest

import (
	"context"
	"slices"

	"github.com/lobsink/lobsink/lobwriter"
)

var _ lobwriter.Operator = (*Memory)(nil)

// build is a generation of a document of a Memory.
type build struct {
	m          *Memory
	partition  int
	key        string
	generation int64
	text       []byte
	chunks     int64
}

// Build implements lobwriter.Rebuilder.
func (m *Memory) Build(ctx context.Context, partition int, key string, generation int64) (lobwriter.Build, error) {
	return &build{m: m, partition: partition, key: key, generation: generation}, ctx.Err()
}

// Append implements lobwriter.Build.
func (b *build) Append(ctx context.Context, chunks [][]byte) error {
	for _, c := range chunks {
		if why := refusal(c); why != "" {
			return failure("build", lobwriter.Invalid, "%s", why)
		}
		b.text = append(b.text, c...)
		b.chunks++
	}
	return ctx.Err()
}

// Swap implements lobwriter.Build.
func (b *build) Swap(ctx context.Context, row lobwriter.Row, repairs []lobwriter.Repair) (lobwriter.Row, bool, error) {
	defer b.m.lock()()
	switch {
	case ctx.Err() != nil:
		return lobwriter.Row{}, false, ctx.Err()
	case row.Generation != b.generation || row.Chunks != b.chunks || row.Bytes != int64(len(b.text)):
		return lobwriter.Row{}, false, failure("swap", lobwriter.Invalid, "the row does not describe the build: %+v", row)
	}
	d := b.m.tables.documents[b.key]
	if !lobwriter.MaySwap(b.m.fence(b.partition), d.Row, row) {
		return d.Row, false, nil
	}
	d.UpdatedAt = b.m.Now()
	if d.Absent() {
		d.Key, d.Partition, d.CreatedAt = b.key, b.partition, d.UpdatedAt
	}
	d.Row, d.text, d.repairs = row, slices.Clip(b.text), slices.Clone(repairs)
	b.m.tables.documents[b.key] = d
	return row, true, nil
}

// Close implements lobwriter.Build.
func (b *build) Close() error { return nil }

// Repairs implements lobwriter.RepairReader.
func (m *Memory) Repairs(ctx context.Context, key string) ([]lobwriter.Repair, error) {
	defer m.lock()()
	return slices.Clone(m.tables.documents[key].repairs), ctx.Err()
}

// Purge implements lobwriter.Purger.
func (m *Memory) Purge(ctx context.Context, p lobwriter.Purge) (done lobwriter.Purged, err error) {
	defer m.lock()()
	f := m.fence(p.Partition)
	checkpoint, beyond := lobwriter.Mark{Life: f.Life, Seq: f.Checkpoint.Seq}, false
	for _, key := range p.Keys {
		d, ok := m.tables.documents[key]
		switch {
		case !ok || d.Partition != p.Partition || d.State != p.State || d.UpdatedAt > m.Now()-int64(p.Older):
			continue
		case checkpoint.Before(d.Mark):
			done.Above++
			continue
		}
		done.Documents++
		done.Bytes += d.Bytes
		if !p.DryRun {
			delete(m.tables.documents, key)
			beyond = beyond || m.tables.purged[p.Partition].Before(d.Mark)
		}
	}
	if beyond {
		f.Flush += 2
		m.tables.purged[p.Partition], m.tables.fences[p.Partition] = checkpoint, f
	}
	return done, ctx.Err()
}
