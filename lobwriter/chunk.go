package lobwriter

import "unicode/utf8"

// Unit is how a database counts the length of text.
type Unit int

// The units of length.
const (
	// Runes: Unicode code points (PostgreSQL, SQLite).
	Runes Unit = iota
	// UTF16: UTF-16 code units (Oracle CLOB).
	UTF16
)

// Count returns the length of text in the unit.
func (u Unit) Count(text []byte) int64 {
	n := int64(utf8.RuneCount(text))
	if u == UTF16 {
		// A code point outside the basic plane takes four bytes in UTF-8,
		// the first of them 0xF0 to 0xF4, and two units in UTF-16.
		for _, b := range text {
			if b >= 0xF0 {
				n++
			}
		}
	}
	return n
}

// Cut packs pieces of text into chunks of at most limit bytes, cut at character
// borders and without regard to the borders of the pieces. The pieces together
// must be valid UTF-8 and limit at least utf8.UTFMax. No chunk is empty; no text
// gives no chunk. The chunks share one new array of size bytes, which should be
// the sum of the pieces' lengths; a wrong size costs a copy and no text.
func Cut(pieces func(yield func([]byte) bool), size, limit int) [][]byte {
	text := make([]byte, 0, size)
	for p := range pieces {
		text = append(text, p...)
	}
	if len(text) == 0 {
		return nil
	}
	chunks := make([][]byte, 0, (len(text)+limit-1)/limit)
	for len(text) > limit {
		n := Border(text, limit)
		chunks = append(chunks, text[:n:n])
		text = text[n:]
	}
	return append(chunks, text)
}

// Border returns the longest prefix of text, at most limit bytes, that ends at
// a character border. It is limit itself where text has no border within the
// last utf8.UTFMax bytes, which valid UTF-8 always has.
func Border(text []byte, limit int) int {
	if len(text) <= limit {
		return len(text)
	}
	for n := limit; n > 0 && n > limit-utf8.UTFMax; n-- {
		if utf8.RuneStart(text[n]) {
			return n
		}
	}
	return limit
}
