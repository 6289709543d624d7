package batcher

// doc is a document with fragments held.
type doc struct {
	key string
	// fragments are held in stream order; the first taken of them are in
	// flight.
	fragments []Fragment
	taken     int
	// waiting is the text, in bytes, of the fragments that are not taken.
	waiting int
	// memory is what the fragments take.
	memory int64
	// settled and takenThrough are the highest sequences settled and taken; 0:
	// none. They tell of an entry in the history what became of it.
	settled, takenThrough uint64
	// due stays true until everything is taken.
	due bool

	in         *list // the list that the document is on; nil: none
	prev, next *doc
}

// untaken reports whether the fragment with that sequence is held and not in
// flight.
func (d *doc) untaken(seq uint64) bool { return seq > d.settled && seq > d.takenThrough }

// list is a list of documents, linked through them. A document is on at most
// one list.
type list struct {
	first, last *doc
	memory      int64
}

func (l *list) push(d *doc) {
	d.in, d.prev, d.next = l, l.last, nil
	if l.last == nil {
		l.first = d
	} else {
		l.last.next = d
	}
	l.last = d
	l.memory += d.memory
}

// unlink takes the document off its list, if it is on one.
func (d *doc) unlink() {
	l := d.in
	if l == nil {
		return
	}
	if d.prev == nil {
		l.first = d.next
	} else {
		d.prev.next = d.next
	}
	if d.next == nil {
		l.last = d.prev
	} else {
		d.next.prev = d.prev
	}
	l.memory -= d.memory
	d.in, d.prev, d.next = nil, nil, nil
}

// grow changes the memory of a document wherever it is.
func (d *doc) grow(by int64) {
	d.memory += by
	if d.in != nil {
		d.in.memory += by
	}
}
