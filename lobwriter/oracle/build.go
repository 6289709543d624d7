package oracle

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"

	"github.com/lobsink/lobsink/lobwriter"
)

// build is a generation in one transaction, which takes no lock that an owner could
// wait for until it is swapped in.
type build struct {
	o          Options
	conn       *sql.Conn
	tx         *sql.Tx
	partition  int
	key        string
	generation int64
	chunks     int64
	// failed: the session is in no known state.
	failed bool
}

// Build implements lobwriter.Rebuilder.
func (op *Operator) Build(ctx context.Context, partition int, key string, generation int64) (lobwriter.Build, error) {
	const name = "begin a build"
	pool := op.s.of(partition)
	conn, err := pool.documents.Conn(ctx)
	if err != nil {
		return nil, classify(name, err)
	}
	b := &build{o: op.s.o, conn: conn, partition: partition, key: key, generation: generation}
	// The transaction outlives the call: Close ends it.
	if b.tx, err = conn.BeginTx(context.WithoutCancel(ctx), nil); err == nil {
		err = b.call(ctx, name, beginBuildBlock, 0, b.which()...)
	}
	if err != nil {
		b.failed = true
		_ = b.Close() // the first error counts
		return nil, classify(name, err)
	}
	return b, nil
}

// which are the binds that say what is built.
func (b *build) which() []any {
	return []any{in("p_partition", int64(b.partition)), in("p_key", b.key), in("p_generation", b.generation)}
}

// call makes a call within the transaction.
func (b *build) call(ctx context.Context, op, block string, n int, binds ...any) error {
	ctx, cancel := deadline(ctx, b.o.FlushTimeout)
	defer cancel()
	_, err := b.tx.ExecContext(tagged(ctx, op, b.o.clientInfo()), b.o.in(block), append(callOptions(n), binds...)...)
	b.failed = b.failed || err != nil
	return classify(op, err)
}

// fillChunks is how many chunks one call appends: about 1 MiB.
const fillChunks = 32

// Append implements lobwriter.Build. The database takes any bytes, so that what is
// no text is found here.
func (b *build) Append(ctx context.Context, chunks [][]byte) error {
	const op = "build a document"
	for _, c := range chunks {
		if !isText(c) {
			return &lobwriter.Error{Kind: lobwriter.Invalid, Op: op, Code: codeText(20815), Err: fmt.Errorf("the text of %q is not UTF-8, or has U+0000", b.key)}
		}
	}
	for part := range slices.Chunk(chunks, fillChunks) {
		if err := b.call(ctx, op, appendBuildBlock, len(part), append(b.which(), in("p_data", part))...); err != nil {
			return err
		}
		b.chunks += int64(len(part))
	}
	return nil
}

// Swap implements lobwriter.Build.
func (b *build) Swap(ctx context.Context, row lobwriter.Row, repairs []lobwriter.Repair) (stored lobwriter.Row, swapped bool, err error) {
	const op = "swap a document"
	if row.Chunks != b.chunks || row.Generation != b.generation {
		return lobwriter.Row{}, false, &lobwriter.Error{Kind: lobwriter.Invalid, Op: op,
			Err: fmt.Errorf("generation %d has %d chunks, not generation %d with %d", b.generation, b.chunks, row.Generation, row.Chunks)}
	}
	var outcome number
	var o rowOut
	binds := []any{
		in("p_partition", int64(b.partition)), in("p_key", b.key), in("p_generation", row.Generation), in("p_state", int64(row.State)),
		in("p_life", row.Mark.Life), in("p_seq", int64(row.Mark.Seq)), in("p_first_seq", int64(row.First)),
		in("p_fragments", row.Fragments), in("p_holes", row.Holes), in("p_late", row.Late), in("p_bytes", row.Bytes), in("p_units", row.Units),
		in("p_chunks", row.Chunks), in("p_crc", int64(row.CRC)), in("p_reason", storable(row.Reason)),
	}
	repairBinds, n := bindRepairs(repairs)
	binds = slices.Concat(binds, repairBinds, []any{out("p_outcome", &outcome)}, o.binds())
	if err := b.call(ctx, op, swapBuildBlock, n, binds...); err != nil {
		return lobwriter.Row{}, false, err
	}
	if stored, err = o.row(); err != nil {
		return lobwriter.Row{}, false, classify(op, err)
	}
	switch outcome.Int64 {
	case swapDone:
	case swapRefused:
		return stored, false, nil
	default:
		return lobwriter.Row{}, false, classify(op, errNoReply)
	}
	err = b.tx.Commit()
	b.tx, b.failed = nil, b.failed || err != nil
	if err != nil {
		return lobwriter.Row{}, false, classify(op, err)
	}
	return row, true, nil
}

// The outcomes of a swap.
const (
	swapDone    = 1
	swapRefused = 2
)

// bindRepairs lays repairs out; n is the length of the longest table.
func bindRepairs(repairs []lobwriter.Repair) (binds []any, n int) {
	life, seq, omit, pieces, data := make([]int64, len(repairs)), make([]int64, len(repairs)), make([]int64, len(repairs)), make([]int64, len(repairs)), [][]byte{}
	for i, one := range repairs {
		life[i], seq[i] = one.Mark.Life, int64(one.Mark.Seq)
		if one.Omit {
			omit[i] = 1
			continue
		}
		for piece := range slices.Chunk(one.Text, maxChunkBytes) {
			data = append(data, piece)
			pieces[i]++
		}
	}
	return []any{
		in("p_repair_life", life), in("p_repair_seq", seq), in("p_repair_omit", omit), in("p_repair_pieces", pieces), in("p_repair_data", data),
	}, max(len(repairs), len(data))
}

// Close implements lobwriter.Build.
func (b *build) Close() error {
	if b.tx != nil {
		err := b.tx.Rollback()
		b.tx, b.failed = nil, b.failed || err != nil
	}
	if b.failed {
		// The end of the session is the end of the transaction too.
		_ = b.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = b.conn.Close() // nothing is left that could be lost
	return nil
}

// rowOut takes one document row.
type rowOut struct {
	generation, state, life, seq, first, fragments, holes, late, bytes, units, chunks, crc number
	reason                                                                                 string
}

func (r *rowOut) binds() []any {
	return []any{
		out("p_row_generation", &r.generation), out("p_row_state", &r.state), out("p_row_life", &r.life), out("p_row_seq", &r.seq),
		out("p_row_first_seq", &r.first), out("p_row_fragments", &r.fragments), out("p_row_holes", &r.holes), out("p_row_late", &r.late),
		out("p_row_bytes", &r.bytes), out("p_row_units", &r.units), out("p_row_chunks", &r.chunks), out("p_row_crc", &r.crc), out("p_row_reason", &r.reason),
	}
}

func (r *rowOut) row() (lobwriter.Row, error) {
	if !given(r.generation, r.state, r.life, r.seq, r.first, r.fragments, r.holes, r.late, r.bytes, r.units, r.chunks, r.crc) {
		return lobwriter.Row{}, errNoReply
	}
	return lobwriter.Row{
		Generation: r.generation.Int64, State: lobwriter.State(r.state.Int64), Mark: lobwriter.Mark{Life: r.life.Int64, Seq: uint64(r.seq.Int64)},
		First: uint64(r.first.Int64), Fragments: r.fragments.Int64, Holes: r.holes.Int64, Late: r.late.Int64,
		Bytes: r.bytes.Int64, Units: r.units.Int64, Chunks: r.chunks.Int64, CRC: uint32(r.crc.Int64), Reason: r.reason,
	}, nil
}
