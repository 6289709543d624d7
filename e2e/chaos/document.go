package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// document makes the fragments of one document. They follow from the seed.
type document struct {
	key   string
	left  int // fragments still to come
	final bool
	next  int
	rng   *rand.Rand
}

// hotDocuments get several times as many fragments as others.
const (
	hotDocuments = 10
	hotShare     = 8 // of so many fragments, one is of a hot document
)

// newDocuments shares fragments out among documents, at least one for each.
// Every other document is completed by its last fragment.
func newDocuments(seed uint64, documents, fragments int) []*document {
	rng := rand.New(rand.NewPCG(seed, 'd'))
	out := make([]*document, documents)
	for i := range out {
		key := fmt.Sprintf("doc-%d", i)
		if i%10 == 3 {
			key = fmt.Sprintf("ß 漢 %%%d/😀", i) // its subject is escaped
		}
		out[i] = &document{key: key, left: 1, final: i%2 == 0, rng: rand.New(rand.NewPCG(seed, uint64(i)<<8|'t'))}
	}
	for range fragments - documents {
		i := rng.IntN(documents)
		if rng.IntN(hotShare) == 0 {
			i = rng.IntN(min(hotDocuments, documents))
		}
		out[i].left++
	}
	return out
}

// alphabet has characters of one to four bytes, and what is special in XML, in
// SQL and in text files.
var alphabet = []rune("abcdefghijklmnopqrstuvwxyz0123456789<>&\"'\\$;\r\n\t äöüßéЩ€漢字\u00a0\u2028😀🎵𝄞")

// sizes are the lengths of fragments, in characters: mostly as small as what
// lobsink is for, some above a chunk.
var sizes = []struct{ perMille, characters int }{{970, 150}, {994, 2_000}, {999, 12_000}, {1000, 50_000}}

// fragment returns the next fragment; last: it is the document's last one.
func (d *document) fragment() (text string, number int, last bool) {
	size, draw := 0, d.rng.IntN(1000)
	for _, s := range sizes {
		if draw < s.perMille {
			size = d.rng.IntN(s.characters)
			break
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<f n=\"%06d\" of=%q>", d.next, d.key) // no two are alike
	for range size {
		b.WriteRune(alphabet[d.rng.IntN(len(alphabet))])
	}
	b.WriteString("</f>\n")
	number = d.next
	d.next++
	d.left--
	return b.String(), number, d.left == 0
}

// token is the key as the last token of a subject: every byte outside of A-Z a-z
// 0-9 - _ is percent-encoded.
func (d *document) token() string {
	var b strings.Builder
	for _, c := range []byte(d.key) {
		if c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
