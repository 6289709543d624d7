package lobtest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// rebuildRules are tested where Fixture.Operator is set.
var rebuildRules = []rule{
	{"a generation takes the place of the stored one", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		long := letters(3*op.Limits().ChunkBytes + 1)
		o.Flush(t, o.Append("k", Text(1, "<a>"), Text(2, "<wrong/>"), Final(3, "</a>")), o.Append("other", Text(4, "<o/>")))
		before := f.document(t, "k", "<a><wrong/></a>")
		b := newBuild(t, op, 1, "k", o.Rows["k"])
		b.add(t, Text(1, "<a>"), Text(2, "é"), Text(2, long), Final(3, "</a>"))
		f.document(t, "k", "<a><wrong/></a>") // nobody sees what is not whole
		b.swap(t, true)
		after := f.document(t, "k", "<a>é"+long+"</a>")
		if after.Generation != 2 || after.State != lobwriter.Complete || after.Mark != before.Mark || after.CreatedAt != before.CreatedAt || after.UpdatedAt < before.UpdatedAt {
			t.Errorf("before %+v, after %+v", before, after)
		}
		if d := cmp.Diff(b.row, after.Row); d != "" {
			t.Errorf("row: %s", d)
		}
		f.document(t, "other", "<o/>")
	}},
	{"a shorter generation leaves nothing of the one before", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Text(1, letters(4*op.Limits().ChunkBytes)), Hole(2)))
		b := newBuild(t, op, 1, "k", o.Rows["k"])
		b.add(t, Text(1, ""), Final(2, ""))
		b.swap(t, true)
		if d := f.document(t, "k", ""); d.State != lobwriter.Complete || d.Holes != 0 || d.Chunks != 0 || d.Reason != "" {
			t.Errorf("document %+v", d)
		}
	}},
	{"not while the mark is another one", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Text(1, "<a>")))
		b := newBuild(t, op, 1, "k", o.Rows["k"])
		b.add(t, Text(1, "<A>"))
		o.Flush(t, o.Append("k", Text(5, "<b/>")))
		if stored := b.swap(t, false); !cmp.Equal(stored, o.Rows["k"]) {
			t.Errorf("stored row %+v", stored)
		}
		f.document(t, "k", "<a><b/>")
		o.Flush(t, o.Append("k", Text(6, "<c/>"))) // nothing of it is locked
		b.add(t, Text(5, "<B/>"))
		b.swap(t, false)
		b.add(t, Text(6, "<C/>"))
		b.swap(t, true)
		f.document(t, "k", "<A><B/><C/>")
	}},
	{"not while the generation is another one", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Text(1, "<a>")))
		first := newBuild(t, op, 1, "k", o.Rows["k"])
		first.add(t, Text(1, "1"))
		first.swap(t, true)
		first.build.Close()
		late := newBuild(t, op, 1, "k", o.Rows["k"]) // it believes in generation 1
		if err := late.build.Append(t.Context(), [][]byte{[]byte("2")}); err == nil {
			late.row = late.row.Append(1, op.Limits().Unit, []batcher.Fragment{Text(1, "2")}, [][]byte{[]byte("2")})
			late.swap(t, false)
		}
		f.document(t, "k", "1")
	}},
	{"a build that is not swapped in leaves nothing", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Text(1, "<a>")))
		for range 3 {
			b := newBuild(t, op, 1, "k", o.Rows["k"])
			b.add(t, Text(1, letters(2*op.Limits().ChunkBytes)))
			if err := b.build.Close(); err != nil {
				t.Fatal(err)
			}
			f.document(t, "k", "<a>")
		}
		o.Flush(t, o.Append("k", Final(2, "</a>")))
		f.document(t, "k", "<a></a>")
	}},
	{"a document that is not there, up to the checkpoint", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("other", Text(7, "x"))) // checkpoint 7
		above := newBuild(t, op, 1, "k", lobwriter.Row{})
		above.add(t, Text(3, "<a>"), Text(8, "</a>"))
		if stored := above.swap(t, false); !stored.Absent() {
			t.Errorf("stored row %+v", stored)
		}
		above.build.Close()
		b := newBuild(t, op, 1, "k", lobwriter.Row{})
		b.add(t, Text(3, "<a>"), Text(6, "é"))
		b.swap(t, true)
		if d := f.document(t, "k", "<a>é"); d.Generation != 1 || d.Partition != 1 || d.First != 3 || d.CreatedAt == 0 {
			t.Errorf("document %+v", d)
		}
		f.document(t, "other", "x")
		o.Rows["k"] = b.row
		o.Flush(t, o.Append("k", Text(8, "</a>")))
		f.document(t, "k", "<a>é</a>")
	}},
	{"the owner finds out by the answer to its next flush", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Text(1, "<a>")))
		b := newBuild(t, op, 1, "k", o.Rows["k"])
		b.add(t, Text(1, "<A>"))
		b.swap(t, true)
		number := fence(t, f.Store, 1).Flush
		group := o.Append("k", Text(2, "</a>"))
		r := o.Flush(t, group)
		statuses(t, r, lobwriter.Stale)
		if d := cmp.Diff(b.row, r.Answers[0].Row); d != "" || number != 1 {
			t.Errorf("flush number %d, row: %s", number, d)
		}
		statuses(t, o.Flush(t, o.Append("k", Text(2, "</a>"))), lobwriter.Appended)
		f.document(t, "k", "<A></a>")
	}},
	{"a flush that is repeated after the swap is already there", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		group := o.Append("k", Text(1, "<a>"))
		o.Flush(t, group)
		b := newBuild(t, op, 1, "k", o.Rows["k"])
		b.add(t, Text(1, "<A>"))
		b.swap(t, true)
		r, err := o.Deliver(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		statuses(t, r, lobwriter.AlreadyThere)
		f.document(t, "k", "<A>")
	}},
	{"a swap waits for a flush, and a build does not", func(t *testing.T, f Fixture) {
		if f.Hold == nil {
			t.Skip("no way to hold the fence row")
		}
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Text(1, "<a>")))
		release := f.Hold(t, 1)
		b := newBuild(t, op, 1, "k", o.Rows["k"])
		b.add(t, Text(1, letters(2*op.Limits().ChunkBytes)))
		done := make(chan error, 1)
		go func() {
			_, swapped, err := b.build.Swap(t.Context(), b.row, nil)
			if err == nil && !swapped {
				err = errors.New("not swapped in")
			}
			done <- err
		}()
		select {
		case err := <-done:
			release()
			t.Fatalf("the swap did not wait: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
		f.document(t, "k", "<a>")
		release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		f.document(t, "k", letters(2*op.Limits().ChunkBytes))
	}},
	{"text that the database refuses is Invalid", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Text(1, "<a>")))
		b := newBuild(t, op, 1, "k", o.Rows["k"])
		kind(t, b.build.Append(t.Context(), [][]byte{[]byte("x\x00y")}), lobwriter.Invalid)
		b.build.Close()
		f.document(t, "k", "<a>")
		again := newBuild(t, op, 1, "k", o.Rows["k"])
		again.add(t, Text(1, "<A>"))
		again.swap(t, true)
		f.document(t, "k", "<A>")
	}},
	{"repairs are kept, and replaced with the next generation", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Text(1, "<a>")), o.Append("other", Text(2, "x")))
		row := o.Rows["k"]
		for _, want := range [][]lobwriter.Repair{
			{{Mark: lobwriter.Mark{Life: 1, Seq: 1 << 40}, Omit: true}, {Mark: lobwriter.Mark{Life: 2, Seq: 3}, Text: []byte("é\r\n")}},
			{{Mark: lobwriter.Mark{Life: 1, Seq: 1}, Text: []byte{}}},
			nil,
		} {
			b := newBuild(t, op, 1, "k", row)
			b.add(t, Text(1, "<a>"))
			b.repairs = want
			b.swap(t, true)
			b.build.Close()
			row = b.row
			got, err := op.Repairs(t.Context(), "k")
			if d := cmp.Diff(want, got); err != nil || d != "" {
				t.Errorf("repairs: %v %s", err, d)
			}
		}
		for _, key := range []string{"other", "nobody"} {
			if got, err := op.Repairs(t.Context(), key); err != nil || len(got) != 0 {
				t.Errorf("repairs of %s: %v, %v", key, got, err)
			}
		}
	}},
	{"a row that does not describe the build is Invalid", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Text(1, "<a>")))
		b := newBuild(t, op, 1, "k", o.Rows["k"])
		b.add(t, Text(1, "<A>"))
		wrong := b.row
		wrong.Chunks++
		_, _, err := b.build.Swap(t.Context(), wrong, nil)
		kind(t, err, lobwriter.Invalid)
		f.document(t, "k", "<a>")
	}},
}

// newBuilder is a build in a test, with the row that describes it.
type newBuilder struct {
	build   lobwriter.Build
	limits  lobwriter.Limits
	row     lobwriter.Row
	repairs []lobwriter.Repair
}

// newBuild begins the generation after the one of a row.
func newBuild(t *testing.T, op lobwriter.Operator, partition int, key string, stored lobwriter.Row) *newBuilder {
	t.Helper()
	b, err := op.Build(t.Context(), partition, key, stored.Generation+1)
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	t.Cleanup(func() { b.Close() })
	return &newBuilder{build: b, limits: op.Limits(), row: lobwriter.Row{Generation: stored.Generation + 1}}
}

// add appends fragments of life 1.
func (b *newBuilder) add(t *testing.T, fragments ...batcher.Fragment) {
	t.Helper()
	if b.row.State == 0 {
		b.row.State, b.row.First = lobwriter.Open, fragments[0].Seq
	}
	g := NewGroup(b.limits, 1, "", b.row, fragments...)
	if err := b.build.Append(t.Context(), g.Chunks); err != nil {
		t.Fatalf("append to a build: %v", err)
	}
	b.row = g.After
}

// swap swaps the build in, or finds that it may not be, and returns the stored
// row.
func (b *newBuilder) swap(t *testing.T, want bool) lobwriter.Row {
	t.Helper()
	stored, swapped, err := b.build.Swap(t.Context(), b.row, b.repairs)
	if err != nil || swapped != want {
		t.Fatalf("swap: %v, %v; want %v", swapped, err, want)
	}
	return stored
}
