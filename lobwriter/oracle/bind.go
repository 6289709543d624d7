package oracle

import (
	"database/sql"

	"github.com/lobsink/lobsink/lobwriter"
)

// Binds have the types that the driver sends as NUMBER, VARCHAR2 and RAW: int64,
// string, []byte and slices of them. Numbers come back as sql.NullInt64: the
// driver would make 0 of NULL, which must not pass for an answer.

func in(name string, value any) any { return sql.Named(name, value) }

func out(name string, dest any) any { return sql.Named(name, sql.Out{Dest: dest}) }

type number = sql.NullInt64

// room makes the table of an OUT parameter that gets up to n elements. The driver
// takes the capacity for the size; a few sizes make few cursors in the database.
func room(n int) []number { return make([]number, 0, roundedUp(n)) }

// whole returns whether the tables all have n numbers, and no NULL.
func whole(n int, tables ...[]number) bool {
	for _, t := range tables {
		if len(t) != n || !given(t...) {
			return false
		}
	}
	return true
}

func given(values ...number) bool {
	for _, v := range values {
		if !v.Valid {
			return false
		}
	}
	return true
}

// fenceOut takes a fence row.
type fenceOut struct {
	life, epoch, flush, checkpoint, checkpointTime, highest, highestTime number
	claimID                                                              string
}

func (f *fenceOut) binds() []any {
	return []any{
		out("p_stored_life", &f.life), out("p_stored_epoch", &f.epoch), out("p_stored_claim_id", &f.claimID), out("p_stored_flush", &f.flush),
		out("p_stored_checkpoint", &f.checkpoint), out("p_stored_checkpoint_time", &f.checkpointTime),
		out("p_stored_highest", &f.highest), out("p_stored_highest_time", &f.highestTime),
	}
}

func (f *fenceOut) fence() (lobwriter.Fence, error) {
	if !given(f.life, f.epoch, f.flush, f.checkpoint, f.checkpointTime, f.highest, f.highestTime) {
		return lobwriter.Fence{}, errNoReply
	}
	return lobwriter.Fence{
		Life: f.life.Int64, Epoch: f.epoch.Int64, ClaimID: f.claimID, Flush: f.flush.Int64,
		Checkpoint: lobwriter.Position{Seq: uint64(f.checkpoint.Int64), Time: f.checkpointTime.Int64},
		Highest:    lobwriter.Position{Seq: uint64(f.highest.Int64), Time: f.highestTime.Int64},
	}, nil
}

// rowsOut takes up to n document rows, without their reasons.
type rowsOut struct {
	generation, state, life, seq, first, fragments, holes, late, bytes, units, chunks, crc, reasonBytes []number
}

func newRowsOut(n int) *rowsOut {
	return &rowsOut{
		generation: room(n), state: room(n), life: room(n), seq: room(n), first: room(n), fragments: room(n), holes: room(n), late: room(n),
		bytes: room(n), units: room(n), chunks: room(n), crc: room(n), reasonBytes: room(n),
	}
}

// binds are those of the numbers, without that of reasonBytes.
func (r *rowsOut) binds() []any {
	return []any{
		out("p_row_generation", &r.generation), out("p_row_state", &r.state), out("p_row_life", &r.life), out("p_row_seq", &r.seq),
		out("p_row_first_seq", &r.first), out("p_row_fragments", &r.fragments), out("p_row_holes", &r.holes), out("p_row_late", &r.late),
		out("p_row_bytes", &r.bytes), out("p_row_units", &r.units), out("p_row_chunks", &r.chunks), out("p_row_crc", &r.crc),
	}
}

// whole returns whether there are n rows, with all their numbers.
func (r *rowsOut) whole(n int) bool {
	return whole(n, r.generation, r.state, r.life, r.seq, r.first, r.fragments, r.holes, r.late, r.bytes, r.units, r.chunks, r.crc, r.reasonBytes)
}

// row returns the i-th row.
func (r *rowsOut) row(i int) lobwriter.Row {
	return lobwriter.Row{
		Generation: r.generation[i].Int64, State: lobwriter.State(r.state[i].Int64),
		Mark:  lobwriter.Mark{Life: r.life[i].Int64, Seq: uint64(r.seq[i].Int64)},
		First: uint64(r.first[i].Int64), Fragments: r.fragments[i].Int64, Holes: r.holes[i].Int64, Late: r.late[i].Int64,
		Bytes: r.bytes[i].Int64, Units: r.units[i].Int64, Chunks: r.chunks[i].Int64, CRC: uint32(r.crc[i].Int64),
	}
}

// texts takes packed text apart: one text after the other, of known lengths.
type texts struct{ rest string }

// next returns the next n bytes.
func (t *texts) next(n int64) (string, error) {
	if n < 0 || n > int64(len(t.rest)) {
		return "", errNoReply
	}
	text := t.rest[:n]
	t.rest = t.rest[n:]
	return text, nil
}

// end returns an error if text is left: then the lengths are not its own.
func (t *texts) end() error {
	if t.rest != "" {
		return errNoReply
	}
	return nil
}
