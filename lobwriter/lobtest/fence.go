package lobtest

import (
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
)

var fenceRules = []rule{
	{"any difference is fenced and writes nothing", anyDifference},
	{"a partition that was never claimed is fenced", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		flush := o.NewFlush(o.Append("k", Text(7, "<a/>")))
		flush.Partition = 2
		_, err := f.Store.Flush(t.Context(), flush)
		fenced(t, err, lobwriter.Fence{Life: 1})
	}},
	{"an owner that was taken over is fenced", func(t *testing.T, f Fixture) {
		stores := f.others(t)
		old := NewOwner(t, stores[0], 1)
		old.Flush(t, old.Append("k", Text(1, "<a>")))
		c := claim(t, stores[1], request(ada, id2))
		_, err := stores[0].Flush(t.Context(), old.NewFlush(old.Append("k", Text(2, "</a>"))))
		fenced(t, err, c.Fence)
		f.document(t, "k", "<a>")
	}},
}

func anyDifference(t *testing.T, f Fixture) {
	o := NewOwner(t, f.Store, 1)
	o.Flush(t, o.Append("k", Text(7, "<a>")))
	stored := fence(t, f.Store, 1)
	before := row(t, f.Store, 1, "k")
	for _, d := range []struct {
		name   string
		change func(*lobwriter.Flush)
	}{
		{"life above", func(f *lobwriter.Flush) { f.Life++ }},
		{"life below", func(f *lobwriter.Flush) { f.Life-- }},
		{"epoch above", func(f *lobwriter.Flush) { f.Epoch++ }},
		{"epoch below", func(f *lobwriter.Flush) { f.Epoch-- }},
		{"claim ID", func(f *lobwriter.Flush) { f.ClaimID = id3 }},
		{"no claim ID", func(f *lobwriter.Flush) { f.ClaimID = "" }},
		{"flush number above", func(f *lobwriter.Flush) { f.Number++ }},
		{"flush number below", func(f *lobwriter.Flush) { f.Number-- }},
	} {
		t.Run(d.name, func(t *testing.T) {
			flush := o.NewFlush(o.Append("k", Text(8, "</a>")), o.Append("new", Text(9, "<b/>")))
			d.change(flush)
			_, err := f.Store.Flush(t.Context(), flush)
			kind(t, err, lobwriter.Fenced)
			fenced(t, err, stored)
			if got := fence(t, f.Store, 1); got != stored {
				t.Errorf("the fence row became %+v", got)
			}
			if k, n := row(t, f.Store, 1, "k"), row(t, f.Store, 1, "new"); k != before || !n.Absent() {
				t.Errorf("written: %+v, %+v", k, n)
			}
			f.document(t, "k", "<a>")
		})
	}
	statuses(t, o.Flush(t, o.Append("k", Text(8, "</a>"))), lobwriter.Appended)
	f.document(t, "k", "<a></a>")
}

var checkpointRules = []rule{
	{"a flush without groups moves checkpoint, highest and number", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		moves(t, o, &lobwriter.Flush{Checkpoint: At(5), Highest: At(9)}, At(5), At(9))
		moves(t, o, &lobwriter.Flush{Checkpoint: At(9), Highest: At(9)}, At(9), At(9))
	}},
	{"without a checkpoint it stays", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		moves(t, o, &lobwriter.Flush{}, At(0), At(0))
		moves(t, o, &lobwriter.Flush{Checkpoint: At(5), Highest: At(5)}, At(5), At(5))
		moves(t, o, &lobwriter.Flush{Highest: At(8)}, At(5), At(8))
		moves(t, o, &lobwriter.Flush{}, At(5), At(8))
	}},
	{"checkpoint and highest move only forward", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		moves(t, o, &lobwriter.Flush{Checkpoint: At(5), Highest: At(8)}, At(5), At(8))
		moves(t, o, &lobwriter.Flush{Checkpoint: At(4), Highest: At(7)}, At(5), At(8))
		moves(t, o, &lobwriter.Flush{Checkpoint: At(6), Highest: At(7)}, At(6), At(8))
	}},
	{"sequences up to 2^63-1 are compared as numbers", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		most := lobwriter.Position{Seq: 1<<63 - 1, Time: 1<<63 - 1}
		moves(t, o, &lobwriter.Flush{Checkpoint: At(9), Highest: At(10)}, At(9), At(10))
		moves(t, o, &lobwriter.Flush{Checkpoint: most, Highest: most}, most, most)
		moves(t, o, &lobwriter.Flush{Checkpoint: At(10), Highest: At(10)}, most, most)
	}},
	{"the checkpoint moves if every group is appended or already there", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		there := o.Append("k", Text(1, "<a/>"))
		o.Flush(t, there)
		flush := &lobwriter.Flush{Checkpoint: At(6), Highest: At(7), Groups: []lobwriter.Group{there, o.Append("l", Text(6, "<b/>"))}}
		moves(t, o, flush, At(6), At(7), lobwriter.AlreadyThere, lobwriter.Appended)
	}},
	{"the checkpoint stays if a group is stale", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("k", Text(1, "<a/>")))
		stays(t, o, NewGroup(f.Store.Limits(), 1, "k", lobwriter.Row{}, Text(5, "<b/>")), lobwriter.Stale)
	}},
	{"the checkpoint stays if a group is closed", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("k", Final(1, "<a/>")))
		stays(t, o, o.Append("k", Text(5, "<b/>")), lobwriter.Closed)
	}},
	{"the checkpoint stays if a group is rejected", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("k", Text(1, "<a/>")))
		stays(t, o, o.Append("k", Text(5, "<\x00/>")), lobwriter.Rejected)
	}},
}

// moves sends a flush as the owner's next and checks where it leaves the fence
// row.
func moves(t *testing.T, o *Owner, f *lobwriter.Flush, checkpoint, highest lobwriter.Position, answers ...lobwriter.Status) {
	t.Helper()
	base := o.NewFlush()
	base.Groups, base.Checkpoint, base.Highest = f.Groups, f.Checkpoint, f.Highest
	r, err := o.Store.Flush(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	statuses(t, r, answers...)
	want := o.Claim.Fence
	want.Flush, want.Checkpoint, want.Highest = o.Number+1, checkpoint, highest
	if got := fence(t, o.Store, o.Claim.Partition); got != want {
		t.Errorf("fence row %+v, want %+v", got, want)
	}
	if r.Number != want.Flush || r.Checkpoint != want.Checkpoint {
		t.Errorf("receipt %d, %+v, want %d, %+v", r.Number, r.Checkpoint, want.Flush, want.Checkpoint)
	}
	o.Settle(base, r)
}

// stays flushes a group at sequence 5, which is not stored, between two that
// are: the number and the highest rise, the checkpoint stays at 1.
func stays(t *testing.T, o *Owner, g lobwriter.Group, status lobwriter.Status) {
	t.Helper()
	groups := []lobwriter.Group{o.Append("before", Text(2, "<x/>")), g, o.Append("after", Text(6, "<y/>"))}
	moves(t, o, &lobwriter.Flush{Checkpoint: At(6), Highest: At(7), Groups: groups}, At(1), At(7), lobwriter.Appended, status, lobwriter.Appended)
}
