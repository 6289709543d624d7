package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/lobsink/lobsink/lobwriter"
)

// Verdict is what was read back, and what is wrong with it.
type Verdict struct {
	Documents int
	Fragments int64
	Bytes     int64
	// LOBWrites is how many chunks the documents were written in.
	LOBWrites int64

	// Missing, Duplicates and OutOfOrder count generated fragments: those that
	// are not there, those that are there again, those that come after one with
	// a higher number.
	Missing, Duplicates, OutOfOrder int
	// Differing counts documents whose bytes are not what was published.
	Differing int
}

// Exact reports that nothing is wrong.
func (v *Verdict) Exact() bool {
	return v.Missing == 0 && v.Duplicates == 0 && v.OutOfOrder == 0 && v.Differing == 0
}

// Check reads every document of the workload back.
func (w *Workload) Check(ctx context.Context, r lobwriter.Reader) (Verdict, error) {
	var v Verdict
	for d := range w.o.Documents {
		text, _, err := v.read(ctx, r, rowKey(d))
		if err != nil {
			return v, err
		}
		w.count(&v, d, text)
	}
	for _, f := range w.files {
		text, found, err := v.read(ctx, r, f.key)
		if err != nil {
			return v, err
		}
		if !found || !bytes.Equal(text, f.data) {
			v.Differing++
		}
	}
	return v, nil
}

// read returns the text of a document, and adds it to what was read back.
func (v *Verdict) read(ctx context.Context, r lobwriter.Reader, key string) (text []byte, found bool, err error) {
	d, err := r.Read(ctx, key, func(piece []byte) error {
		text = append(text, piece...)
		return nil
	})
	if errors.Is(err, lobwriter.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading document %s back: %w", key, err)
	}
	v.Documents++
	v.Fragments += d.Fragments
	v.Bytes += int64(len(text))
	v.LOBWrites += d.Chunks
	return text, true, nil
}

// count finds the rows of a generated document in its text. Whatever is there
// besides whole, unchanged rows of it makes the document differ.
func (w *Workload) count(v *Verdict, document int, text []byte) {
	seen := make([]bool, w.rows(document))
	found, highest, foreign := 0, -1, false
	for len(text) > 0 {
		n, ok := w.startsWithRow(document, text)
		if !ok {
			foreign = true
			next := bytes.Index(text[1:], []byte("<row "))
			if next < 0 {
				break
			}
			text = text[1+next:]
			continue
		}
		text = text[w.o.Size:]
		switch {
		case seen[n]:
			v.Duplicates++
		case n < highest:
			v.OutOfOrder++
		}
		if !seen[n] {
			seen[n] = true
			found++
		}
		highest = max(highest, n)
	}
	v.Missing += len(seen) - found
	if foreign {
		v.Differing++
	}
}

// startsWithRow returns the number of the row that text begins with.
func (w *Workload) startsWithRow(document int, text []byte) (number int, ok bool) {
	if len(text) < w.o.Size {
		return 0, false
	}
	var d int
	if n, err := fmt.Sscanf(string(text[:min(len(text), MinSize)]), `<row d="%d" n="%d">`, &d, &number); n != 2 || err != nil {
		return 0, false
	}
	if d != document || number < 0 || number >= w.rows(document) {
		return 0, false
	}
	return number, bytes.Equal(text[:w.o.Size], w.row(document, number))
}
