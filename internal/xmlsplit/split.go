// Package xmlsplit cuts a file into fragments: pieces of raw bytes that joined
// are the file again, byte for byte, whatever the file is.
//
// XML is cut before every start element of one depth. Nothing is parsed and
// written again, so line ends, entities, CDATA and encodings stay as they are.
// What is not XML, or not well-formed, is not cut any more from there on.
package xmlsplit

import (
	"io"
	"iter"

	"github.com/lobsink/lobsink/lobwriter"
)

// Options say where Split cuts.
type Options struct {
	// Depth is the depth of the elements before whose start tags a file is cut:
	// 1 are the children of the root, 2 their children. The prolog and the start
	// tag of the root go with the first piece, what follows the last element of
	// the depth with the last one. 0: the file is one piece.
	Depth int
	// Limit is the most bytes of one piece, see CutAt; 0: no limit, and a file
	// without a place to cut is held in memory as a whole.
	Limit int
}

// readSize is how much is read at a time.
const readSize = 64 << 10

// Split returns the pieces of what src reads, none of them empty; of an empty
// file there are none. Pieces do not depend on how much src gives at a time.
// Each piece belongs to the caller.
//
// An error of src ends the pieces and comes with no piece. Memory is limited by
// Limit, not by the size of the file.
func Split(src io.Reader, o Options) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		s := &splitter{limit: o.Limit, scan: scanner{cut: o.Depth}, yield: yield}
		if o.Depth <= 0 {
			s.scan.state = raw
		}
		block := make([]byte, readSize)
		for {
			n, err := src.Read(block)
			if !s.add(block[:n]) {
				return
			}
			if err == io.EOF {
				s.emit(len(s.held))
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// splitter holds the piece that has not ended yet.
type splitter struct {
	scan  scanner
	limit int
	held  []byte
	yield func([]byte, error) bool
}

// add takes the next bytes of the file; false: nobody wants more.
func (s *splitter) add(block []byte) bool {
	for len(block) > 0 {
		n, cut := s.scan.next(block)
		if !cut {
			s.held = append(s.held, block...)
			break
		}
		// The scanner has seen "<" and the first byte of a name; the piece ends
		// before the "<", which an earlier block may have brought.
		s.held = append(s.held, block[:n]...)
		block = block[n:]
		if !s.emit(len(s.held) - startTagSeen) {
			return false
		}
	}
	// What is too long by more than the "<" of a start tag that may just have
	// begun is cut off now, exactly where it would be cut later.
	for s.limit > 0 && len(s.held) >= s.limit+startTagSeen {
		if !s.give(lobwriter.Border(s.held, s.limit)) {
			return false
		}
	}
	return true
}

// emit ends the held piece after n bytes.
func (s *splitter) emit(n int) bool {
	for s.limit > 0 && n > s.limit {
		// The limit counts from the start of the piece, whatever follows it.
		border := lobwriter.Border(s.held[:n], s.limit)
		if !s.give(border) {
			return false
		}
		n -= border
	}
	return n == 0 || s.give(n)
}

func (s *splitter) give(n int) bool {
	// A copy, so that a small piece does not keep a large block in memory.
	piece := append(make([]byte, 0, n), s.held[:n]...)
	s.held = s.held[n:]
	return s.yield(piece, nil)
}

// CutAt cuts a piece into pieces of at most limit bytes, as long as they can be.
// Where it is UTF-8 and limit is at least utf8.UTFMax it cuts at character
// borders. A limit below 1 is no limit. No piece is empty.
func CutAt(piece []byte, limit int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(piece) > 0 {
			n := len(piece)
			if limit > 0 {
				n = lobwriter.Border(piece, limit)
			}
			if !yield(piece[:n:n]) {
				return
			}
			piece = piece[n:]
		}
	}
}
