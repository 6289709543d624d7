package oracle

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/lobsink/lobsink/lobwriter"
)

// maxReason is the most bytes of a reason that are stored.
const maxReason = 2000

// refused is the number of pieces of a group whose text is none. The package
// rejects it where it would append: the database itself would take any bytes.
const refused = -1

// flushCall is a flush, laid out as the tables of the package.
type flushCall struct {
	flush *lobwriter.Flush
	in    flushIn
	out   flushOut
}

type flushIn struct {
	key                                                                            []string
	first, last                                                                    []int64
	wasGeneration, wasState, wasLife, wasSeq, wasBytes, wasCRC                     []int64
	generation, state, firstSeq, fragments, holes, late, bytes, units, chunks, crc []int64
	reason                                                                         []string
	pieces                                                                         []int64
	data                                                                           [][]byte
}

type flushOut struct {
	outcome, writes number
	fence           fenceOut
	status, code    []number
	rows            *rowsOut
	errorBytes      []number
	texts           string
}

// newFlushCall lays a flush out. A key that no owner may use is an Invalid error:
// it would fail the call for the others too.
func newFlushCall(f *lobwriter.Flush) (*flushCall, error) {
	n := len(f.Groups)
	numbers := func() []int64 { return make([]int64, n) }
	c := &flushCall{
		flush: f,
		in: flushIn{
			key: make([]string, n), first: numbers(), last: numbers(),
			wasGeneration: numbers(), wasState: numbers(), wasLife: numbers(), wasSeq: numbers(), wasBytes: numbers(), wasCRC: numbers(),
			generation: numbers(), state: numbers(), firstSeq: numbers(), fragments: numbers(), holes: numbers(), late: numbers(),
			bytes: numbers(), units: numbers(), chunks: numbers(), crc: numbers(),
			reason: make([]string, n), pieces: numbers(), data: make([][]byte, 0, n),
		},
		out: flushOut{status: room(n), code: room(n), rows: newRowsOut(n), errorBytes: room(n)},
	}
	if n > maxDocuments {
		return nil, &lobwriter.Error{Kind: lobwriter.Invalid, Op: "flush", Err: fmt.Errorf("%d groups, the limit is %d", n, maxDocuments)}
	}
	seen := make(map[string]bool, n)
	for i := range f.Groups {
		g := &f.Groups[i]
		if g.Key == "" || len(g.Key) > 255 || !utf8.ValidString(g.Key) || strings.Contains(g.Key, "\x00") || seen[g.Key] {
			return nil, &lobwriter.Error{Kind: lobwriter.Invalid, Op: "flush", Err: fmt.Errorf("%q is no key, or is the key of two groups", g.Key)}
		}
		seen[g.Key] = true
		c.in.set(i, g)
	}
	return c, nil
}

func (a *flushIn) set(i int, g *lobwriter.Group) {
	was, after := &g.Believed, &g.After
	a.key[i], a.first[i], a.last[i] = g.Key, int64(g.First), int64(g.Last)
	a.wasGeneration[i], a.wasState[i] = was.Generation, int64(was.State)
	a.wasLife[i], a.wasSeq[i], a.wasBytes[i], a.wasCRC[i] = was.Mark.Life, int64(was.Mark.Seq), was.Bytes, int64(was.CRC)
	a.generation[i], a.state[i], a.firstSeq[i] = after.Generation, int64(after.State), int64(after.First)
	a.fragments[i], a.holes[i], a.late[i] = after.Fragments, after.Holes, after.Late
	a.bytes[i], a.units[i], a.chunks[i], a.crc[i] = after.Bytes, after.Units, after.Chunks, int64(after.CRC)
	a.reason[i] = storable(after.Reason)
	a.pieces[i] = int64(len(g.Chunks))
	for _, c := range g.Chunks {
		if !isText(c) {
			a.pieces[i] = refused
			return
		}
	}
	a.data = append(a.data, g.Chunks...)
}

// isText reports whether every database would take it.
func isText(c []byte) bool { return utf8.Valid(c) && bytes.IndexByte(c, 0) < 0 }

// storable makes text that fits of what may quote a fragment that is no text.
func storable(reason string) string {
	text := []byte(strings.ToValidUTF8(strings.ReplaceAll(reason, "\x00", "\uFFFD"), "\uFFFD"))
	return string(text[:lobwriter.Border(text, maxReason)])
}

// longest is the length of the longest table.
func (c *flushCall) longest() int { return max(len(c.in.key), len(c.in.data)) }

func (c *flushCall) binds(isolate bool) []any {
	f, a, o := c.flush, &c.in, &c.out
	only := int64(0)
	if isolate {
		only = 1
	}
	binds := []any{
		in("p_partition", int64(f.Partition)), in("p_life", f.Life), in("p_epoch", f.Epoch), in("p_claim_id", f.ClaimID), in("p_flush", f.Number),
		in("p_checkpoint", int64(f.Checkpoint.Seq)), in("p_checkpoint_time", f.Checkpoint.Time),
		in("p_highest", int64(f.Highest.Seq)), in("p_highest_time", f.Highest.Time), in("p_isolate", only),
		in("p_key", a.key), in("p_first", a.first), in("p_last", a.last),
		in("p_was_generation", a.wasGeneration), in("p_was_state", a.wasState), in("p_was_life", a.wasLife),
		in("p_was_seq", a.wasSeq), in("p_was_bytes", a.wasBytes), in("p_was_crc", a.wasCRC),
		in("p_generation", a.generation), in("p_state", a.state), in("p_first_seq", a.firstSeq),
		in("p_fragments", a.fragments), in("p_holes", a.holes), in("p_late", a.late),
		in("p_bytes", a.bytes), in("p_units", a.units), in("p_chunks", a.chunks), in("p_crc", a.crc),
		in("p_reason", a.reason), in("p_pieces", a.pieces), in("p_data", a.data),
		out("p_outcome", &o.outcome),
	}
	binds = append(binds, o.fence.binds()...)
	binds = append(binds, out("p_lob_writes", &o.writes), out("p_status", &o.status), out("p_code", &o.code))
	binds = append(binds, o.rows.binds()...)
	return append(binds, out("p_row_reason_bytes", &o.rows.reasonBytes), out("p_error_bytes", &o.errorBytes), out("p_texts", &o.texts))
}

// The outcomes of a flush.
const (
	flushAccepted = 1
	flushFenced   = 2
)

// receipt reads the reply. Whatever does not look like a reply to this very call
// is an error.
func (c *flushCall) receipt() (lobwriter.Receipt, error) {
	o, n := &c.out, len(c.flush.Groups)
	fence, err := o.fence.fence()
	switch {
	case err != nil, !given(o.outcome, o.writes):
		return lobwriter.Receipt{}, errNoReply
	case o.outcome.Int64 == flushFenced:
		return lobwriter.Receipt{}, &lobwriter.FencedError{Stored: fence}
	case o.outcome.Int64 != flushAccepted, fence.Flush != c.flush.Number+1, !whole(n, o.status, o.code, o.errorBytes), !o.rows.whole(n):
		return lobwriter.Receipt{}, errNoReply
	}
	answers := make([]lobwriter.Answer, n)
	packed := texts{o.texts}
	for i := range answers {
		if answers[i], err = o.answer(i, &packed); err != nil {
			return lobwriter.Receipt{}, err
		}
	}
	if err := packed.end(); err != nil {
		return lobwriter.Receipt{}, err
	}
	return lobwriter.Receipt{Number: fence.Flush, Checkpoint: fence.Checkpoint, Answers: answers}, nil
}

// answer reads the i-th answer.
func (o *flushOut) answer(i int, packed *texts) (lobwriter.Answer, error) {
	a := lobwriter.Answer{Status: lobwriter.Status(o.status[i].Int64)}
	if a.Status < lobwriter.AlreadyThere || a.Status > lobwriter.Rejected {
		return a, errNoReply
	}
	reason, err := packed.next(max(0, o.rows.reasonBytes[i].Int64))
	if err != nil {
		return a, err
	}
	text, err := packed.next(o.errorBytes[i].Int64)
	if err != nil {
		return a, err
	}
	if a.Status != lobwriter.Appended {
		a.Row = o.rows.row(i)
		a.Row.Reason = reason
	}
	if a.Status == lobwriter.Rejected {
		code := o.code[i].Int64
		if code >= 0 {
			return a, errNoReply
		}
		a.Code, a.Text = codeText(int(-code)), text
		if a.Text == "" {
			a.Text = a.Code
		}
	}
	return a, nil
}

// appended is how many bytes of text were.
func (c *flushCall) appended(r lobwriter.Receipt) (n int64) {
	for i, a := range r.Answers {
		if a.Status == lobwriter.Appended {
			n += c.flush.Groups[i].After.Bytes - c.flush.Groups[i].Believed.Bytes
		}
	}
	return n
}

// reasons reads those that had no room in the reply. The flush is committed: an
// error here is an unknown outcome like any other.
func (s *Store) reasons(ctx context.Context, f *lobwriter.Flush, c *flushCall, r lobwriter.Receipt) error {
	for i := range r.Answers {
		if r.Answers[i].Status == lobwriter.Appended || c.out.rows.reasonBytes[i].Int64 >= 0 {
			continue
		}
		rows, err := s.Rows(ctx, f.Partition, []string{f.Groups[i].Key})
		if err != nil {
			return err
		}
		// Another call may have changed the row by now, but not its reason alone.
		if rows[0].Same(r.Answers[i].Row) {
			r.Answers[i].Row.Reason = rows[0].Reason
		}
	}
	return nil
}
