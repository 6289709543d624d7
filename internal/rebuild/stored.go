package rebuild

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// Requeue rebuilds a document whose fragments are in the dead letters: from the
// stream, or, when that no longer has it, from what is stored and the dead
// letters. New repairs must be about fragments of the document.
func (r *Rebuilder) Requeue(ctx context.Context, key string, o Options) (Result, error) {
	res, err := r.retry(ctx, func() (Result, error) {
		r.letters.forget()
		return r.once(ctx, key, o)
	})
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Again != nil || refused.Final {
		return res, err
	}
	res, again := r.retry(ctx, func() (Result, error) {
		r.letters.forget()
		return r.fromLetters(ctx, key, o)
	})
	var lettersToo *RefusedError
	if errors.As(again, &lettersToo) && lettersToo.Again == nil {
		return res, refuse(key, "%s; and %s", refused.Reason, lettersToo.Reason)
	}
	return res, again
}

// ownFaults are the codes of holes that take a place in the middle of a document.
var ownFaults = []string{consumer.CodeBadHeader, consumer.CodeTooLarge, consumer.CodeInvalidUTF8, consumer.CodeNUL, CodeOmitted}

// fromLetters rebuilds a quarantined document: its text as it is stored, and after
// it what has been refused since. Where the text ends no other fragment can have
// gone missing, since each one was refused, in order.
func (r *Rebuilder) fromLetters(ctx context.Context, key string, o Options) (Result, error) {
	w, err := r.begin(ctx, key, o)
	if err != nil {
		return Result{}, err
	}
	defer w.close()
	w.stored = true
	if w.before.State != lobwriter.Quarantined {
		return Result{}, refuse(key, "the dead letters only tell how a quarantined document goes on, not where in the text of this one they belong")
	}
	refused, err := w.refusals(ctx)
	if err != nil {
		return Result{}, err
	}
	seqs := slices.Sorted(maps.Keys(refused))
	if n := int64(len(seqs)); n != w.before.Holes {
		return Result{}, refuse(key, "%d of its fragments were refused, but the dead letters have %d; say --without SEQUENCE for each one that is missing", w.before.Holes, n)
	}
	begin := slices.IndexFunc(seqs, func(seq uint64) bool {
		c := refused[seq]
		return c.record != nil && !slices.Contains(ownFaults, c.record.Code)
	})
	if begin < 0 {
		return Result{}, refuse(key, "no dead letter tells where its quarantine begins")
	}
	if err := w.copyText(ctx, int64(begin), int64(len(seqs)-begin)); err != nil {
		return Result{}, err
	}
	for _, seq := range seqs[:begin] {
		if err := w.keepHole(seq, refused[seq].record); err != nil {
			return Result{}, err
		}
	}
	for _, seq := range seqs[begin:] {
		f, err := w.refusedFragment(ctx, seq, refused[seq].record)
		if err != nil {
			return Result{}, err
		}
		w.draft.add(f)
		if err := w.fill(ctx, w.draft.cut(false)); err != nil {
			return Result{}, err
		}
	}
	w.draft.row.Mark = w.before.Mark
	return w.finish(ctx)
}

// refusal is a fragment that is not in the text: its letter, or an operator's word
// that it is to be left out.
type refusal struct{ record *consumer.Record }

func (w *work) refusals(ctx context.Context) (map[uint64]refusal, error) {
	out := map[uint64]refusal{}
	for mark, r := range w.draft.repairs {
		if r.Omit && mark.Life == w.binding.Life {
			out[mark.Seq] = refusal{}
		}
	}
	records, err := w.letters.of(ctx, w.key)
	for _, r := range records {
		if r.Sequence <= w.through {
			out[r.Sequence] = refusal{&r}
		}
	}
	return out, err
}

// copyText begins the new generation with the stored text, which has so many holes
// in it, and after which so many fragments were refused.
func (w *work) copyText(ctx context.Context, holes, refused int64) error {
	row := w.before
	row.State, row.Holes, row.Fragments = lobwriter.Open, holes, row.Fragments-refused
	row.Bytes, row.Units, row.Chunks, row.CRC = 0, 0, 0, 0
	if holes == 0 {
		row.Reason = ""
	}
	w.draft.row = row
	read, err := w.operator.Read(ctx, w.key, func(piece []byte) error {
		w.draft.row = w.draft.row.Grow(w.draft.unit, [][]byte{piece})
		return w.fill(ctx, [][]byte{piece})
	})
	switch got := &w.draft.row; {
	case err != nil:
		return err
	case !read.Same(w.before):
		return errMoved
	case got.Bytes != read.Bytes || got.CRC != read.CRC:
		return refuse(w.key, "its stored text is damaged; see lobsink doc verify")
	}
	return nil
}

// keepHole notes a hole in the midst of the stored text, which stays one.
func (w *work) keepHole(seq uint64, record *consumer.Record) error {
	mark := lobwriter.Mark{Life: w.binding.Life, Seq: seq}
	repair, decided := w.draft.repairs[mark]
	if decided && !repair.Omit {
		return refuse(w.key, "only the stream could tell where in the text message %d belongs", seq)
	}
	w.draft.used[mark] = decided
	r := Refusal{Fragment: batcher.Fragment{Key: w.key, Seq: seq}, Decided: decided}
	if r.Reason.Code = CodeOmitted; record != nil {
		r.Reason = batcher.Reason{Code: record.Code, Text: record.Text}
	}
	w.draft.refused = append(w.draft.refused, r)
	return nil
}

// refusedFragment is a fragment as the stream had it, from its letter.
func (w *work) refusedFragment(ctx context.Context, seq uint64, record *consumer.Record) (batcher.Fragment, error) {
	if record == nil {
		return batcher.Fragment{Key: w.key, Seq: seq}, nil
	}
	f, err := w.letters.dead.Fragment(ctx, *record, w.stream.MaxFragment())
	if errors.Is(err, consumer.ErrAltered) {
		return f, refuse(w.key, "%v", err)
	}
	return f, err
}
