package xmlsplit

import "bytes"

// scanner finds the start tags of one depth in raw bytes. It knows just enough
// of XML to tell markup from what only looks like it: text, tags with quoted
// attributes, comments, CDATA sections, processing instructions and the document
// type with its declarations. It checks nothing else.
//
// encoding/xml would do for well-formed UTF-8, but it stops at many files that
// people do have, keeps whole tokens in memory and is much slower. Every encoding
// in which ASCII stands for itself works here; in UTF-16, "<" is followed by a
// zero byte or by what is no name, and the file stays in one piece.
type scanner struct {
	// cut is the depth of the start tags to find.
	cut   int
	state state
	depth int
	// quote is the quote that ends the attribute or literal; 0: none is open.
	quote byte
	// last are the last bytes of the token as far as its end depends on them.
	last [2]byte
	// nested counts the open "<" of a document type.
	nested int
	// keyword is how much of "[CDATA[" or "DOCTYPE" has been seen.
	keyword []byte
}

type state int

const (
	text state = iota
	lessThan
	startTag
	endTag
	instruction // <? ... ?>
	bang        // <! and not yet known what
	commentDash // <!- and nothing else yet
	comment
	cdata
	doctype // <!DOCTYPE, and the declarations in it
	// The same three within a document type.
	doctypeLessThan
	doctypeBang
	doctypeCommentDash
	raw // not XML: nothing is cut any more
)

// startTagSeen is how many bytes of a start tag have been seen when it is known
// to be one: "<" and the first byte of its name.
const startTagSeen = 2

const (
	cdataKeyword   = "[CDATA["
	doctypeKeyword = "DOCTYPE"
)

// next scans block. When it meets a start tag of the depth it stops after the
// first byte of the name and returns how much it has scanned; block[n:] comes
// next. Otherwise it scans all.
func (s *scanner) next(block []byte) (n int, cut bool) {
	for n < len(block) {
		switch s.state {
		case raw:
			return len(block), false
		case text:
			i := bytes.IndexByte(block[n:], '<')
			if i < 0 {
				return len(block), false
			}
			n += i + 1
			s.state = lessThan
		case lessThan:
			b := block[n]
			n++
			if s.markup(b) {
				return n, true
			}
		default:
			s.byte(block[n])
			n++
		}
	}
	return n, false
}

// markup takes the byte after "<" and reports a start tag of the depth.
func (s *scanner) markup(b byte) (cut bool) {
	s.last = [2]byte{}
	switch {
	case b == '/':
		s.state = endTag
	case b == '?':
		s.state = instruction
	case b == '!':
		s.state, s.keyword = bang, s.keyword[:0]
	case isNameStart(b):
		s.state, s.quote = startTag, 0
		s.depth++
		return s.depth-1 == s.cut
	default:
		s.state = raw
	}
	return false
}

// isNameStart reports whether a name can begin with b. Of other characters than
// ASCII ones every byte is taken: the encoding is not known.
func isNameStart(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || b == '_' || b == ':' || b >= 0x80
}

func (s *scanner) byte(b byte) {
	before := s.last
	s.last = [2]byte{before[1], b}
	switch s.state {
	case startTag:
		s.inStartTag(before[1], b)
	case endTag:
		s.inEndTag(b)
	case instruction:
		if b == '>' && before[1] == '?' {
			s.leave()
		}
	case comment:
		if b == '>' && before == [2]byte{'-', '-'} {
			s.leave()
		}
	case cdata:
		if b == '>' && before == [2]byte{']', ']'} {
			s.leave()
		}
	case bang:
		s.afterBang(b)
	case commentDash, doctypeCommentDash:
		s.begin(b == '-', comment)
	case doctype:
		s.inDoctype(b)
	case doctypeLessThan:
		switch b {
		case '!':
			s.state = doctypeBang
		case '?':
			s.begin(true, instruction)
		default:
			s.state = raw
		}
	case doctypeBang:
		if b == '-' {
			s.state = doctypeCommentDash
			return
		}
		s.nested++
		s.state = doctype
		s.inDoctype(b)
	}
}

// begin begins a token whose end must not overlap its beginning: "<!-->" is no
// whole comment.
func (s *scanner) begin(ok bool, next state) {
	s.state = raw
	if ok {
		s.state = next
	}
	s.last = [2]byte{}
}

// leave ends a comment, CDATA section or processing instruction.
func (s *scanner) leave() {
	s.state = text
	if s.nested > 0 {
		s.state = doctype
	}
}

func (s *scanner) inStartTag(before, b byte) {
	switch {
	case s.quote != 0:
		if b == s.quote {
			s.quote = 0
		}
	case b == '"' || b == '\'':
		s.quote = b
	case b == '<':
		s.state = raw
	case b == '>':
		s.state = text
		if before == '/' {
			s.depth--
		}
	}
}

func (s *scanner) inEndTag(b byte) {
	switch b {
	case '<':
		s.state = raw
	case '>':
		s.state = text
		if s.depth--; s.depth < 0 {
			s.state = raw
		}
	}
}

// afterBang finds out what "<!" begins.
func (s *scanner) afterBang(b byte) {
	if len(s.keyword) == 0 && b == '-' {
		s.state = commentDash
		return
	}
	s.keyword = append(s.keyword, b)
	switch seen := string(s.keyword); {
	case seen == cdataKeyword:
		s.begin(true, cdata)
	case seen == doctypeKeyword:
		s.state, s.nested, s.quote = doctype, 1, 0
	case len(seen) >= len(cdataKeyword) || seen != cdataKeyword[:len(seen)] && seen != doctypeKeyword[:len(seen)]:
		s.state = raw
	}
}

// inDoctype takes a byte of a document type or of a declaration in it. A quote
// hides what is in it in both.
func (s *scanner) inDoctype(b byte) {
	switch {
	case s.quote != 0:
		if b == s.quote {
			s.quote = 0
		}
	case b == '"' || b == '\'':
		s.quote = b
	case b == '<':
		s.state = doctypeLessThan
	case b == '>':
		if s.nested--; s.nested == 0 {
			s.state = text
		}
	}
}
