// Package bench measures lobsink: the experiment of the report that it was made
// for, on every store, and the whole pipeline against what the machine can do.
package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"unicode/utf8"
)

// Workload is a set of documents, the same for the same fields. Its zero value
// is not valid, see Validate.
type Workload struct {
	// Fragments is how many there are, in as many documents as Documents says.
	// The first documents have one more where the number is no multiple.
	Fragments, Documents int
	// Size is the bytes of a fragment.
	Size int
	// Burst is how many fragments of a document are published one after the
	// other; 0 is 1.
	Burst int
	// Seed decides the text and the order.
	Seed uint64
	// Prefix begins the keys.
	Prefix string
	// Text is what fragments are cut from, valid UTF-8; nil: random letters,
	// which no database can compress to less than three quarters.
	Text []byte
}

// Validate reports what is wrong with the workload.
func (w *Workload) Validate() error {
	switch {
	case w.Documents < 1:
		return errors.New("there must be at least one document")
	case w.Fragments < w.Documents:
		return fmt.Errorf("%d fragments cannot be spread over %d documents: give at least one to each", w.Fragments, w.Documents)
	case w.Size < utf8.UTFMax:
		return fmt.Errorf("a fragment has %d bytes, must have at least %d", w.Size, utf8.UTFMax)
	case w.Text != nil && w.Size > len(w.Text)/2:
		return fmt.Errorf("a fragment has %d bytes, but there are only %d to cut it from", w.Size, len(w.Text))
	case w.Burst < 0:
		return errors.New("a burst must not be negative")
	}
	return nil
}

// Key returns the key of a document, which has no byte that a subject would
// escape.
func (w *Workload) Key(document int) string { return w.Prefix + strconv.Itoa(document) }

// document returns which document a key belongs to.
func (w *Workload) document(key string) (int, error) { return strconv.Atoi(key[len(w.Prefix):]) }

// Count returns how many fragments a document has.
func (w *Workload) Count(document int) int {
	n := w.Fragments / w.Documents
	if document < w.Fragments%w.Documents {
		n++
	}
	return n
}

// letters are those of base64, which text in databases often is.
const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// Append appends the text of a fragment to b. number counts from 0.
func (w *Workload) Append(b []byte, document, number int) []byte {
	if w.Text != nil {
		return append(b, w.piece(document, number)...)
	}
	rng := rand.NewPCG(w.Seed, uint64(document)<<32|uint64(number))
	for left := w.Size; left > 0; {
		bits := rng.Uint64()
		for range min(left, 10) { // of 6 bits each
			b = append(b, letters[bits&63])
			bits >>= 6
			left--
		}
	}
	return b
}

// piece returns a part of the text. The pieces of a document follow one another,
// and begin anew where the text ends.
func (w *Workload) piece(document, number int) []byte {
	pieces := len(w.Text) / w.Size
	begin := int(rand.NewPCG(w.Seed, uint64(document)).Uint64() % uint64(pieces))
	at := (begin + number) % pieces * w.Size
	return w.Text[w.border(at):w.border(at+w.Size)]
}

// border returns the first border of a character that is not before at.
func (w *Workload) border(at int) int {
	for at < len(w.Text) && !utf8.RuneStart(w.Text[at]) {
		at++
	}
	return at
}

// Each calls do for every fragment, in the order in which they are published:
// those of a document in their order, those of different ones mixed. last is set
// for the last one of a document.
func (w *Workload) Each(do func(document, number int, last bool) error) error {
	open := make([]int32, w.Documents)
	for d := range open {
		open[d] = int32(d)
	}
	next := make([]int32, w.Documents)
	rng := rand.New(rand.NewPCG(w.Seed, 1))
	for len(open) > 0 {
		i := rng.IntN(len(open))
		d := int(open[i])
		count := w.Count(d)
		for range max(w.Burst, 1) {
			n := int(next[d])
			next[d]++
			last := n+1 == count
			if err := do(d, n, last); err != nil {
				return err
			}
			if last {
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
				break
			}
		}
	}
	return nil
}
