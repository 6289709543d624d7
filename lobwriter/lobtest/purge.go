package lobtest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lobsink/lobsink/lobwriter"
)

// purgeRules are tested where Fixture.Operator is set.
var purgeRules = []rule{
	{"documents in a state, up to the checkpoint", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		long := letters(2 * op.Limits().ChunkBytes)
		o.Flush(t, o.Append("complete", Final(1, "<a/>")), o.Append("long", Final(2, long)), o.Append("open", Text(3, "x")))
		above := o.NewFlush(o.Append("above", Final(9, "<b/>")))
		above.Checkpoint = lobwriter.Position{} // somebody's first fragment is still in memory
		r, err := f.Store.Flush(t.Context(), above)
		if err != nil {
			t.Fatal(err)
		}
		o.Settle(above, r)
		p := lobwriter.Purge{Partition: 1, State: lobwriter.Complete, Keys: []string{"complete", "long", "open", "above", "nobody"}, DryRun: true}
		want := lobwriter.Purged{Documents: 2, Bytes: int64(4 + len(long)), Above: 1}
		purge(t, op, p, want)
		f.document(t, "long", long)
		p.DryRun = false
		purge(t, op, p, want)
		if d := cmp.Diff([]string{"above", "open"}, pages(t, f.Reader, lobwriter.Query{Limit: 9})); d != "" {
			t.Errorf("left: %s", d)
		}
		f.document(t, "open", "x")
		f.document(t, "above", "<b/>")
	}},
	{"not what was changed lately, nor another partition's", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Final(1, "<a/>")))
		purge(t, op, lobwriter.Purge{Partition: 1, State: lobwriter.Complete, Keys: []string{"k"}, Older: 48 * time.Hour}, lobwriter.Purged{})
		purge(t, op, lobwriter.Purge{Partition: 2, State: lobwriter.Complete, Keys: []string{"k"}}, lobwriter.Purged{})
		f.document(t, "k", "<a/>")
	}},
	{"a purged document begins again with its next fragment", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Final(1, "<a/>")))
		purge(t, op, lobwriter.Purge{Partition: 1, State: lobwriter.Complete, Keys: []string{"k"}}, lobwriter.Purged{Documents: 1, Bytes: 4})
		_, err := f.Store.Flush(t.Context(), o.NewFlush(o.Append("k", Text(2, ""))))
		kind(t, err, lobwriter.Fenced)
		again := NewOwner(t, f.Store, 1)
		again.Rows = o.Rows // a late believer
		r := again.Flush(t, again.Append("k", Text(2, "")))
		statuses(t, r, lobwriter.Stale)
		if !r.Answers[0].Row.Absent() {
			t.Errorf("the answer brings %+v", r.Answers[0].Row)
		}
		statuses(t, again.Flush(t, again.Append("k", Text(2, "<b/>"))), lobwriter.Appended)
		f.document(t, "k", "<b/>")
	}},
	{"a flush whose reply was lost is not repeated after it", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Text(1, "<a>"), Final(2, "</a>")), o.Append("l", Final(3, "x")))
		// An owner that claimed again reads 2 and sends it as new; then 2 is at the
		// checkpoint. Meanwhile the document is purged.
		group := NewGroup(f.Store.Limits(), 1, "k", lobwriter.Row{}, Final(2, "</a>"))
		flush := o.NewFlush(group)
		if r, err := f.Store.Flush(t.Context(), flush); err != nil {
			t.Fatal(err)
		} else {
			statuses(t, r, lobwriter.AlreadyThere)
		}
		purge(t, op, lobwriter.Purge{Partition: 1, State: lobwriter.Complete, Keys: []string{"k"}}, lobwriter.Purged{Documents: 1, Bytes: 7})
		_, err := f.Store.Flush(t.Context(), flush)
		var fenced *lobwriter.FencedError
		if !errors.As(err, &fenced) || fenced.Stored.Flush != flush.Number+3 || fenced.Stored.Epoch != flush.Epoch {
			t.Errorf("repeated: %v", err)
		}
		// What lies below is settled by then.
		purge(t, op, lobwriter.Purge{Partition: 1, State: lobwriter.Complete, Keys: []string{"l"}}, lobwriter.Purged{Documents: 1, Bytes: 1})
		if got := fence(t, f.Store, 1); got.Flush != flush.Number+3 {
			t.Errorf("flush number %d, want %d", got.Flush, flush.Number+3)
		}
	}},
	{"with its repairs", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Final(1, "<a/>")))
		b := newBuild(t, op, 1, "k", o.Rows["k"])
		b.add(t, Final(1, "<b/>"))
		b.repairs = []lobwriter.Repair{{Mark: lobwriter.Mark{Life: 1, Seq: 1}, Text: []byte("<b/>")}}
		b.swap(t, true)
		b.build.Close()
		purge(t, op, lobwriter.Purge{Partition: 1, State: lobwriter.Complete, Keys: []string{"k"}}, lobwriter.Purged{Documents: 1, Bytes: 4})
		if r, err := op.Repairs(t.Context(), "k"); err != nil || len(r) != 0 {
			t.Errorf("repairs %v, %v", r, err)
		}
	}},
}

func purge(t *testing.T, op lobwriter.Operator, p lobwriter.Purge, want lobwriter.Purged) {
	t.Helper()
	got, err := op.Purge(t.Context(), p)
	if err != nil || got != want {
		t.Fatalf("purged %+v, %v; want %+v", got, err, want)
	}
}
