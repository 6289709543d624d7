package lobwriter

import (
	"fmt"
	"hash/crc32"

	"github.com/lobsink/lobsink/batcher"
)

// castagnoli is the polynomial of the CRC that documents carry.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum carries a CRC-32C on over more text. It begins with 0.
func Checksum(crc uint32, text []byte) uint32 { return crc32.Update(crc, castagnoli, text) }

// Append returns the row after members have been appended, whose text is in
// chunks. Members are consecutive fragments of the document in the given life of
// the stream; units is how the store counts.
//
// An absent row becomes the first generation of an open document. A hole makes a
// final document incomplete, as anything missing does. On a closed document every
// member counts as what it is there: late where it is complete, a hole where it
// is quarantined. A state once reached is not left for a weaker one.
//
// Append only computes: whether a closed document takes the group is the store's
// answer. Without members the row stays as it is.
func (r Row) Append(life int64, units Unit, members []batcher.Fragment, chunks [][]byte) Row {
	if len(members) == 0 {
		return r
	}
	if r.Absent() {
		r = Row{Generation: 1, State: Open}
	}
	if r.First == 0 { // also of a document that began again
		r.First = members[0].Seq
	}
	for i := range members {
		m := &members[i]
		r.Mark = Mark{Life: life, Seq: m.Seq}
		r.Fragments++
		switch {
		case r.State == Complete:
			r.Late++
			continue
		case m.Hole != nil || r.State == Quarantined:
			r.Holes++
			if r.Reason == "" && m.Hole != nil {
				r.Reason = fmt.Sprintf("%s: %s (sequence %d)", m.Hole.Code, m.Hole.Text, m.Seq)
			}
		}
		if m.Final && r.State == Open {
			r.State = Complete
			if r.Holes > 0 {
				r.State = Incomplete
			}
		}
	}
	return r.Grow(units, chunks)
}

// Grow returns the row after chunks have been appended to the text, without any
// member.
func (r Row) Grow(units Unit, chunks [][]byte) Row {
	for _, c := range chunks {
		r.Bytes += int64(len(c))
		r.Units += units.Count(c)
		r.Chunks++
		r.CRC = Checksum(r.CRC, c)
	}
	return r
}
