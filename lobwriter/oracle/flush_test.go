//go:build cgo

package oracle_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// flushes fails the test unless a flush was one round trip, and appended all its
// groups with the LOB writes that it may take.
func (d *db) flushes(t *testing.T, own *lobtest.Owner, groups ...lobwriter.Group) {
	t.Helper()
	before := d.schema.LOBWrites()
	d.Trips()
	for i, a := range own.Flush(t, groups...).Answers {
		if a.Status != lobwriter.Appended {
			t.Fatalf("%q: %v", groups[i].Key, a.Status)
		}
	}
	if trips := d.Trips(); trips[""] != 1 || trips["flush"] != 1 {
		t.Errorf("round trips: %v, want one", trips)
	}
	want := int64(0)
	for i := range groups {
		want += ceil(groups[i].After.Bytes-groups[i].Believed.Bytes, int64(d.store.Limits().ChunkBytes))
	}
	if got := d.schema.LOBWrites() - before; got != want {
		t.Errorf("%d LOB writes, want %d", got, want)
	}
}

func ceil(n, by int64) int64 { return (n + by - 1) / by }

// TestOneRoundTrip: a flush is one, whatever is in it, and takes one LOB write for
// each 32,767 bytes of a document.
func TestOneRoundTrip(t *testing.T) {
	d := start(t)
	own := lobtest.NewOwner(t, d.store, 1)
	d.flushes(t, own, own.Append("warm", lobtest.Text(1, "up"))) // the session is open now
	seq := uint64(1)
	next := func() uint64 { seq++; return seq }
	letters := func(n int) string { return strings.Repeat("<r>0123456</r>\n", n/15+1)[:n] }

	t.Run("documents of all sizes/O7,O8,O9", func(t *testing.T) {
		var groups []lobwriter.Group
		for i, n := range []int{0, 1, 8191, 8192, 32766, 32767, 32768, 65534, 65535, 100_000} {
			groups = append(groups, own.Append(fmt.Sprint("size ", i), lobtest.Text(next(), letters(n))))
		}
		d.flushes(t, own, groups...)
	})
	t.Run("4 MiB", func(t *testing.T) {
		var groups []lobwriter.Group
		for i := range 64 {
			groups = append(groups, own.Append(fmt.Sprint("part ", i), lobtest.Text(next(), letters(4<<20/64))))
		}
		d.flushes(t, own, groups...)
		lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, "part 63", letters(4<<20/64))
	})
	t.Run("one fragment of 8 MiB", func(t *testing.T) {
		d.flushes(t, own, own.Append("large", lobtest.Text(next(), letters(8<<20))))
		lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, "large", letters(8<<20))
	})
	t.Run("1,024 documents of many fragments", func(t *testing.T) {
		groups := make([]lobwriter.Group, 1024)
		for i := range groups {
			members := make([]batcher.Fragment, 20)
			for k := range members {
				members[k] = lobtest.Text(next(), letters(35))
			}
			groups[i] = own.Append(fmt.Sprint("doc ", i), members...)
		}
		d.flushes(t, own, groups...)
	})
	t.Run("no document", func(t *testing.T) { d.flushes(t, own) })
}

// TestTooManyDocuments: of 1,025 due documents a flush takes 1,024, and the next
// one the rest: the batcher keeps to the limits of the store.
func TestTooManyDocuments(t *testing.T) {
	d := start(t)
	own := lobtest.NewOwner(t, d.store, 1)
	limits := d.store.Limits()
	b := batcher.New(batcher.Limits{ChunkBytes: limits.ChunkBytes})
	now := time.Unix(1, 0)
	for i := range 1025 {
		f := lobtest.Final(uint64(i+1), "<a/>")
		f.Key = fmt.Sprint("k", i)
		b.Add(now, f)
	}
	sizes := []int{}
	for {
		taken := b.Take(now, batcher.Limit{Documents: limits.Documents, Bytes: limits.Bytes})
		if len(taken) == 0 {
			break
		}
		var groups []lobwriter.Group
		for _, g := range taken {
			groups = append(groups, own.Append(g.Key, g.Fragments...))
		}
		d.flushes(t, own, groups...)
		for _, g := range taken {
			b.Settle(g.Key, g.Fragments[len(g.Fragments)-1].Seq)
		}
		sizes = append(sizes, len(taken))
	}
	if fmt.Sprint(sizes) != "[1024 1]" {
		t.Errorf("flushes of %v documents", sizes)
	}
}

// TestChunkBorders/O1,O3,O4: characters of every width at every place of a border
// of a chunk come back as they were, and are counted in UTF-16 units.
func TestChunkBorders(t *testing.T) {
	t.Run("O1,O3,O4", func(t *testing.T) {
		d := start(t)
		own := lobtest.NewOwner(t, d.store, 1)
		n := d.store.Limits().ChunkBytes
		want := map[string]string{}
		for _, c := range []string{"é", "€", "\uFFFD", "😀", "\U0010FFFF"} {
			for before := range utf8.UTFMax + 1 {
				key := fmt.Sprint(c, before)
				want[key] = strings.Repeat("x", n-before) + strings.Repeat(c, 9000) + "tail"
			}
		}
		seq := uint64(0)
		for key, text := range want {
			seq++
			own.Flush(t, own.Append(key, lobtest.Text(seq, text)))
		}
		for key, text := range want {
			lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, key, text)
		}
	})
}

// TestReplacementCharacter/O6: U+FFFD is a character like any other. The driver's
// own reader of LOBs drops it at the end of a piece, silently.
func TestReplacementCharacter(t *testing.T) {
	t.Run("O6", func(t *testing.T) {
		d := start(t)
		own := lobtest.NewOwner(t, d.store, 1)
		want := map[string]string{
			"at the end": "abc\uFFFD", "alone": "\uFFFD", "in pieces": strings.Repeat("\uFFFD", 300_000) + "tail", "every piece": strings.Repeat("\uFFFD", 300_000),
		}
		seq := uint64(0)
		for key, text := range want {
			seq++
			own.Flush(t, own.Append(key, lobtest.Text(seq, text)))
		}
		for key, text := range want {
			lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, key, text)
		}
	})
}

// TestEmptyDocuments/O10,O12: a document without text, and one that gets its first
// text later. An empty final fragment completes it.
func TestEmptyDocuments(t *testing.T) {
	t.Run("O10,O12", func(t *testing.T) {
		d := start(t)
		own := lobtest.NewOwner(t, d.store, 1)
		d.flushes(t, own, own.Append("empty", lobtest.Final(1, "")), own.Append("later", lobtest.Text(2, "")))
		d.flushes(t, own, own.Append("later", lobtest.Text(3, "<a/>")))
		d.flushes(t, own, own.Append("later", lobtest.Final(4, "")))
		lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, "empty", "")
		if got := lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, "later", "<a/>"); got.State != lobwriter.Complete {
			t.Errorf("state %v", got.State)
		}
	})
}

// TestLongReasons: more text than one reply has room for.
func TestLongReasons(t *testing.T) {
	d := start(t)
	own := lobtest.NewOwner(t, d.store, 1)
	const documents = 30
	var groups []lobwriter.Group
	keys := make([]string, documents)
	for i := range keys {
		keys[i] = fmt.Sprint("k", 10+i)
		g := own.Append(keys[i], lobtest.Hole(uint64(i+1)))
		g.After.Reason = strings.Repeat("ä", 1000)
		groups = append(groups, g)
	}
	d.flushes(t, own, groups...)
	rows, err := d.store.Rows(t.Context(), 1, keys)
	if err != nil {
		t.Fatal(err)
	}
	found, err := d.reader.Documents(t.Context(), lobwriter.Query{Limit: documents})
	if err != nil || len(found) != documents {
		t.Fatalf("%d documents, %v", len(found), err)
	}
	answers := own.Flush(t, groups...).Answers // already there
	for i := range keys {
		want := groups[i].After
		if rows[i] != want || found[i].Row != want || answers[i].Row != want || answers[i].Status != lobwriter.AlreadyThere {
			t.Fatalf("%s: row %+v, document %+v, answer %+v", keys[i], rows[i], found[i].Row, answers[i])
		}
	}
}
