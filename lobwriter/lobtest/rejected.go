package lobtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
)

// unstorable is text that no store takes.
var unstorable = []struct{ name, text string }{
	{"U+0000", "<a>x\x00y</a>"}, // O61
	{"U+0000 alone", "\x00"},
	{"U+0000 at the end", "<a/>\x00"},
	{"a byte of another encoding", "<a>\xe9</a>"}, // O57
	{"half a character", "<a>\xe2\x82"},
	{"the other half", "\xac</a>"},
	{"a surrogate", "\xed\xa0\x80"},
	{"an overlong form", "\xc0\xaf"},
	{"U+0000 in an overlong form", "\xc0\x80"},
	{"above U+10FFFF", "\xf4\x90\x80\x80"},
	{"no character at all", "\xff\xfe"},
}

var rejectedRules = []rule{
	{"a rejected group keeps nothing and does not touch its neighbours/O61", func(t *testing.T, f Fixture) {
		for i, u := range unstorable {
			t.Run(u.name, func(t *testing.T) {
				name := func(s string) string { return fmt.Sprint(s, i) }
				o := NewOwner(t, f.Store, 1)
				o.Flush(t, o.Append(name("old"), Text(1, "<o>")), o.Append(name("neighbour"), Text(2, "<n>")))
				before := o.Rows[name("old")]
				r := o.Flush(t,
					o.Append(name("neighbour"), Text(3, "</n>")),
					o.Append(name("old"), Text(4, u.text)),
					o.Append(name("new"), Text(5, u.text)),
					o.Append(name("another"), Text(6, "<x/>")))
				statuses(t, r, lobwriter.Appended, lobwriter.Rejected, lobwriter.Rejected, lobwriter.Appended)
				if r.Answers[1].Row != before || !r.Answers[2].Row.Absent() {
					t.Errorf("answers bring %+v and %+v", r.Answers[1].Row, r.Answers[2].Row)
				}
				if r.Answers[1].Text == "" {
					t.Error("the answer does not say why")
				}
				f.document(t, name("neighbour"), "<n></n>")
				f.document(t, name("another"), "<x/>")
				f.document(t, name("old"), "<o>")
				if got := row(t, f.Store, 1, name("new")); !got.Absent() {
					t.Errorf("the rejected document is there: %+v", got)
				}
			})
		}
	}},
	{"no chunk of a rejected group is kept", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("k", Text(1, "<a>")))
		n := f.Store.Limits().ChunkBytes
		statuses(t, o.Flush(t, o.Append("k", Text(2, letters(2*n)+"\x00"+letters(n)))), lobwriter.Rejected)
		f.document(t, "k", "<a>")
		// Left-over chunks would be in the way of the next ones.
		statuses(t, o.Flush(t, o.Append("k", Text(3, letters(2*n)))), lobwriter.Appended)
		f.document(t, "k", "<a>"+letters(2*n))
	}},
	{"a document is quarantined after its rejected group", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("k", Text(1, "<a>")))
		statuses(t, o.Flush(t, o.Append("k", Text(2, "\x00"))), lobwriter.Rejected)
		g := o.Append("k", Hole(2))
		quarantined(&g.After)
		statuses(t, o.Flush(t, g), lobwriter.Appended)
		statuses(t, o.Flush(t, o.Append("k", Text(3, "</a>"))), lobwriter.Closed)
		statuses(t, o.Flush(t, o.Append("k", Hole(3))), lobwriter.Appended)
		d := f.document(t, "k", "<a>")
		if d.State != lobwriter.Quarantined || d.Holes != 2 || d.Mark.Seq != 3 || d.Reason != g.After.Reason {
			t.Errorf("row %+v", d.Row)
		}
	}},
	{"one poisoned fragment of a thousand/O23", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		want := map[string]*strings.Builder{}
		for seq := uint64(1); seq <= 1000; {
			var groups []lobwriter.Group
			for range min(100, f.Store.Limits().Documents) {
				key := fmt.Sprint("k", seq%100)
				text := fmt.Sprintf("<f n='%d'/>", seq)
				if want[key] == nil {
					want[key] = &strings.Builder{}
				}
				if seq == 537 {
					text = "<a>x\x00y</a>"
				} else {
					want[key].WriteString(text)
				}
				groups = append(groups, o.Append(key, Text(seq, text)))
				seq++
			}
			for i, a := range o.Flush(t, groups...).Answers {
				poisoned := groups[i].Last == 537
				if poisoned != (a.Status == lobwriter.Rejected) || !poisoned && a.Status != lobwriter.Appended {
					t.Fatalf("sequence %d: %v", groups[i].Last, a.Status)
				}
			}
		}
		for key, text := range want {
			f.document(t, key, text.String())
		}
	}},
}
