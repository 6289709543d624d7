package rebuild

import (
	"context"
	"errors"
	"fmt"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// Source is a database of which documents are compared.
type Source interface {
	lobwriter.Reader
	lobwriter.RepairReader
}

// Comparison is what comparing a document with the stream found out, beside what
// its own text and row say.
type Comparison struct {
	// Row is the stored row, and Bytes and CRC are those of the stored text, if
	// Whole says that all of it was read.
	Row   lobwriter.Document
	Whole bool
	Bytes int64
	CRC   uint32
	// Difference is the first one; nil: there is none.
	Difference *Difference
	// Unknown says why the document cannot be compared; "": it was.
	Unknown string
}

// Difference is where a stored text is not what the stream says.
type Difference struct {
	// Offset is that of the first differing byte, from 0.
	Offset int64
	// Seq is the fragment that this byte belongs to; the last one where the stored
	// text goes on behind it.
	Seq uint64
}

// errDiffers ends the reading of a text.
var errDiffers = errors.New("the text differs")

// Compare compares a document with the stream, byte by byte. A document that is
// not there gives lobwriter.ErrNotFound.
func Compare(ctx context.Context, source Source, stream *consumer.Fragments, b lobwriter.Binding, key string) (Comparison, error) {
	for try := 1; ; try++ {
		c, err := compare(ctx, source, stream, b, key, false)
		if err == nil && c.Unknown != "" && b.Partitions > 1 {
			// Perhaps the stream had another number of partitions once.
			c, err = compare(ctx, source, stream, b, key, true)
		}
		again := errors.Is(err, consumer.ErrInterrupted) || errors.Is(err, errMoved)
		if !again || try == tries || ctx.Err() != nil {
			return c, err
		}
	}
}

func compare(ctx context.Context, source Source, stream *consumer.Fragments, b lobwriter.Binding, key string, anywhere bool) (out Comparison, err error) {
	if out.Row, err = source.Document(ctx, key); err != nil {
		return out, err
	}
	if out.Row.Mark.Life != b.Life {
		out.Unknown = fmt.Sprintf("it ends in life %d of the stream, which is in life %d now", out.Row.Mark.Life, b.Life)
		return out, nil
	}
	repairs, err := source.Repairs(ctx, key)
	if err != nil {
		return out, err
	}
	cursor, err := stream.Document(ctx, consumer.Selection{Key: key, From: out.Row.First, Anywhere: anywhere})
	if err != nil {
		return out, err
	}
	defer cursor.Close()
	t := &telling{ctx: ctx, cursor: cursor, draft: newDraft(b.Life, lobwriter.Limits{}, repairs)}
	began := out.Row
	read, err := source.Read(ctx, key, func(piece []byte) error {
		out.Bytes += int64(len(piece))
		out.CRC = lobwriter.Checksum(out.CRC, piece)
		return t.same(piece)
	})
	if err != nil && !errors.Is(err, errDiffers) {
		return out, err
	}
	if err == nil {
		out.Row, out.Whole = read, true
		err = t.rest(read.Mark.Seq)
	}
	if errors.Is(err, errDiffers) {
		out.Difference = &Difference{Offset: t.offset, Seq: t.seq}
		if err = t.skip(out.Row.Mark.Seq); err == nil {
			err = unmoved(ctx, source, began)
		}
	}
	if err != nil {
		return out, err
	}
	if out.Unknown = t.missing(out.Row.Row); out.Unknown != "" {
		out.Difference = nil
	}
	return out, nil
}

// unmoved returns errMoved if a document has another generation than when it was
// looked at first: a difference proves nothing then.
func unmoved(ctx context.Context, source Source, before lobwriter.Document) error {
	now, err := source.Document(ctx, before.Key)
	if err == nil && now.Generation != before.Generation {
		err = errMoved
	}
	return err
}

// telling is what the stream tells about a text, beside the text itself.
type telling struct {
	ctx    context.Context
	cursor *consumer.Cursor
	draft  *draft
	text   []byte // of the fragment seq, from offset on
	seq    uint64
	offset int64
	ended  bool
}

// next goes on to the next fragment with text; false: there is none up to through,
// 0 for the end of the stream.
func (t *telling) next(through uint64) (bool, error) {
	for !t.ended {
		f, ok, err := t.cursor.Next(t.ctx)
		if err != nil {
			return false, err
		}
		if !ok || through > 0 && f.Seq > through {
			t.ended = true
			return false, nil
		}
		t.seq = f.Seq
		t.text = t.draft.add(f)
		t.draft.text = t.draft.text[:0]
		if len(t.text) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// same compares a piece of the stored text.
func (t *telling) same(piece []byte) error {
	for len(piece) > 0 {
		if len(t.text) == 0 {
			ok, err := t.next(0)
			if err != nil {
				return err
			}
			if !ok {
				return errDiffers
			}
		}
		n := min(len(piece), len(t.text))
		for i := range n {
			if piece[i] != t.text[i] {
				t.offset += int64(i)
				return errDiffers
			}
		}
		piece, t.text, t.offset = piece[n:], t.text[n:], t.offset+int64(n)
	}
	return nil
}

// rest compares the end of the text: the stream may have no more of it.
func (t *telling) rest(through uint64) error {
	if len(t.text) > 0 {
		return errDiffers
	}
	more, err := t.next(through)
	if err == nil && more {
		err = errDiffers
	}
	return err
}

// skip reads on without comparing, to see whether the stream has the whole
// document.
func (t *telling) skip(through uint64) error {
	for {
		more, err := t.next(through)
		if err != nil || !more {
			return err
		}
	}
}

// missing says what of the document the stream no longer has; "": nothing.
func (t *telling) missing(stored lobwriter.Row) string {
	got := t.draft.row
	switch {
	case got.Absent():
		return "the stream has none of its fragments any more"
	case got.First > stored.First:
		return fmt.Sprintf("the stream no longer has its beginning: it began at sequence %d, the first that is there is %d", stored.First, got.First)
	case got.Fragments < stored.Fragments:
		return fmt.Sprintf("the stream has only %d of its %d fragments", got.Fragments, stored.Fragments)
	}
	return ""
}
