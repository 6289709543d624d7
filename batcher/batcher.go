package batcher

import (
	"math/bits"
	"time"
)

// Batcher holds fragments until their documents are due, and hands them out as
// groups. A document is due when
//
//   - its buffer reaches a chunk,
//   - its oldest fragment was added max_age ago,
//   - more than MaxDistance messages have been read since that fragment,
//   - it is final,
//   - memory is short and it is among the longest,
//   - or everything is drained;
//
// it then stays due until it is taken. Operations and allocations per fragment
// do not grow with the number of documents held.
//
// The zero Batcher is not ready to use; see New.
type Batcher struct {
	limits Limits
	docs   map[string]*doc
	memory int64
	// read counts the messages of the partition that were read.
	read uint64

	history history
	// aged is the number of the first entry of the history whose age has not
	// made its document due.
	aged uint64

	// A document that is not in flight is on one of these lists.
	again   list     // to be handed out again, before all others
	due     list     // in the order in which they became due
	classes [64]list // not due, by the power of two of their memory

	draining bool
}

// New returns a Batcher that holds nothing.
func New(l Limits) *Batcher {
	if l.MaxDistance == 0 {
		l.MaxDistance = DefaultDistance
	}
	return &Batcher{limits: l, docs: map[string]*doc{}}
}

// Add takes a fragment, read at now. Its sequence must be above every sequence
// added before.
func (b *Batcher) Add(now time.Time, f Fragment) {
	b.read++
	d := b.docs[f.Key]
	if d == nil {
		d = &doc{key: f.Key}
		b.docs[f.Key] = d
		b.memory += documentBytes + int64(len(f.Key))
	}
	f.Key = d.key // one copy of the key for all of its fragments
	d.fragments = append(d.fragments, f)
	d.waiting += len(f.Text())
	c := cost(&f)
	b.memory += c
	d.grow(c)
	b.history.push(entry{doc: d, seq: f.Seq, added: now.UnixNano(), read: b.read})
	if f.Final || d.waiting >= b.limits.ChunkBytes || b.limits.MaxAge <= 0 || b.draining {
		d.due = true
	}
	b.place(d)
}

// Passed counts messages of the partition that were read and not added.
func (b *Batcher) Passed(n uint64) { b.read += n }

// place puts a document on the list where it belongs.
func (b *Batcher) place(d *doc) {
	var l *list
	switch {
	case d.taken > 0: // in flight: on none
	case d.due && (d.in == &b.again || d.in == &b.due):
		l = d.in
	case d.due:
		l = &b.due
	default:
		l = &b.classes[bits.Len64(uint64(d.memory))]
	}
	if l == d.in {
		return
	}
	d.unlink()
	if l != nil {
		l.push(d)
	}
}

// Take hands out due groups, the oldest first, and notes that they are in
// flight until Settle. It gives at most one group per key, none of a key that is
// in flight, and at most the limit, but always at least one whole fragment if
// anything is due. What does not fit stays due.
//
// The fragments of a group are valid until they are settled.
func (b *Batcher) Take(now time.Time, l Limit) []Group {
	b.age(now)
	var groups []Group
	left := l.Bytes
	for len(groups) < l.Documents {
		d := b.again.first
		if d == nil {
			d = b.due.first
		}
		if d == nil {
			break
		}
		g := d.group(left, len(groups) == 0)
		if len(g.Fragments) == 0 {
			break
		}
		left -= g.Bytes
		d.taken = len(g.Fragments)
		d.takenThrough = g.Last()
		d.waiting -= g.Bytes
		d.due = d.taken < len(d.fragments)
		b.place(d)
		groups = append(groups, g)
	}
	return groups
}

// group returns the fragments that fit into so many bytes of text; must: at
// least the first. What follows a final fragment is not of the same group: the
// document that it completes may take no more text.
func (d *doc) group(bytes int, must bool) Group {
	g := Group{Key: d.key}
	n := 0
	for n < len(d.fragments) {
		size := len(d.fragments[n].Text())
		if g.Bytes+size > bytes && !(must && n == 0) {
			break
		}
		g.Bytes += size
		n++
		if d.fragments[n-1].Final {
			break
		}
	}
	g.Fragments = d.fragments[:n:n]
	return g
}

// age makes documents due whose oldest fragment has waited too long, in time or
// in messages.
func (b *Batcher) age(now time.Time) {
	if oldest := b.history.first; b.aged < oldest {
		b.aged = oldest
	}
	for ; b.aged < b.history.end; b.aged++ {
		e := b.history.at(b.aged)
		if !e.doc.untaken(e.seq) || e.doc.due {
			continue // what comes back from a flight is due by itself
		}
		if now.UnixNano()-e.added < int64(b.limits.MaxAge) && b.read-e.read <= b.limits.MaxDistance {
			return
		}
		e.doc.due = true
		b.place(e.doc)
	}
}

// Settle frees everything held of a key up to and including a sequence, in
// flight or not. What of it was in flight above that is due again, before all
// others. An unknown key is nothing to settle.
func (b *Batcher) Settle(key string, through uint64) {
	d := b.docs[key]
	if d == nil {
		return
	}
	n := 0
	for n < len(d.fragments) && d.fragments[n].Seq <= through {
		f := &d.fragments[n]
		if n >= d.taken {
			d.waiting -= len(f.Text())
		}
		c := cost(f)
		b.memory -= c
		d.grow(-c)
		d.settled = f.Seq
		n++
	}
	returned := max(d.taken-n, 0)
	clear(d.fragments[:n]) // frees their data now, not when the array goes
	d.fragments = d.fragments[n:]
	for i := range d.fragments[:returned] {
		d.waiting += len(d.fragments[i].Text())
	}
	d.taken, d.takenThrough = 0, 0
	if len(d.fragments) == 0 {
		d.unlink()
		delete(b.docs, key)
		b.memory -= documentBytes + int64(len(key))
	} else if returned > 0 {
		d.due = true
		d.unlink()
		b.again.push(d)
	} else {
		b.place(d)
	}
	b.history.trim()
}

// Deadline returns when Take next has something to hand out by age, a time in
// the past if it has something already. Without a deadline it is false.
func (b *Batcher) Deadline() (time.Time, bool) {
	if b.again.first != nil || b.due.first != nil {
		return time.Unix(0, 0), true
	}
	b.aged = max(b.aged, b.history.first)
	for ; b.aged < b.history.end; b.aged++ {
		e := b.history.at(b.aged)
		if e.doc.untaken(e.seq) && !e.doc.due {
			if b.read-e.read > b.limits.MaxDistance {
				return time.Unix(0, 0), true
			}
			return time.Unix(0, e.added+int64(b.limits.MaxAge)), true
		}
	}
	return time.Time{}, false
}

// Bytes returns the memory that everything held takes.
func (b *Batcher) Bytes() int64 { return b.memory }

// Documents returns how many documents have fragments held.
func (b *Batcher) Documents() int { return len(b.docs) }

// Relieve makes the longest documents due until so many bytes are: memory is
// short.
func (b *Batcher) Relieve(bytes int64) {
	for c := len(b.classes) - 1; c >= 0; c-- {
		for b.again.memory+b.due.memory < bytes {
			d := b.classes[c].first
			if d == nil {
				break
			}
			d.due = true
			b.place(d)
		}
	}
}

// Hurry makes everything that is held due now.
func (b *Batcher) Hurry() {
	for i := b.history.first; i < b.history.end; i++ {
		e := b.history.at(i)
		if e.doc.untaken(e.seq) {
			e.doc.due = true
			b.place(e.doc)
		}
	}
}

// Drain makes everything due, now and from now on.
func (b *Batcher) Drain() {
	b.draining = true
	b.Hurry()
}

// Oldest returns the lowest sequence that is held and not in flight.
func (b *Batcher) Oldest() (seq uint64, ok bool) {
	for i := b.history.first; i < b.history.end; i++ {
		if e := b.history.at(i); e.doc.untaken(e.seq) {
			return e.seq, true
		}
	}
	return 0, false
}

// Age returns how long the oldest fragment has been held, in flight or not.
func (b *Batcher) Age(now time.Time) time.Duration {
	if b.history.first == b.history.end {
		return 0
	}
	return now.Sub(time.Unix(0, b.history.at(b.history.first).added))
}
