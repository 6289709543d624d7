package rebuild

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

var limits = lobwriter.Limits{Documents: 16, Bytes: 1 << 20, ChunkBytes: 7}

// made is a document out of fragments.
func made(life int64, repairs []lobwriter.Repair, fragments ...batcher.Fragment) (text string, d *draft) {
	d = newDraft(life, limits, repairs)
	var all []byte
	for _, f := range fragments {
		d.add(f)
		all = append(all, bytes.Join(d.cut(false), nil)...)
	}
	return string(append(all, bytes.Join(d.cut(true), nil)...)), d
}

// TestDraft: the rules that an owner follows, and an operator's decisions.
func TestDraft(t *testing.T) {
	mark := func(seq uint64) lobwriter.Mark { return lobwriter.Mark{Life: 2, Seq: seq} }
	text, final, hole := lobtest.Text, lobtest.Final, lobtest.Hole
	finalHole := hole(9)
	finalHole.Final = true
	for _, tt := range []struct {
		name      string
		repairs   []lobwriter.Repair
		fragments []batcher.Fragment
		text      string
		row       lobwriter.Row // state, fragments, holes, late
		refused   map[uint64]string
	}{
		{"open", nil, []batcher.Fragment{text(3, "<a>"), text(5, "é")}, "<a>é", lobwriter.Row{State: lobwriter.Open, Fragments: 2}, nil},
		{"empty fragments count/O11", nil, []batcher.Fragment{text(3, ""), text(5, "<a/>"), final(6, "")}, "<a/>", lobwriter.Row{State: lobwriter.Complete, Fragments: 3}, nil},
		{"a hole makes it incomplete", nil, []batcher.Fragment{text(3, "<a>"), hole(4), final(5, "</a>")}, "<a></a>",
			lobwriter.Row{State: lobwriter.Incomplete, Fragments: 3, Holes: 1, Reason: "invalid-utf8: byte 4 (sequence 4)"}, map[uint64]string{4: "invalid-utf8"}},
		{"what comes after it is complete is late", nil, []batcher.Fragment{final(3, "<a/>"), text(4, "x"), text(5, ""), hole(6)}, "<a/>",
			lobwriter.Row{State: lobwriter.Complete, Fragments: 4, Late: 3}, map[uint64]string{4: consumer.CodeLate, 6: "invalid-utf8"}},
		{"incomplete goes on", nil, []batcher.Fragment{hole(3), final(4, "x"), text(5, "y")}, "xy",
			lobwriter.Row{State: lobwriter.Incomplete, Fragments: 3, Holes: 1, Reason: "invalid-utf8: byte 3 (sequence 3)"}, map[uint64]string{3: "invalid-utf8"}},
		{"replaced", []lobwriter.Repair{{Mark: mark(4), Text: []byte("é\r\n")}}, []batcher.Fragment{text(3, "<a>"), hole(4), final(5, "</a>")}, "<a>é\r\n</a>",
			lobwriter.Row{State: lobwriter.Complete, Fragments: 3}, nil},
		{"replaced by nothing", []lobwriter.Repair{{Mark: mark(9), Text: []byte{}}}, []batcher.Fragment{text(3, "<a/>"), finalHole}, "<a/>",
			lobwriter.Row{State: lobwriter.Complete, Fragments: 2}, nil},
		{"left out", []lobwriter.Repair{{Mark: mark(4), Omit: true}}, []batcher.Fragment{text(3, "<a>"), text(4, "<b/>"), final(5, "</a>")}, "<a></a>",
			lobwriter.Row{State: lobwriter.Incomplete, Fragments: 3, Holes: 1, Reason: "omitted: left out by an operator (sequence 4)"}, map[uint64]string{4: CodeOmitted}},
		{"a decision of another life", []lobwriter.Repair{{Mark: lobwriter.Mark{Life: 1, Seq: 3}, Omit: true}}, []batcher.Fragment{text(3, "<a>")}, "<a>",
			lobwriter.Row{State: lobwriter.Open, Fragments: 1}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, d := made(2, tt.repairs, tt.fragments...)
			if got != tt.text {
				t.Errorf("text %q, want %q", got, tt.text)
			}
			want := tt.row
			want.Generation, want.First, want.Mark = 1, tt.fragments[0].Seq, mark(tt.fragments[len(tt.fragments)-1].Seq)
			want = want.Grow(limits.Unit, lobwriter.Cut(func(yield func([]byte) bool) { yield([]byte(got)) }, len(got), limits.ChunkBytes))
			if diff := cmp.Diff(want, d.row); diff != "" {
				t.Errorf("row: %s", diff)
			}
			refused := map[uint64]string{}
			for _, r := range d.refused {
				refused[r.Fragment.Seq] = r.Reason.Code
				if r.Decided != (r.Reason.Code == CodeOmitted) {
					t.Errorf("message %d: decided %v", r.Fragment.Seq, r.Decided)
				}
			}
			if len(refused)+len(tt.refused) > 0 && !cmp.Equal(tt.refused, refused) {
				t.Errorf("refused %v, want %v", refused, tt.refused)
			}
		})
	}
}

// TestDraftChunks: whatever the sizes, chunks are full but for the last, end at the
// border of a character, and together are the text.
func TestDraftChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		l := limits
		l.ChunkBytes = 4 + rng.IntN(40_000)
		d := newDraft(1, l, nil)
		var want strings.Builder
		var chunks [][]byte
		for seq := range uint64(30) {
			text := strings.Repeat([]string{"x", "é", "漢", "😀"}[rng.IntN(4)], rng.IntN(60_000))
			want.WriteString(text)
			d.add(lobtest.Text(seq+1, text))
			chunks = append(chunks, d.cut(false)...)
		}
		chunks = append(chunks, d.cut(true)...)
		for i, c := range chunks {
			if len(c) == 0 || len(c) > l.ChunkBytes || i < len(chunks)-1 && len(c) < l.ChunkBytes-3 {
				t.Fatalf("chunk %d of %d has %d bytes of %d", i, len(chunks), len(c), l.ChunkBytes)
			}
		}
		text := bytes.Join(chunks, nil)
		if string(text) != want.String() || d.row.CRC != lobwriter.Checksum(0, text) || d.row.Chunks != int64(len(chunks)) || d.row.Bytes != int64(len(text)) {
			t.Fatalf("%d bytes, want %d; row %+v", len(text), want.Len(), d.row)
		}
	}
}
