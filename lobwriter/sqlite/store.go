// Package sqlite keeps documents in a SQLite file: one row for each document,
// and its text in rows of one chunk each, so that nothing that is stored is ever
// written again.
//
// A file serves one running lobsink. Its operating-system lock, see Lock, is what
// keeps a second one out; programs that only read use a Reader at any time.
package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/lobsink/lobsink/lobwriter"
)

// The limits of one flush. Larger ones are no faster, see BenchmarkFlush.
const (
	maxDocuments = 1024
	maxBytes     = 4 << 20
	// chunkBytes fits, as the default, every store of lobsink.
	chunkBytes = 32767
)

// Options are the settings of a store and of a reader.
type Options struct {
	// Path is the file.
	Path string
	// Prefix is what the names of the tables begin with; "": lobsink_.
	Prefix string
	// ChunkBytes is the most bytes of one chunk; 0: 32,767.
	ChunkBytes int
	// Exclusive says that the caller holds the lock of this file, see Lock,
	// for as long as the store is open. The lock is then the lease: whoever
	// left leases behind is gone, so Open frees them, and Renew only reads, so
	// that neither a flush under way nor a full disk makes ownership doubtful.
	Exclusive bool
	// Now is the clock of the database, in Unix nanoseconds; nil: the
	// process's.
	Now func() int64
}

func (o Options) withDefaults() Options {
	o.Prefix = cmp.Or(o.Prefix, "lobsink_")
	o.ChunkBytes = cmp.Or(o.ChunkBytes, chunkBytes)
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixNano() }
	}
	return o
}

// Store is a lobwriter.Store in a SQLite file.
type Store struct {
	o    Options
	file *file
	// renewed holds the last renewal of each partition in an exclusive store: a
	// lease without its epoch.
	renewed sync.Map
}

var _ lobwriter.Store = (*Store)(nil)

// Open opens the store in an existing file with tables of exactly this
// program's version. Anything else is a Fatal error that says what to do.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	f, err := openFile(ctx, o, true)
	if err != nil {
		return nil, err
	}
	s := &Store{o: o, file: f}
	if o.Exclusive {
		if err := s.freeLeases(ctx); err != nil {
			f.close()
			return nil, err
		}
	}
	return s, nil
}

// Limits implements lobwriter.Store.
func (s *Store) Limits() lobwriter.Limits {
	return lobwriter.Limits{
		Documents: maxDocuments, Bytes: maxBytes, ChunkBytes: s.o.ChunkBytes, Unit: lobwriter.Runes,
	}
}

// Close implements lobwriter.Store.
func (s *Store) Close() error { return s.file.close() }

// Flush implements lobwriter.Store.
func (s *Store) Flush(ctx context.Context, f *lobwriter.Flush) (receipt lobwriter.Receipt, err error) {
	try := func(apart bool) error {
		return s.write(ctx, "flush", func(tx *sql.Tx) (err error) {
			receipt, err = s.flush(ctx, tx, f, apart)
			return err
		})
	}
	err = try(false)
	if lobwriter.KindOf(err) == lobwriter.Invalid {
		// The database refused the content of a group, and all of the flush is
		// undone. Once more, at the price of a savepoint for each group.
		err = try(true)
	}
	if err != nil {
		return lobwriter.Receipt{}, err
	}
	return receipt, nil
}

// flush is the whole of a flush, within its transaction. With apart, a group that
// the database refuses does not end it.
func (s *Store) flush(ctx context.Context, tx *sql.Tx, f *lobwriter.Flush, apart bool) (receipt lobwriter.Receipt, err error) {
	fence, err := s.fence(ctx, tx, f.Partition)
	if err != nil {
		return receipt, err
	}
	claimed := fence.Epoch > 0
	if !claimed || fence.Life != f.Life || fence.Epoch != f.Epoch || fence.ClaimID != f.ClaimID || fence.Flush != f.Number {
		return receipt, &lobwriter.FencedError{Stored: fence}
	}

	receipt.Answers = make([]lobwriter.Answer, len(f.Groups))
	// A context that can end costs a goroutine for each statement. These take
	// microseconds, so it is enough to look in between.
	ended := ctx
	ctx = context.WithoutCancel(ctx)
	q := s.file.q.in(ctx, tx)
	stored := true
	for i := range f.Groups {
		if err := ended.Err(); err != nil {
			return receipt, err
		}
		a, err := s.flushGroup(ctx, q, f, &f.Groups[i], apart)
		if err != nil {
			return receipt, err
		}
		receipt.Answers[i] = a
		stored = stored && (a.Status == lobwriter.Appended || a.Status == lobwriter.AlreadyThere)
	}

	fence.Flush++
	if stored && f.Checkpoint.Seq > fence.Checkpoint.Seq {
		fence.Checkpoint = f.Checkpoint
	}
	if f.Highest.Seq > fence.Highest.Seq {
		fence.Highest = f.Highest
	}
	receipt.Number, receipt.Checkpoint = fence.Flush, fence.Checkpoint
	return receipt, s.putFence(ctx, tx, f.Partition, fence)
}

// flushGroup decides the answer of one group, in the order of the statuses, and
// appends the group if that is the answer.
func (s *Store) flushGroup(ctx context.Context, q queries, f *lobwriter.Flush, g *lobwriter.Group, apart bool) (lobwriter.Answer, error) {
	id, row, err := storedRow(q.row.QueryRowContext(ctx, g.Key))
	if err != nil {
		return lobwriter.Answer{}, err
	}
	first, last := lobwriter.Mark{Life: f.Life, Seq: g.First}, lobwriter.Mark{Life: f.Life, Seq: g.Last}
	switch {
	case !row.Mark.Before(last):
		return lobwriter.Answer{Status: lobwriter.AlreadyThere, Row: row}, nil
	case !row.Same(g.Believed) || !row.Mark.Before(first):
		return lobwriter.Answer{Status: lobwriter.Stale, Row: row}, nil
	case row.State.Closed() && g.Carries():
		return lobwriter.Answer{Status: lobwriter.Closed, Row: row}, nil
	}
	if code, text := refusal(g.Chunks); code != "" {
		return lobwriter.Answer{Status: lobwriter.Rejected, Row: row, Code: code, Text: text}, nil
	}
	add := s.append
	if apart {
		add = s.appendApart
	}
	switch err := add(ctx, q, f.Partition, id, g); {
	case err == nil:
		return lobwriter.Answer{Status: lobwriter.Appended}, nil
	case apart && lobwriter.KindOf(err) == lobwriter.Invalid:
		return lobwriter.Answer{Status: lobwriter.Rejected, Row: row, Code: lobwriter.CodeOf(err), Text: err.Error()}, nil
	default:
		return lobwriter.Answer{}, err
	}
}

// appendApart is append, but of a group that the database refuses nothing is kept.
// The error then is Invalid.
func (s *Store) appendApart(ctx context.Context, q queries, partition int, id int64, g *lobwriter.Group) error {
	if _, err := q.savepoint.ExecContext(ctx); err != nil {
		return err
	}
	refused := classify("append", s.append(ctx, q, partition, id, g))
	if refused != nil {
		if lobwriter.KindOf(refused) != lobwriter.Invalid {
			return refused
		}
		if _, err := q.rollback.ExecContext(ctx); err != nil {
			return err
		}
	}
	if _, err := q.release.ExecContext(ctx); err != nil {
		return err
	}
	return refused
}

// append writes the row after the group, and its chunks after the stored ones.
// The ID 0 is a document that is not there.
func (s *Store) append(ctx context.Context, q queries, partition int, id int64, g *lobwriter.Group) error {
	now := s.o.Now()
	r := &g.After
	values := []any{
		r.Generation, r.State, r.Mark.Life, r.Mark.Seq, r.First, r.Fragments, r.Holes, r.Late,
		r.Bytes, r.Units, r.Chunks, r.CRC, r.Reason, now,
	}
	if id == 0 {
		res, err := q.insert.ExecContext(ctx, append(values, g.Key, partition, now)...)
		if err != nil {
			return err
		}
		if id, err = res.LastInsertId(); err != nil {
			return err
		}
	} else if _, err := q.update.ExecContext(ctx, append(values, id)...); err != nil {
		return err
	}
	n := r.Chunks - int64(len(g.Chunks))
	for _, text := range g.Chunks {
		n++
		if _, err := q.chunk.ExecContext(ctx, id, r.Generation, n, string(text)); err != nil {
			return err
		}
	}
	return nil
}

// refusal says why text may not be stored, or "". SQLite itself takes any bytes
// as text; the other stores do not, and its own functions stop at a U+0000.
func refusal(chunks [][]byte) (code, text string) {
	for _, c := range chunks {
		switch {
		case !utf8.Valid(c):
			return "invalid-utf8", "the text is not valid UTF-8"
		case bytes.IndexByte(c, 0) >= 0:
			return "nul", "the text contains U+0000"
		}
	}
	return "", ""
}

// write runs do in one immediate transaction: it has the only write lock of the
// file from its first statement on. If write returns nil, the transaction is
// durable. After an error of do itself nothing was written; after any other the
// outcome is unknown.
func (s *Store) write(ctx context.Context, op string, do func(*sql.Tx) error) error {
	if err := s.file.check(); err != nil {
		return classify(op, err)
	}
	tx, err := s.file.writer.BeginTx(ctx, nil)
	if err != nil {
		return classify(op, late(ctx, err))
	}
	defer tx.Rollback() // does nothing after the commit
	if err := do(tx); err != nil {
		return classify(op, late(ctx, err))
	}
	if err := tx.Commit(); err != nil {
		return unknown(op, late(ctx, err))
	}
	return classify(op, s.file.check())
}
