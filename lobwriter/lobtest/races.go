package lobtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/lobsink/lobsink/lobwriter"
)

var raceRules = []rule{
	{"two writers that take each other's claim lose and double nothing/O31", thieves},
	{"an identical flush after a lost reply is fenced by its number/O19", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("k", Text(1, "<a>")))
		lost := o.NewFlush(o.Append("k", Text(2, "b"), Final(3, "</a>")), o.Append("l", Text(4, "<l/>")))
		if _, err := f.Store.Flush(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
		want := o.Claim.Fence
		want.Flush, want.Checkpoint, want.Highest = lost.Number+1, At(4), At(4)
		for range 3 {
			_, err := f.Store.Flush(t.Context(), lost)
			fenced(t, err, want)
		}
		// Same claim, number one above: it was stored. The same groups again.
		o.Number = want.Flush
		r := o.Flush(t, lost.Groups...)
		statuses(t, r, lobwriter.AlreadyThere, lobwriter.AlreadyThere)
		for i, a := range r.Answers {
			if a.Row != lost.Groups[i].After {
				t.Errorf("already there brings %+v, want %+v", a.Row, lost.Groups[i].After)
			}
		}
		f.document(t, "k", "<a>b</a>")
		f.document(t, "l", "<l/>")
	}},
	{"every partition has an owner that flushes while leases are renewed", func(t *testing.T, f Fixture) {
		stores := f.others(t)
		owners := make([]*Owner, stream.Partitions)
		for p := range owners {
			owners[p] = NewOwner(t, stores[p%2], p)
		}
		var g errgroup.Group
		for p, o := range owners {
			g.Go(func() error {
				for seq := uint64(1); seq <= 30; seq++ {
					flush := o.NewFlush(o.Append(fmt.Sprint("a", p), Text(seq, fmt.Sprint(seq, ";"))), o.Append(fmt.Sprint("b", p), Text(seq, "x")))
					r, err := o.Store.Flush(t.Context(), flush)
					if err != nil {
						return fmt.Errorf("partition %d: %w", p, err)
					}
					o.Settle(flush, r)
				}
				return nil
			})
			g.Go(func() error {
				for range 20 {
					if _, err := o.Store.Renew(t.Context(), o.Claim, Lease); err != nil {
						return fmt.Errorf("renew partition %d: %w", p, err)
					}
					if _, err := o.Store.Fence(t.Context(), p); err != nil {
						return fmt.Errorf("fence of partition %d: %w", p, err)
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		var want strings.Builder
		for seq := range 30 {
			fmt.Fprint(&want, seq+1, ";")
		}
		for p := range owners {
			f.document(t, fmt.Sprint("a", p), want.String())
			f.document(t, fmt.Sprint("b", p), strings.Repeat("x", 30))
		}
	}},
	{"a call whose context has ended is an error and changes nothing", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.Store.Flush(ended, o.NewFlush(o.Append("k", Text(1, "<a/>")))); err == nil {
			t.Fatal("no error")
		}
		statuses(t, o.Flush(t, o.Append("k", Text(1, "<a/>"))), lobwriter.Appended)
		f.document(t, "k", "<a/>")
	}},
}

// thieves lets two members steal one partition from each other. Both write what
// the stream has next for the document.
func thieves(t *testing.T, f Fixture) {
	const last = 400
	piece := func(seq uint64) string { return fmt.Sprintf("<f n='%d'/>", seq) }
	Bind(t, f.Store)
	var g errgroup.Group
	for i, s := range f.others(t) {
		who := []lobwriter.Member{ada, bea}[i]
		g.Go(func() error {
			for turn := 0; ; turn++ {
				c, err := s.Claim(t.Context(), briefly(who, fmt.Sprintf("%08d%08d", i, turn)))
				if lobwriter.KindOf(err) == lobwriter.Held {
					continue
				}
				if err != nil {
					return fmt.Errorf("claim: %w", err)
				}
				rows, err := s.Rows(t.Context(), 1, []string{"k"})
				if err != nil {
					return fmt.Errorf("rows: %w", err)
				}
				o := &Owner{Store: s, Claim: c, Rows: map[string]lobwriter.Row{"k": rows[0]}}
				for range 5 {
					seq := o.Rows["k"].Mark.Seq + 1
					if seq > last {
						return nil
					}
					flush := o.NewFlush(o.Append("k", Text(seq, piece(seq))))
					r, err := s.Flush(t.Context(), flush)
					if e := (*lobwriter.FencedError)(nil); errors.As(err, &e) {
						break
					}
					if err != nil {
						return fmt.Errorf("flush: %w", err)
					}
					if a := r.Answers[0]; a.Status != lobwriter.Appended {
						return fmt.Errorf("sequence %d: %v, stored %+v", seq, a.Status, a.Row)
					}
					o.Settle(flush, r)
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for seq := uint64(1); seq <= last; seq++ {
		want.WriteString(piece(seq))
	}
	f.document(t, "k", want.String())
}
