package batcher

import "math/bits"

// queueID names a queue. A document is in one queue or in none.
type queueID uint8

// The queues. From 1 to 64 they are the classes of documents that are not due:
// class n needs from 1<<(n-1) to 1<<n - 1 bytes of memory for what waits.
const (
	none     queueID = 0  // nothing waits, or due and in flight
	classes  queueID = 64 // the highest class
	returned queueID = 65 // due again, after Settle
	due      queueID = 66
)

// class returns the queue of a document that is not due. memory is above 0.
func class(memory int64) queueID { return queueID(bits.Len64(uint64(memory))) }

// queues are first-in-first-out lists that run through the documents.
type queues [due + 1]struct{ first, last *document }

// next returns the document to be taken next; nil: none is due.
func (q *queues) next() *document {
	if d := q[returned].first; d != nil {
		return d
	}
	return q[due].first
}

// longest returns a document of the highest class; nil: all are due.
func (q *queues) longest() *document {
	for c := classes; c > none; c-- {
		if d := q[c].first; d != nil {
			return d
		}
	}
	return nil
}

// move moves a document to the end of a queue, or out of all. In the queue
// where it is already, it keeps its place.
func (q *queues) move(d *document, to queueID) {
	if d.queue == to {
		return
	}
	q.remove(d)
	d.queue = to
	if to == none {
		return
	}
	list := &q[to]
	d.before = list.last
	if list.last == nil {
		list.first = d
	} else {
		list.last.after = d
	}
	list.last = d
}

func (q *queues) remove(d *document) {
	if d.queue == none {
		return
	}
	list := &q[d.queue]
	if d.before == nil {
		list.first = d.after
	} else {
		d.before.after = d.after
	}
	if d.after == nil {
		list.last = d.before
	} else {
		d.after.before = d.before
	}
	d.before, d.after = nil, nil
}
