package rebuild

import (
	"context"
	"errors"

	"github.com/lobsink/lobsink/consumer"
)

// What one pass over the stream builds at most: the text is held in memory until
// the pass has ended.
const (
	BatchDocuments = 5000
	BatchBytes     = 64 << 20
)

// passWorth is how many messages one document is worth: reading so many in passing
// takes about as long as looking for the fragments of one document.
const passWorth = 1000

// Batch rebuilds documents, up to BatchDocuments with BatchBytes of text, in one pass
// over the part of the stream that they lie in, if that is faster than to look for
// each of them. It calls each for every document, in their order, with what Document
// would return. An error of each ends the work and is returned.
func (r *Rebuilder) Batch(ctx context.Context, keys []string, o Options, each func(key string, res Result, err error) error) error {
	works, err := r.beginAll(ctx, keys, o)
	if err != nil {
		return err
	}
	if err := r.pass(ctx, works); err != nil && !errors.Is(err, consumer.ErrInterrupted) {
		return err
	}
	for _, key := range keys {
		res, err := r.passed(ctx, works[key], key, o)
		if err := each(key, res, err); err != nil {
			return err
		}
	}
	return nil
}

// beginAll begins documents. What is refused before anything is read has no work.
func (r *Rebuilder) beginAll(ctx context.Context, keys []string, o Options) (map[string]*work, error) {
	works := make(map[string]*work, len(keys))
	for _, key := range keys {
		w, err := r.begin(ctx, key, o)
		var refused *RefusedError
		if err != nil && !errors.As(err, &refused) {
			return nil, err
		}
		if err == nil {
			works[key] = w
		}
	}
	return works, nil
}

// pass reads what the works need, all at once.
func (r *Rebuilder) pass(ctx context.Context, works map[string]*work) error {
	from, through := uint64(0), uint64(0)
	for _, w := range works {
		if from == 0 || w.from < from {
			from = w.from
		}
		through = max(through, w.through)
	}
	if through < from || through-from > uint64(len(works))*passWorth {
		return nil
	}
	c, err := r.stream.Document(ctx, consumer.Selection{From: from})
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		f, ok, err := c.Next(ctx)
		if err != nil || !ok || f.Seq > through {
			return err
		}
		if w := works[f.Key]; w != nil && f.Seq >= w.from && f.Seq <= w.through {
			w.take(f)
		}
	}
}

// passed finishes a document that was read in passing. One that was not, or not
// wholly, is looked for by itself.
func (r *Rebuilder) passed(ctx context.Context, w *work, key string, o Options) (Result, error) {
	if w == nil || w.complete() != nil {
		return r.Document(ctx, key, o)
	}
	res, err := w.finish(ctx)
	w.close()
	var refused *RefusedError
	if err != nil && !errors.As(err, &refused) && ctx.Err() == nil {
		return r.Document(ctx, key, o)
	}
	return res, err
}
