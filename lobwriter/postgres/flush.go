package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/lobsink/lobsink/lobwriter"
)

// mode is how lobsink_flush_v1 does the groups.
type mode bool

const (
	atOnce   mode = false // an error undoes all of them
	oneByOne mode = true  // a group whose content is refused is undone alone
)

// errNoReply should never be seen. Its outcome counts as unknown.
var errNoReply = errors.New("the reply of the database does not belong to the call")

// flushQuery has a parameter for each of lobsink_flush_v1, in its order.
const flushQuery = `
	select accepted, (fence).life, (fence).epoch, (fence).claim_id, (fence).flush,
	       (fence).checkpoint, (fence).checkpoint_time, (fence).highest, (fence).highest_time,
	       (answer).*
	  from lobsink_flush_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
	         $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
	         $21, $22, $23, $24, $25, $26, $27, $28, $29, $30,
	         $31, $32, $33)`

// call is a flush as arrays, an element for each group.
type call struct {
	flush    *lobwriter.Flush
	keys     []string
	from, to []int64
	believed columns
	after    columns
	// Of texts, the first textsBefore belong to groups before, and the next
	// textsOf to the group.
	textsBefore, textsOf []int32
	texts                texts
}

// texts are the chunks of a call, encoded as bytea[].
type texts [][]byte

// textOverhead is what the encoding adds to each text, and arrayOverhead to all of
// them: their lengths, and number, type and bounds.
const (
	textOverhead  = 4
	arrayOverhead = 20
)

// textsPlan encodes texts as pgx encodes [][]byte, but makes room for all of them
// at once. Otherwise the buffer doubles again and again on its way to megabytes.
type textsPlan struct{ next pgtype.EncodePlan }

// planTexts is a pgtype.TryWrapEncodePlanFunc.
func planTexts(value any) (plan pgtype.WrappedEncodePlanNextSetter, nextValue any, ok bool) {
	if t, ok := value.(texts); ok {
		return &textsPlan{}, [][]byte(t), true
	}
	return nil, nil, false
}

// SetNext implements pgtype.WrappedEncodePlanNextSetter.
func (p *textsPlan) SetNext(next pgtype.EncodePlan) { p.next = next }

// Encode implements pgtype.EncodePlan.
func (p *textsPlan) Encode(value any, buf []byte) ([]byte, error) {
	size := arrayOverhead
	for _, text := range value.(texts) {
		size += textOverhead + len(text)
	}
	return p.next.Encode([][]byte(value.(texts)), slices.Grow(buf, size))
}

// columns are document rows as arrays.
type columns struct {
	generation, life, seq, first, fragments, holes, late, bytes, units, chunks, crc []int64
	state                                                                           []int16
	reason                                                                          []string
}

// newCall lays a flush out as arrays. A key that no owner may use is an Invalid
// error: as an argument it would fail the call, whatever the mode.
func newCall(f *lobwriter.Flush) (*call, error) {
	n := len(f.Groups)
	// No array is nil, which would be NULL.
	c := &call{
		flush: f, keys: make([]string, n), from: make([]int64, n), to: make([]int64, n),
		believed: newColumns(n), after: newColumns(n),
		textsBefore: make([]int32, n), textsOf: make([]int32, n), texts: make(texts, 0, n),
	}
	seen := make(map[string]bool, n)
	for i := range f.Groups {
		g := &f.Groups[i]
		if g.Key == "" || !utf8.ValidString(g.Key) || strings.Contains(g.Key, "\x00") || seen[g.Key] {
			return nil, &lobwriter.Error{Kind: lobwriter.Invalid, Op: "flush",
				Err: fmt.Errorf("%q is no key, or is the key of two groups", g.Key)}
		}
		seen[g.Key] = true
		c.keys[i] = g.Key
		c.from[i], c.to[i] = int64(g.First), int64(g.Last)
		c.believed.set(i, &g.Believed)
		c.after.set(i, &g.After)
		c.textsBefore[i], c.textsOf[i] = int32(len(c.texts)), int32(len(g.Chunks))
		c.texts = append(c.texts, g.Chunks...)
	}
	return c, nil
}

func newColumns(n int) columns {
	numbers := func() []int64 { return make([]int64, n) }
	return columns{
		generation: numbers(), life: numbers(), seq: numbers(), first: numbers(), fragments: numbers(), holes: numbers(),
		late: numbers(), bytes: numbers(), units: numbers(), chunks: numbers(), crc: numbers(),
		state: make([]int16, n), reason: make([]string, n),
	}
}

func (c *columns) set(i int, r *lobwriter.Row) {
	c.generation[i], c.state[i] = r.Generation, int16(r.State)
	c.life[i], c.seq[i], c.first[i] = r.Mark.Life, int64(r.Mark.Seq), int64(r.First)
	c.fragments[i], c.holes[i], c.late[i] = r.Fragments, r.Holes, r.Late
	c.bytes[i], c.units[i], c.chunks[i], c.crc[i] = r.Bytes, r.Units, r.Chunks, int64(r.CRC)
	c.reason[i] = storable(r.Reason)
}

// storable makes text of what may quote a fragment that is none.
func storable(reason string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(reason, "\x00", "\uFFFD"), "\uFFFD")
}

// arguments are those of flushQuery.
func (c *call) arguments(m mode) []any {
	f, b, a := c.flush, &c.believed, &c.after
	return []any{
		bool(m),
		f.Partition, f.Life, f.Epoch, f.ClaimID, f.Number,
		int64(f.Checkpoint.Seq), f.Checkpoint.Time, int64(f.Highest.Seq), f.Highest.Time,
		c.keys, c.from, c.to,
		b.generation, b.state, b.life, b.seq, b.bytes, b.crc,
		a.generation, a.state, a.first, a.fragments, a.holes, a.late,
		a.bytes, a.units, a.chunks, a.crc, a.reason,
		c.textsBefore, c.textsOf, c.texts,
	}
}

// The columns of a reply: accepted and the fence row, then those of an answer. A
// nil target skips a column.
const (
	verdictColumns = 9
	answerColumns  = 17
)

// scanVerdict reads the first row of a reply.
func scanVerdict(rows pgx.Rows) (accepted bool, fence lobwriter.Fence, err error) {
	targets := append([]any{&accepted}, fenceFields(&fence)...)
	return accepted, fence, rows.Scan(append(targets, make([]any, answerColumns)...)...)
}

// scanAnswer reads the row of the n-th answer.
func scanAnswer(rows pgx.Rows, n int) (a lobwriter.Answer, err error) {
	var of int
	var row lobwriter.Row
	targets := append(make([]any, verdictColumns), &of, &a.Status, &a.Code, &a.Text)
	if err := rows.Scan(append(targets, rowFields(&row)...)...); err != nil {
		return lobwriter.Answer{}, err
	}
	if of != n || a.Status < lobwriter.AlreadyThere || a.Status > lobwriter.Rejected {
		return lobwriter.Answer{}, errNoReply
	}
	if a.Status != lobwriter.Appended {
		a.Row = row
	}
	return a, nil
}
