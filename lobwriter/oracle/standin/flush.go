package standin

import (
	"errors"
	"fmt"

	"github.com/lobsink/lobsink/lobwriter"
)

// errText is the package's own error for text that the client refuses.
const errText = 20815

// flush takes the tables of a flush apart, and gives its receipt as tables.
func flush(x *context, c *Call) error {
	f := &lobwriter.Flush{
		Partition: int(c.number("p_partition")), Life: c.number("p_life"), Epoch: c.number("p_epoch"), ClaimID: c.text("p_claim_id"), Number: c.number("p_flush"),
		Checkpoint: lobwriter.Position{Seq: uint64(c.number("p_checkpoint")), Time: c.number("p_checkpoint_time")},
		Highest:    lobwriter.Position{Seq: uint64(c.number("p_highest")), Time: c.number("p_highest_time")},
	}
	isolate := c.number("p_isolate") == 1
	groups, refusals, err := c.groups(f.Life)
	switch {
	case c.fault != nil:
		return c.fault
	case err != nil:
		return err
	}
	unlock, err := x.lockFence(int64(f.Partition))
	if err != nil {
		return err
	}
	defer unlock()
	for i := range groups {
		code := x.schema.refusal(groups[i].Key)
		switch {
		case code != 0 && !isolate:
			return failure(code, "as the test wishes")
		case code != 0:
			refusals[i] = code
		}
		if refusals[i] != 0 {
			groups[i].Chunks = [][]byte{{0}} // the reference store refuses this
			groups[i].After.Bytes = groups[i].Believed.Bytes + 1
		}
	}
	f.Groups = groups
	x.schema.remember()
	r, err := x.schema.Memory.Flush(background, f)
	var fenced *lobwriter.FencedError
	switch {
	case errors.As(err, &fenced):
		c.setNumber("p_outcome", refused)
		c.setFence(fenced.Stored)
		c.setAnswers(nil, nil)
		c.setNumber("p_lob_writes", 0)
		return nil
	case err != nil:
		return failure(20810, "%v", err)
	}
	stored, err := x.schema.Memory.Fence(background, f.Partition)
	c.setNumber("p_outcome", done)
	c.setFence(stored)
	c.setAnswers(r.Answers, refusals)
	c.setNumber("p_lob_writes", x.schema.wrote(groups, r.Answers))
	return err
}

func (s *Schema) refusal(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused[key]
}

// wrote counts the LOB writes of a flush.
func (s *Schema) wrote(groups []lobwriter.Group, answers []lobwriter.Answer) (n int64) {
	for i, a := range answers {
		if a.Status == lobwriter.Appended {
			n += int64(len(groups[i].Chunks))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes += n
	return n
}

// groups reads the groups of a flush, and the errors of those that the client
// refuses.
func (c *Call) groups(life int64) (groups []lobwriter.Group, refusals []int, err error) {
	n := func(name string) []int64 { return c.numbers(name) }
	keys, reasons, data := c.texts("p_key"), c.texts("p_reason"), c.raws("p_data")
	firsts, lasts, pieces := n("p_first"), n("p_last"), n("p_pieces")
	was := lobRows{n("p_was_generation"), n("p_was_state"), n("p_was_life"), n("p_was_seq"), nil, nil, nil, nil, n("p_was_bytes"), nil, nil, n("p_was_crc")}
	after := lobRows{n("p_generation"), n("p_state"), nil, nil, n("p_first_seq"), n("p_fragments"), n("p_holes"), n("p_late"),
		n("p_bytes"), n("p_units"), n("p_chunks"), n("p_crc")}
	for _, t := range [][]int64{firsts, lasts, pieces, was[0], was[1], was[2], was[3], was[8], was[11],
		after[0], after[1], after[4], after[5], after[6], after[7], after[8], after[9], after[10], after[11]} {
		if len(t) != len(keys) {
			return nil, nil, failure(20810, "tables of different lengths")
		}
	}
	groups, refusals = make([]lobwriter.Group, len(keys)), make([]int, len(keys))
	for i, key := range keys {
		g := lobwriter.Group{Key: key, Believed: was.row(i), After: after.row(i), First: uint64(firsts[i]), Last: uint64(lasts[i])}
		g.After.Mark = lobwriter.Mark{Life: life, Seq: g.Last}
		g.After.Reason = reasons[i]
		if pieces[i] < 0 {
			refusals[i] = errText
		} else if pieces[i] > int64(len(data)) {
			return nil, nil, failure(20810, "there are fewer pieces than said")
		} else {
			g.Chunks, data = data[:pieces[i]:pieces[i]], data[pieces[i]:]
			refusals[i] = grown(&g)
		}
		groups[i] = g
	}
	if len(data) > 0 {
		return nil, nil, failure(20810, "there are more pieces than said")
	}
	return groups, refusals, nil
}

// grown checks that the row grows by what the pieces have, in UTF-16 units too. A
// new or a stale row cannot be checked so: it is not the client's to say.
func grown(g *lobwriter.Group) int {
	bytes, units := int64(0), int64(0)
	for _, p := range g.Chunks {
		if len(p) == 0 || len(p) > limits.ChunkBytes {
			return 20812
		}
		bytes += int64(len(p))
		units += lobwriter.UTF16.Count(p)
	}
	if g.After.Bytes-g.Believed.Bytes != bytes || g.Believed.Absent() && g.After.Units != units {
		return 20814
	}
	return 0
}

// lobRows are the numbers of rows: generation, state, life, seq, first, fragments,
// holes, late, bytes, units, chunks, CRC. A table that is not there is all 0.
type lobRows [12][]int64

func (t *lobRows) row(i int) lobwriter.Row {
	at := func(column int) int64 {
		if t[column] == nil {
			return 0
		}
		return t[column][i]
	}
	return lobwriter.Row{
		Generation: at(0), State: lobwriter.State(at(1)), Mark: lobwriter.Mark{Life: at(2), Seq: uint64(at(3))}, First: uint64(at(4)),
		Fragments: at(5), Holes: at(6), Late: at(7), Bytes: at(8), Units: at(9), Chunks: at(10), CRC: uint32(at(11)),
	}
}

func (t *lobRows) add(r lobwriter.Row) {
	for i, v := range []int64{r.Generation, int64(r.State), r.Mark.Life, int64(r.Mark.Seq), int64(r.First), r.Fragments, r.Holes, r.Late, r.Bytes, r.Units, r.Chunks, int64(r.CRC)} {
		t[i] = append(t[i], v)
	}
}

// rowColumns are the names of those of lobRows.
var rowColumns = [12]string{"generation", "state", "life", "seq", "first_seq", "fragments", "holes", "late", "bytes", "units", "chunks", "crc"}

// setRows gives rows, without their reasons.
func (c *Call) setRows(t *lobRows) {
	for i, name := range rowColumns {
		c.setNumbers("p_row_"+name, t[i])
	}
}

// setAnswers gives the answers of a flush.
func (c *Call) setAnswers(answers []lobwriter.Answer, refusals []int) {
	var rows lobRows
	var status, code, reasonBytes, errorBytes []int64
	var packed packedText
	for i, a := range answers {
		text, number := "", int64(0)
		if a.Status == lobwriter.Rejected {
			number = -int64(max(refusals[i], errText))
			if refusals[i] != 0 {
				number = -int64(refusals[i])
			}
			text = fmt.Sprintf("ORA-%05d: the text is refused", -number)
		}
		rows.add(a.Row)
		status, code = append(status, int64(a.Status)), append(code, number)
		reasonBytes, errorBytes = append(reasonBytes, packed.tryAdd(a.Row.Reason)), append(errorBytes, max(0, packed.tryAdd(text)))
	}
	c.setNumbers("p_status", status)
	c.setNumbers("p_code", code)
	c.setRows(&rows)
	c.setNumbers("p_row_reason_bytes", reasonBytes)
	c.setNumbers("p_error_bytes", errorBytes)
	c.setText("p_texts", string(packed))
}

// packedText is texts one after the other, as many as have room in a VARCHAR2.
type packedText []byte

// tryAdd adds a text and returns its length; -1: it had no room.
func (p *packedText) tryAdd(text string) int64 {
	if len(*p)+len(text) > 32767 {
		return -1
	}
	*p = append(*p, text...)
	return int64(len(text))
}

// has reports whether there is room for texts.
func (p *packedText) has(texts ...string) bool {
	n := len(*p)
	for _, t := range texts {
		n += len(t)
	}
	return n <= 32767
}
