package postgres

import (
	"github.com/jackc/pgx/v5"

	"github.com/lobsink/lobsink/lobwriter"
)

// flushSQL calls the function of deploy/postgres with the arguments in the order
// of its parameters.
const flushSQL = `select * from lobsink_flush_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
	$11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
	$21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34)`

// arguments are the groups of a flush, a column each: the function takes arrays.
type arguments struct {
	keys        []string
	first, last []int64
	carries     []bool
	believed    columns
	after       columns

	chunkGroup []int32
	chunkN     []int64
	chunkBody  [][]byte
}

// columns are rows of documents, a column each.
type columns struct {
	generation, life, seq, first, fragments, holes, late, bytes, units, chunks, crc []int64
	state                                                                           []int16
	reason                                                                          []string
}

func (c *columns) add(r *lobwriter.Row) {
	c.generation = append(c.generation, r.Generation)
	c.state = append(c.state, int16(r.State))
	c.life = append(c.life, r.Mark.Life)
	c.seq = append(c.seq, int64(r.Mark.Seq))
	c.first = append(c.first, int64(r.First))
	c.fragments = append(c.fragments, r.Fragments)
	c.holes = append(c.holes, r.Holes)
	c.late = append(c.late, r.Late)
	c.bytes = append(c.bytes, r.Bytes)
	c.units = append(c.units, r.Units)
	c.chunks = append(c.chunks, r.Chunks)
	c.crc = append(c.crc, int64(r.CRC))
	c.reason = append(c.reason, r.Reason)
}

func newArguments(f *lobwriter.Flush) *arguments {
	a := &arguments{}
	for i := range f.Groups {
		g := &f.Groups[i]
		a.keys = append(a.keys, g.Key)
		a.first = append(a.first, int64(g.First))
		a.last = append(a.last, int64(g.Last))
		a.carries = append(a.carries, g.Carries())
		a.believed.add(&g.Believed)
		a.after.add(&g.After)
		n := g.After.Chunks - int64(len(g.Chunks))
		for _, text := range g.Chunks {
			n++
			a.chunkGroup = append(a.chunkGroup, int32(i+1))
			a.chunkN = append(a.chunkN, n)
			a.chunkBody = append(a.chunkBody, text)
		}
	}
	return a
}

// list returns the arguments of the call.
func (a *arguments) list(f *lobwriter.Flush, oneByOne bool) []any {
	b, r := &a.believed, &a.after
	return []any{
		oneByOne, f.Partition, f.Life, f.Epoch, f.ClaimID, f.Number,
		int64(f.Checkpoint.Seq), f.Checkpoint.Time, int64(f.Highest.Seq), f.Highest.Time,
		array(a.keys), array(a.first), array(a.last), array(a.carries),
		array(b.generation), array(b.state), array(b.life), array(b.seq), array(b.bytes), array(b.crc),
		array(r.generation), array(r.state), array(r.first), array(r.fragments), array(r.holes),
		array(r.late), array(r.bytes), array(r.units), array(r.chunks), array(r.crc), array(r.reason),
		array(a.chunkGroup), array(a.chunkN), array(a.chunkBody),
	}
}

// array returns an array that is never NULL, which a nil slice would be.
func array[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// answerRow is one row of the function's result.
type answerRow struct {
	ord    int
	fenced bool
	fence  lobwriter.Fence
	answer lobwriter.Answer
}

func scanAnswer(rows pgx.Rows) (r answerRow, err error) {
	var checkpoint, highest int64
	var status *int16
	var code, text *string
	var d nullRow
	f := &r.fence
	err = rows.Scan(&r.ord, &r.fenced, &f.Life, &f.Epoch, &f.ClaimID, &f.Flush,
		&checkpoint, &f.Checkpoint.Time, &highest, &f.Highest.Time,
		&status, &code, &text,
		&d.generation, &d.state, &d.life, &d.seq, &d.first, &d.fragments, &d.holes,
		&d.late, &d.bytes, &d.units, &d.chunks, &d.crc, &d.reason)
	if err != nil {
		return r, err
	}
	f.Checkpoint.Seq, f.Highest.Seq = uint64(checkpoint), uint64(highest)
	if status != nil {
		r.answer = lobwriter.Answer{Status: lobwriter.Status(*status), Row: d.row(), Code: *code, Text: *text}
	}
	return r, nil
}

// nullRow is a stored row of which everything is NULL if there is none.
type nullRow struct {
	generation, life, seq, first, fragments, holes, late, bytes, units, chunks, crc *int64
	state                                                                           *int16
	reason                                                                          *string
}

func (n *nullRow) row() lobwriter.Row {
	if n.generation == nil {
		return lobwriter.Row{}
	}
	return lobwriter.Row{
		Generation: *n.generation, State: lobwriter.State(*n.state),
		Mark:  lobwriter.Mark{Life: *n.life, Seq: uint64(*n.seq)},
		First: uint64(*n.first), Fragments: *n.fragments, Holes: *n.holes, Late: *n.late,
		Bytes: *n.bytes, Units: *n.units, Chunks: *n.chunks, CRC: uint32(*n.crc), Reason: *n.reason,
	}
}
