// Package rebuild makes documents again out of what the stream still has: as new
// generations that take the place of the stored ones, and to compare them.
package rebuild

import (
	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// CodeOmitted is the code of a hole that an operator made.
const CodeOmitted = "omitted"

// Refusal is a fragment whose text is not in the document.
type Refusal struct {
	Fragment batcher.Fragment
	Reason   batcher.Reason
	// Decided says that an operator left it out.
	Decided bool
}

// draft is a document while it is made out of its fragments, in the order of the
// stream, by the rules that an owner follows. It is a pure value.
type draft struct {
	life    int64
	unit    lobwriter.Unit
	limit   int // bytes of a chunk
	repairs map[lobwriter.Mark]lobwriter.Repair
	used    map[lobwriter.Mark]bool // repairs of fragments that came

	row     lobwriter.Row // of what has been cut, and of all members
	text    []byte        // not cut yet
	refused []Refusal
}

func newDraft(life int64, l lobwriter.Limits, repairs []lobwriter.Repair) *draft {
	d := &draft{life: life, unit: l.Unit, limit: l.ChunkBytes}
	d.repairs, d.used = map[lobwriter.Mark]lobwriter.Repair{}, map[lobwriter.Mark]bool{}
	for _, r := range repairs {
		d.repairs[r.Mark] = r
	}
	return d
}

// add appends a fragment and returns the text that it adds to the document.
func (d *draft) add(f batcher.Fragment) []byte {
	mark := lobwriter.Mark{Life: d.life, Seq: f.Seq}
	r, decided := d.repairs[mark]
	if decided {
		d.used[mark] = true
	}
	switch {
	case decided && r.Omit:
		f.Hole = &batcher.Reason{Code: CodeOmitted, Text: "left out by an operator"}
	case decided:
		f.Data, f.Hole = r.Text, nil
	}
	late := d.row.State == lobwriter.Complete
	d.row = d.row.Append(d.life, d.unit, []batcher.Fragment{f}, nil)
	switch {
	case f.Hole != nil:
		d.refused = append(d.refused, Refusal{Fragment: f, Reason: *f.Hole, Decided: decided})
		return nil
	case late && len(f.Data) > 0:
		d.refused = append(d.refused, Refusal{Fragment: f, Reason: batcher.Reason{Code: consumer.CodeLate, Text: "the document is complete"}})
		return nil
	case late:
		return nil
	}
	d.text = append(d.text, f.Data...)
	return f.Data
}

// cutAtOnce is how much text is cut into chunks at a time.
const cutAtOnce = 1 << 20

// cut takes full chunks off the text once there is enough of it; with all, takes
// all of it.
func (d *draft) cut(all bool) [][]byte {
	if !all && len(d.text) < max(cutAtOnce, d.limit) {
		return nil
	}
	chunks := lobwriter.Cut(func(yield func([]byte) bool) { yield(d.text) }, len(d.text), d.limit)
	d.text = d.text[:0]
	if n := len(chunks) - 1; !all && n >= 0 {
		d.text = append(d.text, chunks[n]...)
		chunks = chunks[:n]
	}
	d.row = d.row.Grow(d.unit, chunks)
	return chunks
}
