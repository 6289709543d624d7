package batcher

import "time"

// document is what is held of one key. It exists while there is a fragment.
type document struct {
	key     string
	first   *held // the oldest fragment; those before waiting are in flight
	waiting *held // the oldest fragment that is not in flight; nil: none
	last    *held

	before, after *document // neighbours in the queue

	text   int    // bytes of text that waits
	memory int64  // memory of what waits
	count  uint32 // fragments that wait
	queue  queueID
	due    bool
}

// inFlight reports whether a group of the document is taken and not settled.
func (d *document) inFlight() bool { return d.first != d.waiting }

func (d *document) push(h *held) {
	if d.first == nil {
		d.first = h
	} else {
		d.last.next = h
	}
	d.last = h
	if d.waiting == nil {
		d.waiting = h
	}
}

// fit returns about how many waiting fragments have at most room bytes of text,
// and at least 1.
func (d *document) fit(room int) int {
	if d.text <= room {
		return int(d.count)
	}
	return 1 + int(float64(d.count)*float64(max(room, 0))/float64(d.text))
}

// held is a fragment that is held, in the fields that Fragment has too but for
// the key: its document has that, once for all its fragments.
type held struct {
	doc   *document
	next  *held         // of the same document
	place uint64        // in arrivals
	added time.Duration // since Batcher.start
	read  uint64        // messages read up to this one

	seq          uint64
	time         int64
	data         []byte
	hole         *Reason
	index, total uint64
	final        bool

	taken bool // in flight
}

func newHeld(d *document, f *Fragment, added time.Duration, read uint64) *held {
	return &held{
		doc: d, added: added, read: read,
		seq: f.Seq, time: f.Time, data: f.Data, hole: f.Hole, index: f.Index, total: f.Total, final: f.Final,
	}
}

func (h *held) fragment() Fragment {
	return Fragment{
		Key: h.doc.key,
		Seq: h.seq, Time: h.time, Data: h.data, Hole: h.hole, Index: h.index, Total: h.total, Final: h.final,
	}
}

// text returns the length of what the fragment adds to its document.
func (h *held) text() int {
	if h.hole != nil {
		return 0
	}
	return len(h.data)
}

// document returns the document of a key, a new one if need be.
func (b *Batcher) document(key string) *document {
	d := b.documents[key]
	if d == nil {
		d = &document{key: key}
		b.documents[key] = d
		b.peak = max(b.peak, len(b.documents))
		b.bytes += d.overhead()
	}
	return d
}

// forget removes a document that holds nothing any more.
//
// A Go map keeps the room that it once needed. When three quarters of it are
// empty the rest moves into a new map, which costs less than the removals that
// came before.
func (b *Batcher) forget(d *document) {
	b.queues.move(d, none)
	delete(b.documents, d.key)
	b.bytes -= d.overhead()
	if b.peak < smallMap || len(b.documents) > b.peak/4 {
		return
	}
	documents := make(map[string]*document, len(b.documents))
	for key, d := range b.documents {
		documents[key] = d
	}
	b.documents, b.peak = documents, len(documents)
}

// smallMap is how many documents a map may keep room for without need.
const smallMap = 4096
