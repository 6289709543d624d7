package lobwriter

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/batcher"
)

// members are fragments of one document, and their text.
func members(n, size int) (m []batcher.Fragment, pieces [][]byte) {
	text := []byte(strings.Repeat("x", size))
	for i := range n {
		m = append(m, batcher.Fragment{Key: "k", Seq: uint64(i + 1), Data: text})
		pieces = append(pieces, text)
	}
	return m, pieces
}

// BenchmarkAssemble is what a group costs on its way into a flush: its chunks,
// and the row behind it with length and checksum.
func BenchmarkAssemble(b *testing.B) {
	for _, size := range []int{64, 200, 8 << 10} {
		n := 32767 / size
		m, pieces := members(n, size)
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			b.SetBytes(int64(n * size))
			b.ReportAllocs()
			for b.Loop() {
				chunks := Cut(slices.Values(pieces), n*size, 32767)
				if r := (Row{}).Append(1, Runes, m, chunks); r.Bytes != int64(n*size) {
					b.Fatal(r.Bytes)
				}
			}
		})
	}
}

// TestAllocationsAssemble: a group costs an array for its text and one for its
// chunks, however many fragments it has.
func TestAllocationsAssemble(t *testing.T) {
	m, pieces := members(160, 200)
	got := testing.AllocsPerRun(100, func() {
		chunks := Cut(slices.Values(pieces), 32000, 32767)
		if r := (Row{}).Append(1, Runes, m, chunks); r.Bytes != 32000 {
			t.Fatal(r.Bytes)
		}
	})
	const most = 5 // three for the iterator
	if got > most {
		t.Errorf("%v allocations, at most %v", got, most)
	}
}
