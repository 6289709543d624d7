package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// errMoved means that the document was changed by somebody else meanwhile.
var errMoved = errors.New("the document was changed by another command")

// A document is tried again when the connection broke, or another command was
// faster.
const (
	tries    = 5
	tryPause = 500 * time.Millisecond
)

// Document rebuilds one document from the stream. A *RefusedError says that it was
// left as it is; any other error ends the work.
func (r *Rebuilder) Document(ctx context.Context, key string, o Options) (Result, error) {
	return r.retry(ctx, func() (Result, error) { return r.once(ctx, key, o) })
}

func (r *Rebuilder) retry(ctx context.Context, once func() (Result, error)) (Result, error) {
	for try := 1; ; try++ {
		res, err := once()
		again := errors.Is(err, consumer.ErrInterrupted) || errors.Is(err, errMoved) ||
			err != nil && isStoreError(err) && lobwriter.KindOf(err) == lobwriter.Transient
		if !again || try == tries || ctx.Err() != nil {
			return res, err
		}
		select {
		case <-time.After(tryPause):
		case <-ctx.Done():
			return res, err
		}
	}
}

func isStoreError(err error) bool {
	var e *lobwriter.Error
	return errors.As(err, &e)
}

// once is one try.
func (r *Rebuilder) once(ctx context.Context, key string, o Options) (Result, error) {
	w, err := r.begin(ctx, key, o)
	if err != nil {
		return Result{}, err
	}
	defer w.close()
	if err := w.read(ctx); err != nil {
		return Result{}, err
	}
	if err := w.complete(); err != nil && w.anywhere() {
		// Perhaps the stream had another number of partitions once.
		w.close()
		if w, err = r.begin(ctx, key, o); err != nil {
			return Result{}, err
		}
		defer w.close()
		w.all = true
		if err := w.read(ctx); err != nil {
			return Result{}, err
		}
	}
	if err := w.complete(); err != nil {
		return Result{}, err
	}
	return w.finish(ctx)
}

// work is one document on its way.
type work struct {
	*Rebuilder
	key       string
	partition int
	o         Options
	before    lobwriter.Row
	repairs   []lobwriter.Repair
	from      uint64 // where to begin in the stream
	through   uint64 // the last sequence that belongs to it
	all       bool   // looked for in all partitions
	draft     *draft
	build     lobwriter.Build // nil before there is text, and with DryRun
	index     uint64          // Lobsink-Index of the first fragment
	stored    bool            // made of what is stored, and of dead letters
}

func (r *Rebuilder) begin(ctx context.Context, key string, o Options) (*work, error) {
	token, err := consumer.Token(key)
	if err != nil {
		return nil, refuse(key, "%v", err)
	}
	w := &work{Rebuilder: r, key: key, partition: consumer.PartitionOf(token, r.binding.Partitions), o: o}
	stored, err := r.operator.Document(ctx, key)
	if err != nil && !errors.Is(err, lobwriter.ErrNotFound) {
		return nil, err
	}
	w.before = stored.Row
	if w.before.Absent() {
		f, err := r.operator.Fence(ctx, w.partition)
		if err != nil {
			return nil, err
		}
		w.from, w.through = 1, f.Checkpoint.Seq
	} else {
		if w.before.Mark.Life != r.binding.Life {
			return nil, refuse(key, "it ends in life %d of the stream, which is in life %d now", w.before.Mark.Life, r.binding.Life)
		}
		w.from, w.through = w.before.First, w.before.Mark.Seq
	}
	if w.repairs, err = r.operator.Repairs(ctx, key); err != nil {
		return nil, err
	}
	w.repairs = merge(w.repairs, o.Repairs)
	r.letters.expect(key, w.before.Holes+w.before.Late)
	w.draft = newDraft(r.binding.Life, r.operator.Limits(), w.repairs)
	return w, nil
}

// merge lets later decisions take the place of earlier ones.
func merge(stored, added []lobwriter.Repair) []lobwriter.Repair {
	var out []lobwriter.Repair
	for _, s := range stored {
		replaced := false
		for _, a := range added {
			replaced = replaced || a.Mark == s.Mark
		}
		if !replaced {
			out = append(out, s)
		}
	}
	return append(out, added...)
}

// read reads the document on, up to through.
func (w *work) read(ctx context.Context) error {
	c, err := w.stream.Document(ctx, consumer.Selection{Key: w.key, From: w.from, Anywhere: w.all})
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		f, ok, err := c.Next(ctx)
		switch {
		case err != nil:
			return err
		case !ok || f.Seq > w.through:
			return nil
		}
		w.take(f)
		if err := w.fill(ctx, w.draft.cut(false)); err != nil {
			return err
		}
	}
}

// take adds the next fragment.
func (w *work) take(f batcher.Fragment) {
	if w.draft.row.Absent() {
		w.index = f.Index
	}
	w.draft.add(f)
	w.from = f.Seq + 1
}

// fill appends chunks to the build.
func (w *work) fill(ctx context.Context, chunks [][]byte) error {
	if w.o.DryRun || len(chunks) == 0 {
		return nil
	}
	if err := w.open(ctx); err != nil {
		return err
	}
	if err := w.build.Append(ctx, chunks); err != nil {
		return w.invalid(err)
	}
	if w.Pace == nil {
		return nil
	}
	bytes := 0
	for _, c := range chunks {
		bytes += len(c)
	}
	return w.Pace(ctx, bytes)
}

// invalid makes what the database refuses for its content the fault of the
// document.
func (w *work) invalid(err error) error {
	if lobwriter.KindOf(err) == lobwriter.Invalid {
		return &RefusedError{Key: w.key, Final: true, Reason: fmt.Sprintf("the database refuses its text: %v", err)}
	}
	return err
}

func (w *work) open(ctx context.Context) (err error) {
	if w.build == nil {
		w.build, err = w.operator.Build(ctx, w.partition, w.key, w.before.Generation+1)
	}
	return err
}

func (w *work) close() {
	if w.build != nil {
		w.build.Close()
		w.build = nil
	}
}

// anywhere reports whether the fragments may be stored under another partition.
func (w *work) anywhere() bool { return !w.all && w.binding.Partitions > 1 }

// complete returns an error unless the stream had all of the document. What it
// has not is not left out: the document stays as it is.
func (w *work) complete() error {
	d, first := w.draft.row, w.stream.Facts().First
	switch {
	case d.Absent() && w.before.Absent():
		return refuse(w.key, "there is no such document, and the stream has no fragment of it up to the checkpoint %d", w.through)
	case d.Absent():
		return refuse(w.key, "the stream has none of its fragments any more; it begins at sequence %d", first)
	case w.before.Absent() && first > 1 && w.index != 1:
		return refuse(w.key, "it is not stored, and may have begun before sequence %d, where the stream begins now", first)
	case w.before.Absent():
		return nil
	case d.First > w.before.First:
		return refuse(w.key, "the stream no longer has its beginning: it began at sequence %d, the first that is there is %d", w.before.First, d.First)
	case d.Mark.Seq < w.through:
		return refuse(w.key, "the stream no longer has its end: it ends at sequence %d, the last that is there is %d", w.through, d.Mark.Seq)
	case d.Fragments < w.before.Fragments:
		return refuse(w.key, "the stream has only %d of its %d fragments", d.Fragments, w.before.Fragments)
	}
	return nil
}

// finish swaps the generation in, after reading on as far as the owner has come
// meanwhile.
func (w *work) finish(ctx context.Context) (Result, error) {
	if err := w.decided(); err != nil {
		return Result{}, err
	}
	for {
		if again := undecided(w.draft.refused); w.o.Whole && len(again) > 0 {
			return Result{}, &RefusedError{Key: w.key, Again: again,
				Reason: fmt.Sprintf("%d of its fragments would be refused again", len(again))}
		}
		if err := w.fill(ctx, w.draft.cut(true)); err != nil {
			return Result{}, err
		}
		row := keepGap(w.draft.row, w.before)
		row.Generation = w.before.Generation + 1
		res := Result{Before: w.before, After: row, Refused: w.draft.refused}
		if w.o.DryRun {
			return res, nil
		}
		if err := w.publish(ctx, row.Generation); err != nil {
			return Result{}, err
		}
		if err := w.open(ctx); err != nil {
			return Result{}, err
		}
		stored, swapped, err := w.build.Swap(ctx, row, w.repairs)
		switch {
		case err != nil:
			return Result{}, w.invalid(err)
		case swapped && w.lettered():
			res.Removed, err = w.letters.resolve(ctx, w.key, row.Mark.Seq, w.draft)
			return res, err
		case swapped:
			return res, nil
		case stored.Generation != w.before.Generation || stored.Absent() || stored.Mark.Before(row.Mark) || stored.Mark.Life != row.Mark.Life:
			return Result{}, errMoved
		}
		if w.stored {
			return Result{}, errMoved // and there are more letters
		}
		if stored.Holes > w.before.Holes || stored.Late > w.before.Late {
			w.letters.forget()
		}
		w.before, w.through = stored, stored.Mark.Seq
		if err := w.read(ctx); err != nil {
			return Result{}, err
		}
		if err := w.complete(); err != nil {
			return Result{}, err
		}
	}
}

// decided returns an error if an operator decided about something that is no
// fragment of the document.
func (w *work) decided() error {
	for _, r := range w.o.Repairs {
		if !w.draft.used[r.Mark] {
			return &RefusedError{Key: w.key, Final: true, Reason: fmt.Sprintf("message %d is no fragment of it up to sequence %d, where it ends", r.Mark.Seq, w.through)}
		}
	}
	return nil
}

// keepGap keeps the note that fragments were lost before anybody read them: the
// stream, which lost them, cannot tell.
func keepGap(row, before lobwriter.Row) lobwriter.Row {
	if strings.HasPrefix(before.Reason, lobwriter.ReasonGap) && row.Fragments <= before.Fragments {
		row.Reason = before.Reason
		if row.State == lobwriter.Complete {
			row.State = lobwriter.Incomplete
		}
	}
	return row
}

// lettered reports whether there may be dead letters of the document as it was. One
// of a fragment that was being refused at the moment of a swap is not counted by the
// document; only who asks for the dead letters of one document looks for those.
func (w *work) lettered() bool {
	return w.o.Whole || w.before.Absent() || w.before.Holes > 0 || w.before.Late > 0
}

func undecided(refused []Refusal) (out []Refusal) {
	for _, r := range refused {
		if !r.Decided {
			out = append(out, r)
		}
	}
	return out
}

// publish makes sure that whatever the new generation leaves out is in the dead
// letters, before anybody can see that.
func (w *work) publish(ctx context.Context, generation int64) error {
	for _, r := range w.draft.refused {
		there, err := w.letters.has(ctx, w.key, r.Fragment.Seq)
		if err != nil {
			return err
		}
		if there || r.Decided {
			continue
		}
		f := r.Fragment
		f.Hole = &r.Reason
		if err := w.letters.publish(ctx, w.stream.Letter(ctx, w.binding, generation, f)); err != nil {
			return err
		}
	}
	return nil
}
