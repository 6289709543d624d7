package lobwriter_test

import (
	"hash/crc32"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

func text(seq uint64, s string) batcher.Fragment { return batcher.Fragment{Seq: seq, Data: []byte(s)} }

func final(seq uint64, s string) batcher.Fragment {
	return batcher.Fragment{Seq: seq, Data: []byte(s), Final: true}
}

func hole(seq uint64) batcher.Fragment {
	return batcher.Fragment{Seq: seq, Data: []byte("\xff"), Hole: &batcher.Reason{Code: "invalid-utf8", Text: "byte 0"}}
}

// crc is the checksum that every standard implementation of CRC-32C gives.
func crc(s string) uint32 { return crc32.Checksum([]byte(s), crc32.MakeTable(crc32.Castagnoli)) }

func TestRowAppend(t *testing.T) {
	const reason = "invalid-utf8: byte 0 (sequence 8)"
	open := lobwriter.Row{
		Generation: 3, State: lobwriter.Open, Mark: lobwriter.Mark{Life: 1, Seq: 7}, First: 2,
		Fragments: 4, Bytes: 4, Units: 4, Chunks: 2, CRC: crc("<a/>"),
	}
	with := func(r lobwriter.Row, change func(*lobwriter.Row)) lobwriter.Row {
		change(&r)
		return r
	}
	in := func(s lobwriter.State) lobwriter.Row { return with(open, func(r *lobwriter.Row) { r.State = s }) }
	// moved is a row to which n members without text were added, up to seq.
	moved := func(r lobwriter.Row, seq uint64, n int64, change func(*lobwriter.Row)) lobwriter.Row {
		r.Mark, r.Fragments = lobwriter.Mark{Life: 2, Seq: seq}, r.Fragments+n
		change(&r)
		return r
	}
	for _, tt := range []struct {
		name    string
		row     lobwriter.Row
		members []batcher.Fragment
		want    lobwriter.Row
	}{
		{"no members leave it as it is", open, nil, open},
		{"an absent row becomes generation 1", lobwriter.Row{}, []batcher.Fragment{text(5, "<a/>"), text(9, "é")}, lobwriter.Row{
			Generation: 1, State: lobwriter.Open, Mark: lobwriter.Mark{Life: 2, Seq: 9}, First: 5,
			Fragments: 2, Bytes: 6, Units: 5, Chunks: 1, CRC: crc("<a/>é"),
		}},
		{"an empty fragment makes a document/O11", lobwriter.Row{}, []batcher.Fragment{text(5, "")}, lobwriter.Row{
			Generation: 1, State: lobwriter.Open, Mark: lobwriter.Mark{Life: 2, Seq: 5}, First: 5, Fragments: 1,
		}},
		{"text carries the checksum on", open, []batcher.Fragment{text(8, "<b/>")}, moved(open, 8, 1, func(r *lobwriter.Row) {
			r.Bytes, r.Units, r.Chunks, r.CRC = 8, 8, 3, crc("<a/><b/>")
		})},
		{"final completes", open, []batcher.Fragment{final(8, "")}, moved(open, 8, 1, func(r *lobwriter.Row) {
			r.State = lobwriter.Complete
		})},
		{"a hole is counted and leaves it open", open, []batcher.Fragment{hole(8)}, moved(open, 8, 1, func(r *lobwriter.Row) {
			r.Holes, r.Reason = 1, reason
		})},
		{"the first reason stays", open, []batcher.Fragment{hole(8), hole(9)}, moved(open, 9, 2, func(r *lobwriter.Row) {
			r.Holes, r.Reason = 2, reason
		})},
		{"final after a hole is incomplete", open, []batcher.Fragment{hole(8), final(9, "")}, moved(open, 9, 2, func(r *lobwriter.Row) {
			r.State, r.Holes, r.Reason = lobwriter.Incomplete, 1, reason
		})},
		{"incomplete takes text and stays incomplete", in(lobwriter.Incomplete), []batcher.Fragment{final(8, "x")},
			moved(in(lobwriter.Incomplete), 8, 1, func(r *lobwriter.Row) {
				r.Bytes, r.Units, r.Chunks, r.CRC = 5, 5, 3, crc("<a/>x")
			})},
		{"what comes after completion is late", in(lobwriter.Complete), []batcher.Fragment{text(8, ""), hole(9), final(10, "")},
			moved(in(lobwriter.Complete), 10, 3, func(r *lobwriter.Row) { r.Late = 3 })},
		{"final and what follows it in one group", open, []batcher.Fragment{final(8, ""), text(9, "")},
			moved(open, 9, 2, func(r *lobwriter.Row) { r.State, r.Late = lobwriter.Complete, 1 })},
		{"what comes to a quarantined document is a hole",
			with(in(lobwriter.Quarantined), func(r *lobwriter.Row) { r.Holes, r.Reason = 1, "22021: refused (sequence 7)" }),
			[]batcher.Fragment{text(8, ""), hole(9), final(10, "")},
			moved(in(lobwriter.Quarantined), 10, 3, func(r *lobwriter.Row) { r.Holes, r.Reason = 4, "22021: refused (sequence 7)" })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.row.Append(2, lobwriter.Runes, tt.members, cut(tt.members, 32767))
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// cut is the text of members as a flush carries it.
func cut(members []batcher.Fragment, limit int) [][]byte {
	size := 0
	for i := range members {
		size += len(members[i].Text())
	}
	return lobwriter.Cut(func(yield func([]byte) bool) {
		for i := range members {
			if !yield(members[i].Text()) {
				return
			}
		}
	}, size, limit)
}

// A document of 4-byte characters, cut into chunks that no character fits
// evenly: the length in each unit and the checksum are those of the whole.
func TestRowAppendCountsOverChunkBorders(t *testing.T) {
	const whole = "a🎵b€é"
	all := strings.Repeat(whole, 50)
	for limit := 4; limit <= 16; limit++ {
		for unit, want := range map[lobwriter.Unit]int64{lobwriter.Runes: 5 * 50, lobwriter.UTF16: 6 * 50} {
			var r lobwriter.Row
			chunks := int64(0)
			for seq := range uint64(50) {
				members := []batcher.Fragment{text(seq+1, whole)}
				c := cut(members, limit)
				chunks += int64(len(c))
				r = r.Append(1, unit, members, c)
			}
			if r.Units != want || r.Bytes != int64(len(all)) || r.CRC != crc(all) || r.Chunks != chunks {
				t.Errorf("limit %d, unit %d: %+v", limit, unit, r)
			}
		}
	}
}

// TestUnitCount/O1: the amount that an append to a CLOB is told.
func TestUnitCount(t *testing.T) {
	t.Run("O1", func(t *testing.T) {
		for _, tt := range []struct {
			text         string
			runes, utf16 int64
		}{
			{"", 0, 0}, {"a", 1, 1}, {"é", 1, 1}, {"€", 1, 1}, {"😊", 1, 2}, {"a🎵b", 3, 4},
			{"\U0010FFFF", 1, 2}, {"\uFFFF", 1, 1}, {strings.Repeat("😊", 10_000), 10_000, 20_000},
		} {
			if r, u := lobwriter.Runes.Count([]byte(tt.text)), lobwriter.UTF16.Count([]byte(tt.text)); r != tt.runes || u != tt.utf16 {
				t.Errorf("%.20q: %d characters and %d UTF-16 units, want %d and %d", tt.text, r, u, tt.runes, tt.utf16)
			}
		}
	})
}
