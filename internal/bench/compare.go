package bench

import (
	"bytes"
	"context"
	"errors"

	"github.com/lobsink/lobsink/lobwriter"
)

var errDiffers = errors.New("the text differs")

// same reports whether a stored document is complete and has the text that was
// published. It holds one chunk and one fragment in memory.
func (w *Workload) same(ctx context.Context, r lobwriter.Reader, document int) (bool, error) {
	next, count := 0, w.Count(document)
	var fragment, rest []byte // rest is what of fragment is not compared yet
	doc, err := r.Read(ctx, w.Key(document), func(chunk []byte) error {
		for len(chunk) > 0 {
			if len(rest) == 0 {
				if next == count {
					return errDiffers
				}
				fragment = w.Append(fragment[:0], document, next)
				rest = fragment
				next++
			}
			n := min(len(chunk), len(rest))
			if !bytes.Equal(chunk[:n], rest[:n]) {
				return errDiffers
			}
			chunk, rest = chunk[n:], rest[n:]
		}
		return nil
	})
	switch {
	case errors.Is(err, lobwriter.ErrNotFound), errors.Is(err, errDiffers):
		return false, nil
	case err != nil:
		return false, err
	}
	return next == count && len(rest) == 0 && doc.State == lobwriter.Complete && doc.Fragments == int64(count), nil
}
