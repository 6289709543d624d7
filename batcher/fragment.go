// Package batcher decides which documents are due, and as what groups.
//
// It owns the words Fragment and Group. A Batcher is a pure value: no
// goroutine, clock, lock or I/O; its result depends only on the calls made.
package batcher

// Fragment is one stream message of a document.
type Fragment struct {
	// Key is the document ID: 1 to 255 bytes of UTF-8 without U+0000.
	Key string
	// Seq is the stream sequence of the message, from 1.
	Seq uint64
	// Time is when the stream stored the message, in Unix nanoseconds.
	Time int64
	// Data is the payload as it was published. It is never modified. For a
	// hole it is kept for the dead letter only and is no text of the document.
	Data []byte
	// Hole says why Data may not become text of the document; nil for a
	// fragment that keeps the rules.
	Hole *Reason
	// Final completes the document.
	Final bool
	// Index is the producer's number of this fragment, from 1; 0: not given.
	Index uint64
	// Total is the producer's count of fragments; 0: not given.
	Total uint64
}

// Text returns what the fragment adds to its document: nothing for a hole.
func (f *Fragment) Text() []byte {
	if f.Hole != nil {
		return nil
	}
	return f.Data
}

// Reason says why something was refused. It is stored with the document and
// written into the dead letter.
type Reason struct {
	// Code is a short stable word for programs, such as "invalid-utf8".
	Code string
	// Text says it for people.
	Text string
}

// Group is a run of consecutive fragments of one key that is flushed together.
type Group struct {
	Key       string
	Fragments []Fragment
	// Bytes is the length of the text: holes count nothing.
	Bytes int
}

// First returns the sequence of the first fragment.
func (g *Group) First() uint64 { return g.Fragments[0].Seq }

// Last returns the sequence of the last fragment.
func (g *Group) Last() uint64 { return g.Fragments[len(g.Fragments)-1].Seq }
