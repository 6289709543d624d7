package lobtest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// answerCase is one combination of a stored document, what the owner believes,
// and a group; and the answer.
type answerCase struct {
	name string
	// stored are the fragments that the document was built from; none: absent.
	stored []batcher.Fragment
	// quarantine closes the stored document with its fragments.
	quarantine bool
	// believe changes the stored row into the believed one; nil: they agree.
	believe func(*lobwriter.Row)
	// group is what is flushed.
	group []batcher.Fragment
	// after changes the row after the group; nil: as Row.Append has it.
	after func(*lobwriter.Row)
	want  lobwriter.Status
}

func fragments(f ...batcher.Fragment) []batcher.Fragment { return f }

func quarantined(r *lobwriter.Row) {
	r.State, r.Reason = lobwriter.Quarantined, "22021: refused (sequence 8)"
}

func nothing(r *lobwriter.Row) { *r = lobwriter.Row{} }

// answerCases come in the order in which a store decides, each with the cases
// that the earlier answers must win.
func answerCases() []answerCase {
	open := fragments(Text(3, "<a>"), Text(7, "é"))
	complete := fragments(Text(3, "<a>"), Final(7, "é"))
	incomplete := fragments(Hole(3), Final(7, "é"))
	return []answerCase{
		{name: "last is the mark", stored: open, group: fragments(Text(3, "<a>"), Text(7, "é")), believe: nothing, want: lobwriter.AlreadyThere},
		{name: "last is below the mark", stored: open, group: fragments(Text(3, "<a>")), believe: nothing, want: lobwriter.AlreadyThere},
		{name: "already there although the believed row is the stored one", stored: open, group: fragments(Text(6, "x"), Text(7, "y")), want: lobwriter.AlreadyThere},
		{name: "already there in a complete document", stored: complete, group: fragments(Final(7, "é")), believe: nothing, want: lobwriter.AlreadyThere},
		{name: "already there in a quarantined document", stored: open, quarantine: true, group: fragments(Text(7, "é")), believe: nothing, want: lobwriter.AlreadyThere},
		{name: "already there although the text would be rejected", stored: open, group: fragments(Text(7, "\x00")), want: lobwriter.AlreadyThere},

		{name: "absent, but a row is believed", group: fragments(Text(8, "x")), want: lobwriter.Stale, believe: func(r *lobwriter.Row) {
			*r = lobwriter.Row{Generation: 1, State: lobwriter.Open, Mark: lobwriter.Mark{Life: 1, Seq: 7}, Bytes: 3}
		}},
		{name: "there, but none is believed", stored: open, believe: nothing, group: fragments(Text(8, "x")), want: lobwriter.Stale},
		{name: "other generation", stored: open, believe: func(r *lobwriter.Row) { r.Generation++ }, group: fragments(Text(8, "x")), want: lobwriter.Stale},
		{name: "other state", stored: open, believe: func(r *lobwriter.Row) { r.State = lobwriter.Incomplete }, group: fragments(Text(8, "x")), want: lobwriter.Stale},
		{name: "higher mark believed", stored: open, believe: func(r *lobwriter.Row) { r.Mark.Seq = 8 }, group: fragments(Text(9, "x")), want: lobwriter.Stale},
		{name: "lower mark believed", stored: open, believe: func(r *lobwriter.Row) { r.Mark.Seq = 6 }, group: fragments(Text(8, "x")), want: lobwriter.Stale},
		{name: "mark of another life believed", stored: open, believe: func(r *lobwriter.Row) { r.Mark.Life = 2 }, group: fragments(Text(8, "x")), want: lobwriter.Stale},
		{name: "other length", stored: open, believe: func(r *lobwriter.Row) { r.Bytes++ }, group: fragments(Text(8, "x")), want: lobwriter.Stale},
		{name: "other checksum", stored: open, believe: func(r *lobwriter.Row) { r.CRC ^= 1 }, group: fragments(Text(8, "x")), want: lobwriter.Stale},
		{name: "other checksum in the highest bit", stored: open, believe: func(r *lobwriter.Row) { r.CRC ^= 1 << 31 }, group: fragments(Text(8, "x")), want: lobwriter.Stale},
		{name: "first is the mark", stored: open, group: fragments(Text(7, "é"), Text(8, "x")), want: lobwriter.Stale},
		{name: "first is below the mark", stored: open, group: fragments(Text(5, "y"), Text(8, "x")), want: lobwriter.Stale},
		{name: "stale before closed", stored: complete, believe: nothing, group: fragments(Text(8, "x")), want: lobwriter.Stale},
		{name: "stale before rejected", stored: open, believe: nothing, group: fragments(Text(8, "\x00")), want: lobwriter.Stale},
		{name: "an empty group can be stale", stored: complete, believe: nothing, group: fragments(Text(8, "")), want: lobwriter.Stale},

		{name: "text to a complete document", stored: complete, group: fragments(Text(8, "x")), want: lobwriter.Closed},
		{name: "text to a quarantined document", stored: open, quarantine: true, group: fragments(Text(8, "x")), want: lobwriter.Closed},
		{name: "a state to a complete document", stored: complete, group: fragments(Text(8, "")), after: quarantined, want: lobwriter.Closed},
		{name: "a state to a quarantined document", stored: open, quarantine: true, group: fragments(Text(8, "")), want: lobwriter.Closed,
			after: func(r *lobwriter.Row) { r.State = lobwriter.Complete }},
		{name: "closed before rejected", stored: complete, group: fragments(Text(8, "\x00")), want: lobwriter.Closed},

		{name: "the first text", group: fragments(Text(8, "<b/>")), want: lobwriter.Appended},
		{name: "the first and the final text", group: fragments(Final(8, "<b/>")), want: lobwriter.Appended},
		{name: "the first fragment is empty/O11", group: fragments(Text(8, "")), want: lobwriter.Appended},
		{name: "the first fragment is a hole", group: fragments(Hole(8)), want: lobwriter.Appended},
		{name: "the first fragment was refused", group: fragments(Hole(8)), after: quarantined, want: lobwriter.Appended},
		{name: "more text", stored: open, group: fragments(Text(8, "x"), Text(12, "€")), want: lobwriter.Appended},
		{name: "more text after a hole in the group", stored: open, group: fragments(Hole(8), Text(9, "x")), want: lobwriter.Appended},
		{name: "an empty fragment", stored: open, group: fragments(Text(8, "")), want: lobwriter.Appended},
		{name: "the final fragment", stored: open, group: fragments(Final(8, "")), want: lobwriter.Appended},
		{name: "a refused fragment", stored: open, group: fragments(Hole(8)), after: quarantined, want: lobwriter.Appended},
		{name: "what is not compared may differ", stored: open, group: fragments(Text(8, "x")), want: lobwriter.Appended,
			believe: func(r *lobwriter.Row) { r.Reason, r.Fragments, r.Holes = "other", 9, 1 }},
		{name: "incomplete takes text", stored: incomplete, group: fragments(Text(8, "x")), want: lobwriter.Appended},
		{name: "incomplete takes a state", stored: incomplete, group: fragments(Hole(8)), after: quarantined, want: lobwriter.Appended},
		{name: "an empty group to a complete document is late", stored: complete, group: fragments(Text(8, ""), Hole(9)), want: lobwriter.Appended},
		{name: "an empty group to a quarantined document is a hole", stored: open, quarantine: true, group: fragments(Hole(8), Text(9, "")), want: lobwriter.Appended},

		{name: "U+0000 to a new document/O61", group: fragments(Text(8, "<a>x\x00y</a>")), want: lobwriter.Rejected},
		{name: "U+0000 to an old document/O61", stored: open, group: fragments(Text(8, "\x00")), want: lobwriter.Rejected},
	}
}

var answerRules = []rule{
	{"one group in a flush", func(t *testing.T, f Fixture) {
		answersAre(t, f, answerCases(), 1)
	}},
	{"many groups in a flush answer for themselves", func(t *testing.T, f Fixture) {
		answersAre(t, f, answerCases(), f.Store.Limits().Documents)
	}},
}

// answersAre flushes the groups of the cases, up to n in a flush, and checks the
// answer, the stored row and the stored text of each.
func answersAre(t *testing.T, f Fixture, cases []answerCase, n int) {
	o := NewOwner(t, f.Store, 1)
	stored := make([]lobwriter.Row, len(cases))
	for i, c := range cases {
		stored[i] = c.store(t, o)
	}
	for first := 0; first < len(cases); first += n {
		part := cases[first:min(first+n, len(cases))]
		groups := make([]lobwriter.Group, len(part))
		for i, c := range part {
			groups[i] = c.flush(f.Store.Limits(), stored[first+i])
		}
		r := o.Flush(t, groups...)
		for i, c := range part {
			t.Run(c.name, func(t *testing.T) { c.check(t, f, stored[first+i], groups[i], r.Answers[i]) })
		}
	}
}

// store brings the document of a case into the database.
func (c answerCase) store(t *testing.T, o *Owner) lobwriter.Row {
	t.Helper()
	if len(c.stored) == 0 {
		return lobwriter.Row{}
	}
	g := o.Append(c.name, c.stored...)
	if c.quarantine {
		quarantined(&g.After)
	}
	statuses(t, o.Flush(t, g), lobwriter.Appended)
	return o.Rows[c.name]
}

func (c answerCase) flush(l lobwriter.Limits, stored lobwriter.Row) lobwriter.Group {
	believed := stored
	if c.believe != nil {
		c.believe(&believed)
	}
	g := NewGroup(l, 1, c.name, believed, c.group...)
	if c.after != nil {
		c.after(&g.After)
	}
	return g
}

func (c answerCase) check(t *testing.T, f Fixture, stored lobwriter.Row, g lobwriter.Group, a lobwriter.Answer) {
	if a.Status != c.want {
		t.Fatalf("answer %v, want %v", a.Status, c.want)
	}
	want, text := stored, textOf(c.stored)
	if c.want == lobwriter.Appended {
		want, text = g.After, text+textOf(c.group)
	} else if d := cmp.Diff(stored, a.Row); d != "" {
		t.Errorf("the answer does not bring the stored row: %s", d)
	}
	if rejected := c.want == lobwriter.Rejected; rejected != (a.Text != "") {
		t.Errorf("the answer says %q", a.Text)
	}
	if d := cmp.Diff(want, row(t, f.Store, 1, c.name)); d != "" {
		t.Errorf("stored row: %s", d)
	}
	if !want.Absent() {
		f.document(t, c.name, text)
	}
}

func textOf(members []batcher.Fragment) string {
	s := ""
	for i := range members {
		s += string(members[i].Text())
	}
	return s
}
