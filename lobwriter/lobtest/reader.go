package lobtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/lobsink/lobsink/lobwriter"
)

var readerRules = []rule{
	{"a document that is not there is not found", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("k", Text(1, "<a/>")))
		if d, err := f.Reader.Document(t.Context(), "K"); !errors.Is(err, lobwriter.ErrNotFound) {
			t.Errorf("document: %+v, %v", d, err)
		}
		d, err := f.Reader.Read(t.Context(), "K", func([]byte) error { return errors.New("a piece of nothing") })
		if !errors.Is(err, lobwriter.ErrNotFound) {
			t.Errorf("read: %+v, %v", d, err)
		}
	}},
	{"a document has its row, partition and times", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 3)
		o.Flush(t, o.Append("k", Text(1, "<a>"), Hole(2)))
		first := f.document(t, "k", "<a>")
		o.Flush(t, o.Append("k", Final(3, "é</a>")))
		d := f.document(t, "k", "<a>é</a>")
		if diff := cmp.Diff(o.Rows["k"], d.Row); diff != "" {
			t.Errorf("row: %s", diff)
		}
		if d.Partition != 3 || d.CreatedAt != first.CreatedAt || first.UpdatedAt < first.CreatedAt || d.UpdatedAt < first.UpdatedAt {
			t.Errorf("first %+v, then %+v", first, d)
		}
		// The database is on this machine or nearby.
		if age := time.Since(time.Unix(0, d.CreatedAt)); age < -24*time.Hour || age > 24*time.Hour {
			t.Errorf("created %v ago", age)
		}
		if got, err := f.Reader.Document(t.Context(), "k"); err != nil || got != d {
			t.Errorf("document %+v, %v; read has %+v", got, err, d)
		}
		if got, err := f.Reader.Documents(t.Context(), lobwriter.Query{Limit: 9}); err != nil || !cmp.Equal(got, []lobwriter.Document{d}) {
			t.Errorf("documents %+v, %v; read has %+v", got, err, d)
		}
	}},
	{"every number of a row is kept", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		g := o.Append("k", Text(1<<62, "x"))
		g.After.Generation, g.After.State, g.After.First = 7, lobwriter.Incomplete, 1<<61
		g.After.Fragments, g.After.Holes, g.After.Late, g.After.Chunks = 1<<40, 1<<41, 1<<42, 1<<43
		g.After.CRC, g.After.Reason = 1<<32-1, "gap: é\n\"'\\ (sequence 12)"
		o.Flush(t, g)
		if d := cmp.Diff(g.After, row(t, f.Store, 1, "k")); d != "" {
			t.Error(d)
		}
	}},
	{"documents of one state", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		q := o.Append("quarantined", Hole(4))
		quarantined(&q.After)
		o.Flush(t, o.Append("open", Text(1, "x")), o.Append("complete", Final(2, "x")), o.Append("incomplete", Hole(3), Final(5, "x")), q)
		for s := lobwriter.Open; s <= lobwriter.Quarantined; s++ {
			if d := cmp.Diff([]string{s.String()}, pages(t, f.Reader, lobwriter.Query{State: s, Limit: 5})); d != "" {
				t.Errorf("state %v: %s", s, d)
			}
		}
		if d := cmp.Diff([]string{"complete", "incomplete", "open", "quarantined"}, pages(t, f.Reader, lobwriter.Query{Limit: 3})); d != "" {
			t.Errorf("all states: %s", d)
		}
	}},
	{"an error of chunk ends the reading and is returned", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("k", Text(1, letters(5*f.Store.Limits().ChunkBytes))))
		full := errors.New("the disk is full")
		calls := 0
		_, err := f.Reader.Read(t.Context(), "k", func([]byte) error {
			calls++
			return full
		})
		if !errors.Is(err, full) || calls != 1 {
			t.Errorf("%d calls, %v", calls, err)
		}
		f.document(t, "k", letters(5*f.Store.Limits().ChunkBytes))
	}},
	{"pieces end at character borders/O5", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		text := strings.Repeat("😀", f.Store.Limits().ChunkBytes)
		o.Flush(t, o.Append("k", Text(1, text)))
		f.document(t, "k", text)
	}},
	{"row and text are of one moment while a writer appends", oneMoment},
	{"the fence row is the store's", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("k", Text(7, "<a/>")))
		for p := range stream.Partitions {
			want := fence(t, f.Store, p)
			if got, err := f.Reader.Fence(t.Context(), p); err != nil || got != want {
				t.Errorf("partition %d: %+v, %v, want %+v", p, got, err, want)
			}
		}
	}},
	{"damage shows: the text is read as it is, the row as it was", func(t *testing.T, f Fixture) {
		if f.Sabotage == nil {
			t.Skip("the store has no way to damage a document")
		}
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("k", Text(1, "<a>text</a>")), o.Append("l", Text(2, "<a>text</a>")))
		f.Sabotage(t, "k")
		d, text := read(t, f.Reader, "k")
		if text == "<a>text</a>" || len(text) != int(d.Bytes) || d.Row != o.Rows["k"] {
			t.Errorf("text %q, row %+v", text, d.Row)
		}
		f.document(t, "l", "<a>text</a>")
	}},
}

// oneMoment reads a document again and again while it grows.
func oneMoment(t *testing.T, f Fixture) {
	o := NewOwner(t, f.Store, 1)
	unit := f.Store.Limits().Unit
	piece := letters(3000) + "é€𝄞"
	const flushes = 60
	o.Flush(t, o.Append("k", Text(1, piece)))
	var g errgroup.Group
	g.Go(func() error {
		for seq := uint64(2); seq <= flushes; seq++ {
			flush := o.NewFlush(o.Append("k", Text(seq, piece)))
			r, err := o.Store.Flush(t.Context(), flush)
			if err != nil {
				return err
			}
			o.Settle(flush, r)
		}
		return nil
	})
	for range 2 {
		g.Go(func() error {
			for last := int64(0); last < flushes; {
				var text strings.Builder
				d, err := f.Reader.Read(t.Context(), "k", func(p []byte) error {
					text.Write(p)
					return nil
				})
				if err != nil {
					return err
				}
				got := []byte(text.String())
				if d.Bytes != int64(len(got)) || d.CRC != lobwriter.Checksum(0, got) || d.Units != unit.Count(got) || d.Fragments < last {
					return fmt.Errorf("after %d fragments, the row has %d bytes in %d fragments and the text %d bytes", last, d.Bytes, d.Fragments, len(got))
				}
				last = d.Fragments
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	f.document(t, "k", strings.Repeat(piece, flushes))
}
