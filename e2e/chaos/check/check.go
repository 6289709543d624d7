// Package check decides whether documents are exact. It knows the stream and the
// database's view of whole documents, and nothing of lobsink: it imports none of
// its packages.
package check

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
)

// Fragment is a message of the stream.
type Fragment struct {
	Seq   uint64
	ID    string // its Nats-Msg-Id
	Data  string
	Final bool // it completes its document
}

// Stream is what a stream holds: by key, the fragments in their order.
type Stream map[string][]Fragment

// Document is what the database shows of a document.
type Document struct {
	Text  string
	State string // open, complete, incomplete or quarantined
	Bytes int64  // its length, as the database says
}

// Acked are the publications that the server has acknowledged: the digest of
// what was published, by Nats-Msg-Id.
type Acked map[string]Publication

// Publication is one acknowledged publication.
type Publication struct {
	Key    string
	Digest Digest
}

// Digest stands for the payload of a fragment.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a payload.
func DigestOf(payload string) Digest { return sha256.Sum256([]byte(payload)) }

// Verdict is the result of a comparison. The four counts are of fragments.
type Verdict struct {
	// Fragments is how many fragments the stream holds.
	Fragments int
	// Missing are in the stream and not in their document. A changed fragment is
	// one of them.
	Missing int
	// Duplicates stand in their document more often than in the stream.
	Duplicates int
	// Inversions are neighbors in a document that are the other way round in the
	// stream.
	Inversions int
	// AckedNotStored were acknowledged, and are not in the stream, or missing.
	AckedNotStored int
	// Exact: every document is the concatenation of its fragments, byte for byte,
	// there is no other document, and each state is right.
	Exact bool
	// Faults describes what was found, for people: the first ones of each kind.
	Faults []string

	said map[string]int // how many faults of a kind, by their format
}

// OK reports whether nothing at all is wrong.
func (v *Verdict) OK() bool {
	return v.Exact && v.Missing == 0 && v.Duplicates == 0 && v.Inversions == 0 && v.AckedNotStored == 0
}

// maxFaults bounds the descriptions of each kind: a lost stream would give one
// for each fragment.
const maxFaults = 10

func (v *Verdict) fault(format string, args ...any) {
	if v.said[format]++; v.said[format] <= maxFaults {
		v.Faults = append(v.Faults, fmt.Sprintf(format, args...))
	}
}

// Compare compares every document with the stream, and the stream with what was
// acknowledged.
func Compare(stream Stream, stored map[string]Document, acked Acked) *Verdict {
	v := &Verdict{Exact: true, said: map[string]int{}}
	missing := map[string]bool{} // by Nats-Msg-Id
	for _, key := range slices.Sorted(maps.Keys(stream)) {
		v.Fragments += len(stream[key])
		doc, found := stored[key]
		if !found {
			v.Exact = false
			v.fault("%s is not in the database; the stream has %d fragments of it", key, len(stream[key]))
		}
		v.document(key, stream[key], doc, found, missing)
	}
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		if _, ok := stream[key]; !ok {
			v.Exact = false
			v.fault("%s is in the database only, with %d bytes", key, len(stored[key].Text))
		}
	}
	v.acknowledged(stream, acked, missing)
	return v
}

// document compares one document. It notes the identifiers of the fragments that
// are missing.
func (v *Verdict) document(key string, all []Fragment, doc Document, found bool, missing map[string]bool) {
	want := untilFinal(all)
	if late := len(all) - len(want); late > 0 {
		v.fault("%s: %d fragments after the final one are not part of it", key, late)
	}
	state := "open"
	if want[len(want)-1].Final {
		state = "complete"
	}
	if found && (doc.State != state || doc.Bytes != int64(len(doc.Text))) {
		v.Exact = false
		v.fault("%s: state %s and %d bytes by the database's account; want %s and %d", key, doc.State, doc.Bytes, state, len(doc.Text))
	}
	if is(doc.Text, want) {
		return
	}
	v.Exact = false
	placed := place(doc.Text, want)
	for i, n := range placed.times {
		switch {
		case n == 0:
			v.Missing++
			missing[want[i].ID] = true
			v.fault("%s: fragment %d (sequence %d, %s) is missing", key, i+1, want[i].Seq, want[i].ID)
		case n > 1:
			v.Duplicates += n - 1
			v.fault("%s: fragment %d (sequence %d, %s) is there %d times", key, i+1, want[i].Seq, want[i].ID, n)
		}
	}
	for i := 1; i < len(placed.order); i++ {
		if before, after := placed.order[i-1], placed.order[i]; before > after {
			v.Inversions++
			v.fault("%s: fragment %d stands before fragment %d (sequences %d and %d)", key, before+1, after+1, want[before].Seq, want[after].Seq)
		}
	}
	if placed.foreign > 0 {
		v.fault("%s: %d bytes belong to no fragment, the first at offset %d", key, placed.foreign, placed.foreignAt)
	}
}

// untilFinal leaves out what comes after the final fragment: that is late, and
// not part of the document.
func untilFinal(all []Fragment) []Fragment {
	for i, f := range all {
		if f.Final {
			return all[:i+1]
		}
	}
	return all
}

// is reports whether text is the concatenation of the fragments.
func is(text string, fragments []Fragment) bool {
	for _, f := range fragments {
		if len(text) < len(f.Data) || text[:len(f.Data)] != f.Data {
			return false
		}
		text = text[len(f.Data):]
	}
	return text == ""
}

// acknowledged looks for every acknowledged publication in the stream, and in
// its document.
func (v *Verdict) acknowledged(stream Stream, acked Acked, missing map[string]bool) {
	inStream := map[string]Publication{}
	for key, fragments := range stream {
		for _, f := range fragments {
			inStream[f.ID] = Publication{key, DigestOf(f.Data)}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(acked)) {
		switch found, ok := inStream[id]; {
		case !ok:
			v.AckedNotStored++
			v.fault("%s: %s was acknowledged and is not in the stream", acked[id].Key, id)
		case found != acked[id]:
			v.AckedNotStored++
			v.fault("%s: %s was acknowledged, and the stream has something else in its place", acked[id].Key, id)
		case missing[id]:
			v.AckedNotStored++
		}
	}
}
