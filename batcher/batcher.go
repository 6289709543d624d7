package batcher

import "time"

// Batcher holds the fragments of one partition until they are stored.
//
// A document is due when
//   - the text that waits reaches Limits.ChunkBytes,
//   - its oldest waiting fragment was added Limits.MaxAge ago, or more than
//     Limits.MaxDistance messages of the partition were read after it,
//   - a final fragment waits,
//   - Relieve chose it, or
//   - Hurry or Drain was called.
//
// It stays due until all that waits is taken. A fragment waits unless it is in
// flight, that is taken and not settled. What comes meanwhile for the same key
// waits for Settle, so that the groups of a key never overlap in flight and
// rise in sequence.
//
// Due documents are taken in the order in which they became due; those that
// become due by age, at the same moment, in the order of their oldest waiting
// fragment. A document that is due while it is in flight, or whose group was
// split, has had its turn: it goes to the end when it is settled, so that one
// busy document does not hold up the others. What Settle returns goes before
// everything else.
//
// No operation looks at all documents. Each costs a constant time for every
// fragment that it adds, takes or settles, amortised. The one exception is
// Oldest after Settle returned fragments and they were taken again: it steps
// over what is in flight.
//
// The result depends only on the calls. A Batcher is not safe for concurrent
// use.
type Batcher struct {
	limits    Limits
	documents map[string]*document
	peak      int // the most documents that the map had room for, see forget
	arrivals  arrivals
	queues    queues

	started bool
	start   time.Time     // the first now; times are kept relative to it
	now     time.Duration // the last now
	read    uint64        // messages read, added or not

	draining bool
	bytes    int64 // memory, see Bytes
	dueBytes int64 // memory of what waits in due documents
}

// New returns an empty batcher. Limits that do not validate make documents due
// early, never late.
func New(l Limits) *Batcher {
	if l.MaxDistance == 0 {
		l.MaxDistance = DefaultMaxDistance
	}
	return &Batcher{limits: l, documents: make(map[string]*document)}
}

// Add adds a fragment, whose Seq is above every Seq added before. It counts as
// one message read. The fragment's Data is kept, not copied. A now that lies
// before an earlier one counts as that.
func (b *Batcher) Add(now time.Time, f Fragment) {
	b.tick(now)
	b.read++
	d := b.document(f.Key)
	h := newHeld(d, &f, b.now, b.read)
	b.arrivals.push(h)
	d.push(h)
	b.bytes += h.memory()
	b.resize(d, 1, len(f.Text()), h.memory())
	b.ripen()
	if d.text >= b.limits.ChunkBytes || f.Final {
		b.makeDue(d)
	}
	b.place(d)
}

// Passed tells that n messages of the partition were read that are not added.
// They count for Limits.MaxDistance.
func (b *Batcher) Passed(n uint64) {
	b.read += n
	b.ripen()
}

// Take hands out the groups that are due, at most one per key and none of a key
// that is in flight, until the next one does not fit into l. A document is
// split between fragments where it must be, and behind a final fragment; its
// rest stays due. If anything is due, at least one whole fragment is handed
// out, however large.
//
// The groups are in flight until they are settled. Fragments of a group are the
// caller's; their Data is shared.
func (b *Batcher) Take(now time.Time, l Limit) []Group {
	b.tick(now)
	b.ripen()
	var groups []Group
	room := l.Bytes
	for len(groups) < max(l.Documents, 1) {
		d := b.queues.next()
		if d == nil {
			break
		}
		if d.waiting.text() > room && len(groups) > 0 {
			break
		}
		g := b.take(d, room)
		groups = append(groups, g)
		room -= g.Bytes
	}
	return groups
}

// take puts waiting fragments of a document in flight: the first one, and those
// that fit into room with it, up to and including a final one. What follows that
// is not of the same group, for a document that is complete takes no more text.
func (b *Batcher) take(d *document, room int) Group {
	g := Group{Key: d.key, Fragments: make([]Fragment, 0, d.fit(room))}
	var memory int64
	for h := d.waiting; h != nil && (len(g.Fragments) == 0 || g.Bytes+h.text() <= room); h = d.waiting {
		g.Fragments = append(g.Fragments, h.fragment())
		g.Bytes += h.text()
		memory += h.memory()
		h.taken = true
		d.waiting = h.next
		if h.final {
			break
		}
	}
	n := len(g.Fragments)
	if n < cap(g.Fragments)/2 {
		g.Fragments = append(make([]Fragment, 0, n), g.Fragments...)
	}
	b.bytes += int64(n) * takenBytes
	b.resize(d, -n, -g.Bytes, -memory)
	if d.waiting == nil {
		d.due = false
	}
	b.place(d)
	return g
}

// Settle ends the flight of a key. Its fragments up to through are freed, in
// flight or waiting. Fragments of the group above through are due again, before
// all others. A key that is not held is ignored.
func (b *Batcher) Settle(key string, through uint64) {
	d := b.documents[key]
	if d == nil {
		return
	}
	for d.first != nil && d.first.seq <= through {
		b.free(d)
	}
	switch {
	case d.first == nil:
		b.forget(d)
	case d.inFlight():
		b.giveBack(d)
	default:
		b.place(d)
	}
}

// free drops the first fragment of a document.
func (b *Batcher) free(d *document) {
	h := d.first
	d.first = h.next
	b.arrivals.remove(h)
	b.bytes -= h.memory()
	if h.taken {
		b.bytes -= takenBytes
		return
	}
	d.waiting = h.next
	b.resize(d, -1, -h.text(), -h.memory())
}

// giveBack makes the fragments of a document that are still in flight due.
func (b *Batcher) giveBack(d *document) {
	for h := d.first; h != d.waiting; h = h.next {
		h.taken = false
		b.bytes -= takenBytes
		b.resize(d, 1, h.text(), h.memory())
	}
	d.waiting = d.first
	b.arrivals.giveBack(d.first)
	b.makeDue(d)
	b.queues.move(d, returned)
}

// Hurry makes everything due that is held now.
func (b *Batcher) Hurry() {
	for h := b.arrivals.unripe(); h != nil; h = b.arrivals.unripe() {
		b.makeDue(h.doc)
		b.place(h.doc)
	}
}

// Drain makes everything due that is held or will be added.
func (b *Batcher) Drain() {
	b.draining = true
	b.Hurry()
}

// tick moves the clock.
func (b *Batcher) tick(now time.Time) {
	if !b.started {
		b.started, b.start = true, now
	}
	b.now = max(b.now, now.Sub(b.start))
}

// ripen makes the documents due that have waited long enough. Fragments ripen
// in the order in which they came, so the first that is not ripe ends it.
func (b *Batcher) ripen() {
	for h := b.arrivals.unripe(); h != nil && b.ripe(h); h = b.arrivals.unripe() {
		b.makeDue(h.doc)
		b.place(h.doc)
	}
}

func (b *Batcher) ripe(h *held) bool {
	return b.draining || b.now-h.added >= b.limits.MaxAge || b.read-h.read > b.limits.MaxDistance
}

// makeDue marks a document due. The caller places it.
func (b *Batcher) makeDue(d *document) {
	if !d.due {
		d.due = true
		b.dueBytes += d.memory
	}
}

// place puts a document into the queue that it belongs to now.
func (b *Batcher) place(d *document) {
	switch {
	case d.waiting == nil || d.due && d.inFlight():
		b.queues.move(d, none)
	case !d.due:
		b.queues.move(d, class(d.memory))
	case d.queue != returned:
		b.queues.move(d, due)
	}
}

// resize changes what waits in a document.
func (b *Batcher) resize(d *document, count, text int, memory int64) {
	d.count = uint32(int(d.count) + count)
	d.text += text
	d.memory += memory
	if d.due {
		b.dueBytes += memory
	}
}
