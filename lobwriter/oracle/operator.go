package oracle

import (
	"context"
	"errors"
	"slices"

	"github.com/lobsink/lobsink/lobwriter"
)

// Operator is a lobwriter.Operator of an Oracle database. It reads, rebuilds and
// deletes documents; it does not move checkpoints yet.
type Operator struct{ *Reader }

var _ lobwriter.Operator = (*Operator)(nil)

// OpenOperator opens the database to read and to change it beside running members,
// as Open does.
func OpenOperator(ctx context.Context, o Options) (*Operator, error) {
	r, err := OpenReader(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Operator{r}, nil
}

// Limits implements lobwriter.Operator.
func (op *Operator) Limits() lobwriter.Limits { return op.s.Limits() }

// pageRepairs is how many repairs one call returns.
const pageRepairs = 1000

// Repairs implements lobwriter.RepairReader.
func (r *Reader) Repairs(ctx context.Context, key string) ([]lobwriter.Repair, error) {
	const op = "read the repairs"
	var all []lobwriter.Repair
	var after lobwriter.Mark
	for {
		life, seq, omit, bytes, more := room(pageRepairs), room(pageRepairs), room(pageRepairs), room(pageRepairs), number{}
		if _, err := call(ctx, r.s.o, r.db(), op, repairsBlock, pageRepairs,
			in("p_key", key), in("p_after_life", after.Life), in("p_after_seq", int64(after.Seq)),
			out("p_life", &life), out("p_seq", &seq), out("p_omit", &omit), out("p_bytes", &bytes), out("p_more", &more)); err != nil {
			return nil, err
		}
		n := len(life)
		if !whole(n, life, seq, omit, bytes) || !given(more) {
			return nil, classify(op, errNoReply)
		}
		for i := range n {
			after = lobwriter.Mark{Life: life[i].Int64, Seq: uint64(seq[i].Int64)}
			one := lobwriter.Repair{Mark: after, Omit: omit[i].Int64 == 1}
			if !one.Omit {
				var err error
				if one.Text, err = r.repairText(ctx, key, after, bytes[i].Int64); err != nil {
					return nil, err
				}
			}
			all = append(all, one)
		}
		if more.Int64 == 0 || n == 0 {
			return all, nil
		}
	}
}

func (r *Reader) repairText(ctx context.Context, key string, m lobwriter.Mark, size int64) ([]byte, error) {
	const op = "read the repairs"
	text := make([]byte, 0, size)
	for from := int64(1); from <= size; {
		data, next := make([][]byte, 0, bodyPieces), number{}
		if _, err := call(ctx, r.s.o, r.db(), op, readRepairBlock, bodyPieces,
			in("p_key", key), in("p_life", m.Life), in("p_seq", int64(m.Seq)), in("p_from", from),
			out("p_data", &data), out("p_next", &next)); err != nil {
			return nil, err
		}
		text = append(text, slices.Concat(data...)...)
		if !next.Valid || next.Int64 != int64(len(text))+1 || next.Int64 <= from {
			return nil, classify(op, errNoReply)
		}
		from = next.Int64
	}
	return text, nil
}

// Purge implements lobwriter.Purger.
func (op *Operator) Purge(ctx context.Context, p lobwriter.Purge) (all lobwriter.Purged, err error) {
	pool := op.s.of(p.Partition)
	dryRun := int64(0)
	if p.DryRun {
		dryRun = 1
	}
	for keys := range slices.Chunk(p.Keys, pageRows) {
		var documents, bytes, above number
		if _, err := call(ctx, op.s.o, pool.documents, "purge", purgeBlock, len(keys),
			in("p_partition", int64(p.Partition)), in("p_key", keys), in("p_state", int64(p.State)), in("p_older", int64(p.Older)), in("p_dry_run", dryRun),
			out("p_documents", &documents), out("p_bytes", &bytes), out("p_above", &above)); err != nil {
			return all, err
		}
		if !given(documents, bytes, above) {
			return all, classify("purge", errNoReply)
		}
		all.Documents += int(documents.Int64)
		all.Bytes += bytes.Int64
		all.Above += int(above.Int64)
	}
	return all, nil
}

// MoveCheckpoint implements lobwriter.Checkpointer: it refuses.
func (op *Operator) MoveCheckpoint(context.Context, lobwriter.CheckpointMove) (lobwriter.Fence, error) {
	return lobwriter.Fence{}, errNotYet("move the checkpoint")
}

// Rebind implements lobwriter.Checkpointer: it refuses.
func (op *Operator) Rebind(context.Context, lobwriter.Rebinding) error { return errNotYet("rebind") }

func errNotYet(op string) error {
	return &lobwriter.Error{Kind: lobwriter.Fatal, Op: op, Err: errors.New("this is not possible with Oracle yet: its package has no call for it")}
}
