package standin

import (
	"encoding/binary"
	"io"
)

// The wire: a frame is its length, four bytes, and that many bytes. A request
// begins with one of these operations; a reply with 0, or 1 and an error. Numbers
// are little-endian. See client/client.h.
const (
	opLogin    = 'L'
	opPing     = 'P'
	opExecute  = 'X'
	opCommit   = 'C'
	opRollback = 'R'
	opBreak    = 'B'
	opLOB      = 'T'
)

var opNames = map[byte]string{
	opLogin: Login, opPing: "ping", opExecute: Execute, opCommit: "commit", opRollback: "rollback", opLOB: LOB,
}

// maxFrame is above what a flush of one large fragment needs.
const maxFrame = 256 << 20

func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 || n > maxFrame {
		return nil, io.ErrUnexpectedEOF
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

func writeFrame(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.LittleEndian.AppendUint32(make([]byte, 0, len(b)+4), uint32(len(b))), b...))
	return err
}

// frame is what is left to read of a request. One that is too short reads as
// zeroes.
type frame struct{ rest []byte }

func (f *frame) take(n int) []byte {
	if n < 0 || n > len(f.rest) {
		f.rest = nil
		return make([]byte, min(max(n, 0), 8))
	}
	p := f.rest[:n]
	f.rest = f.rest[n:]
	return p
}

func (f *frame) number() int  { return int(binary.LittleEndian.Uint32(f.take(4))) }
func (f *frame) text() string { return string(f.take(f.number())) }

// value reads a value that may be NULL.
func (f *frame) value() *string {
	null := f.take(1)[0] == 1
	v := f.text()
	if null {
		return nil
	}
	return &v
}

// reply is a reply that grows.
type reply []byte

func (r *reply) byte(v byte)   { *r = append(*r, v) }
func (r *reply) short(v int)   { *r = binary.LittleEndian.AppendUint16(*r, uint16(v)) }
func (r *reply) number(v int)  { *r = binary.LittleEndian.AppendUint32(*r, uint32(v)) }
func (r *reply) long(v uint64) { *r = binary.LittleEndian.AppendUint64(*r, v) }

func (r *reply) text(s string) {
	r.number(len(s))
	*r = append(*r, s...)
}

func (r *reply) value(v *string) {
	if v == nil {
		r.byte(1)
		r.number(0)
		return
	}
	r.byte(0)
	r.text(*v)
}
