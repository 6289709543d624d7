package lobtest

import (
	"fmt"
	"maps"
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
)

func TestMemory(t *testing.T) {
	for _, l := range []struct {
		name   string
		limits lobwriter.Limits
	}{
		{"large limits", lobwriter.Limits{Documents: 1024, Bytes: 4 << 20, ChunkBytes: 32767}},
		{"small limits, UTF-16", lobwriter.Limits{Documents: 4, Bytes: 1 << 10, ChunkBytes: 16, Unit: lobwriter.UTF16}},
	} {
		t.Run(l.name, func(t *testing.T) {
			Test(t, func(*testing.T) Fixture {
				m := NewMemory(l.limits)
				return Fixture{
					Store: m, Reader: m,
					Second:   func(testing.TB) lobwriter.Store { return m },
					Operator: func(testing.TB) lobwriter.Operator { return m }, Checkpoints: true,
					Sabotage: func(_ testing.TB, key string) {
						m.tables.documents[key].text[0] ^= 1
					},
				}
			})
		})
	}
}

// A database goes back under a running owner, more than once, and every time
// other text follows.
func TestMemoryRestore(t *testing.T) {
	m := NewMemory(lobwriter.Limits{Documents: 8, Bytes: 1 << 20, ChunkBytes: 16})
	o := NewOwner(t, m, 1)
	o.Flush(t, o.Append("k", Text(1, "<a>")))
	number, rows := o.Number, maps.Clone(o.Rows)
	backup := m.Snapshot()
	for _, text := range []string{"one", "two", "a third, longer one", ""} {
		o.Number, o.Rows = number, maps.Clone(rows)
		o.Flush(t, o.Append("k", Text(2, text)), o.Append("l", Text(3, text)))
		o.Flush(t, o.Append("k", Final(4, "</a>")))
		CheckDocument(t, m, lobwriter.Runes, "k", "<a>"+text+"</a>")
		CheckDocument(t, m, lobwriter.Runes, "l", text)
		m.Restore(backup)
		CheckDocument(t, m, lobwriter.Runes, "k", "<a>")
		if !row(t, m, 1, "l").Absent() || fence(t, m, 1).Flush != number {
			t.Fatal("the database did not go back")
		}
	}
}

// What no owner may send is refused as a whole, so that a simulation finds it.
func TestMemoryRefuses(t *testing.T) {
	limits := lobwriter.Limits{Documents: 2, Bytes: 32, ChunkBytes: 16}
	for _, tt := range []struct {
		name   string
		change func(f *lobwriter.Flush)
	}{
		{"two groups of a key", func(f *lobwriter.Flush) { f.Groups[1] = f.Groups[0] }},
		{"too many groups", func(f *lobwriter.Flush) { f.Groups = append(f.Groups, f.Groups[0]) }},
		{"too much text", func(f *lobwriter.Flush) {
			f.Groups[0] = NewGroup(limits, 1, "k", lobwriter.Row{}, Text(1, letters(32)))
		}},
		{"an empty chunk", func(f *lobwriter.Flush) { f.Groups[0].Chunks[0] = nil }},
		{"a long chunk", func(f *lobwriter.Flush) { f.Groups[0].Chunks[0] = []byte(letters(17)) }},
		{"no sequence", func(f *lobwriter.Flush) { f.Groups[0].First = 0 }},
		{"first above last", func(f *lobwriter.Flush) { f.Groups[0].First = 2 }},
		{"a mark that is not last", func(f *lobwriter.Flush) { f.Groups[0].After.Mark.Seq = 2 }},
		{"a mark of another life", func(f *lobwriter.Flush) { f.Groups[0].After.Mark.Life = 2 }},
		{"a length that does not follow", func(f *lobwriter.Flush) { f.Groups[0].After.Bytes++ }},
		{"no row after", func(f *lobwriter.Flush) { f.Groups[0].After.Generation = 0 }},
		{"no state after", func(f *lobwriter.Flush) { f.Groups[0].After.State = 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMemory(limits)
			o := NewOwner(t, m, 1)
			f := o.NewFlush(o.Append("k", Text(1, "<k/>")), o.Append("l", Text(1, "<l/>")))
			tt.change(f)
			_, err := m.Flush(t.Context(), f)
			kind(t, err, lobwriter.Invalid)
			if fence(t, m, 1) != o.Claim.Fence || !row(t, m, 1, "k").Absent() || !row(t, m, 1, "l").Absent() {
				t.Error("something was written")
			}
		})
	}
}

// BenchmarkMemory is what a seeded simulation pays for a flush of ten groups.
func BenchmarkMemory(b *testing.B) {
	m := NewMemory(lobwriter.Limits{Documents: 1024, Bytes: 4 << 20, ChunkBytes: 32767})
	o := NewOwner(b, m, 1)
	seq := uint64(0)
	for b.Loop() {
		groups := make([]lobwriter.Group, 10)
		for i := range groups {
			seq++
			groups[i] = o.Append(fmt.Sprint("k", i), Text(seq, "<a/>"))
		}
		o.Flush(b, groups...)
	}
}
