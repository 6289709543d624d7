package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// tries is how often the flush path is measured where it takes milliseconds: one
// slow write to the disk is as long as all the rest. The median counts.
const tries = 5

// smallSeed is up to how many appends it is measured so often.
const smallSeed = 100_000

// flushPath measures batcher and store, from the first Add to the commit. The
// connection is made, the partition claimed and a first document flushed before.
func (s *Seed) flushPath(ctx context.Context, texts [][]byte) (_ *trial, err error) {
	if err := errors.Join(s.Tables.Remove(ctx), s.Tables.Setup(ctx)); err != nil {
		return nil, err
	}
	store, err := s.Tables.Open(ctx)
	if err != nil {
		return nil, err
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, store.Close())
		}
	}()
	w, err := newWriter(ctx, store)
	if err != nil {
		return nil, err
	}
	if err := w.write(ctx, "warm-up", texts[:1]); err != nil {
		return nil, err
	}
	// A session reports its counters at the end of a transaction, but not twice
	// within such a time. The flush has no groups.
	time.Sleep(s.Instruments.ReportsEvery())
	if err := w.send(ctx, nil); err != nil {
		return nil, err
	}
	before, err := s.Instruments.Read(ctx, s.Tables.Prefix())
	if err != nil {
		return nil, err
	}
	took := make([]time.Duration, 1, tries)
	if len(texts) <= smallSeed {
		took = took[:tries]
	}
	for i := range took {
		began := time.Now()
		if err := w.write(ctx, seedKey(i), texts); err != nil {
			return nil, err
		}
		took[i] = time.Since(began)
	}
	last := seedKey(len(took) - 1)
	slices.Sort(took)
	t := &trial{took: took[len(took)/2]}
	closed = true
	if err := store.Close(); err != nil {
		return nil, err
	}
	after, err := s.Instruments.Read(ctx, s.Tables.Prefix())
	t.counters = after.since(before).each(int64(len(took)))
	return t, errors.Join(err, s.check(ctx, last, texts))
}

func seedKey(try int) string { return fmt.Sprintf("seed-%d", try+1) }

// check reads the document back: what was measured must be right.
func (s *Seed) check(ctx context.Context, key string, texts [][]byte) (err error) {
	r, err := s.Tables.OpenReader(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var crc uint32
	for _, text := range texts {
		crc = lobwriter.Checksum(crc, text)
	}
	var stored uint32
	_, err = r.Read(ctx, key, func(chunk []byte) error {
		stored = lobwriter.Checksum(stored, chunk)
		return nil
	})
	if err == nil && stored != crc {
		err = errors.New("the document that was stored is not what was appended")
	}
	return err
}

// writer does with one partition what its owner does, one document at a time.
type writer struct {
	store  lobwriter.Store
	fence  lobwriter.Fence
	limits lobwriter.Limits
	batch  *batcher.Batcher
	seq    uint64
	row    lobwriter.Row // of the document that is being written
}

func newWriter(ctx context.Context, store lobwriter.Store) (*writer, error) {
	if _, err := store.Bind(ctx, lobwriter.Stream{Name: "LOBSINK_BENCH", Created: 1, Partitions: 1}); err != nil {
		return nil, err
	}
	c, err := store.Claim(ctx, lobwriter.ClaimRequest{MemberID: consumer.NewID(), ClaimID: consumer.NewID(), Lease: time.Hour})
	if err != nil {
		return nil, err
	}
	limits := store.Limits()
	limits.ChunkBytes = min(limits.ChunkBytes, chunkBytes)
	return &writer{
		store: store, fence: c.Fence, limits: limits,
		batch: batcher.New(batcher.Limits{MaxAge: time.Hour, ChunkBytes: limits.ChunkBytes}),
	}, nil
}

// write appends texts to a new document, in as few flushes as the store allows,
// and returns when they are committed. The next flush is collected while one is
// under way.
func (w *writer) write(ctx context.Context, key string, texts [][]byte) error {
	w.row = lobwriter.Row{}
	now, held := time.Now(), 0
	var flight chan error
	land := func() error {
		if flight == nil {
			return nil
		}
		err := <-flight
		flight = nil
		w.batch.Settle(key, w.row.Mark.Seq)
		return err
	}
	launch := func() error {
		if err := land(); err != nil {
			return err
		}
		groups := w.batch.Take(now, batcher.Limit{Documents: w.limits.Documents, Bytes: w.limits.Bytes})
		if len(groups) == 0 {
			return nil
		}
		held -= groups[0].Bytes
		g := w.compose(&groups[0])
		flight = make(chan error, 1)
		go func() { flight <- w.send(ctx, g) }()
		return nil
	}
	for _, text := range texts {
		w.seq++
		w.batch.Add(now, batcher.Fragment{Key: key, Seq: w.seq, Time: now.UnixNano(), Data: text})
		if held += len(text); held >= w.limits.Bytes {
			if err := launch(); err != nil {
				return err
			}
		}
	}
	for w.batch.Hurry(); held > 0; w.batch.Hurry() {
		if err := launch(); err != nil {
			return err
		}
	}
	return land()
}

// compose turns a group of the batcher into one for the store.
func (w *writer) compose(g *batcher.Group) *lobwriter.Group {
	chunks := lobwriter.Cut(func(yield func([]byte) bool) {
		for i := range g.Fragments {
			if !yield(g.Fragments[i].Text()) {
				return
			}
		}
	}, g.Bytes, w.limits.ChunkBytes)
	believed := w.row
	w.row = believed.Append(w.fence.Life, w.limits.Unit, g.Fragments, chunks)
	return &lobwriter.Group{Key: g.Key, Believed: believed, After: w.row, First: g.First(), Last: g.Last(), Chunks: chunks}
}

// send makes a flush of one group, or of none.
func (w *writer) send(ctx context.Context, g *lobwriter.Group) error {
	f := &lobwriter.Flush{Life: w.fence.Life, Epoch: w.fence.Epoch, ClaimID: w.fence.ClaimID, Number: w.fence.Flush}
	if g != nil {
		f.Groups = []lobwriter.Group{*g}
	}
	r, err := w.store.Flush(ctx, f)
	if err != nil {
		return err
	}
	w.fence.Flush = r.Number
	for _, a := range r.Answers {
		if a.Status != lobwriter.Appended {
			return fmt.Errorf("the group was not appended but %s", a.Status)
		}
	}
	return nil
}
