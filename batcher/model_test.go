package batcher

import (
	"cmp"
	"slices"
	"time"
)

// model says what a Batcher does in the plainest way: after each call it looks
// at every fragment of every document.
type model struct {
	limits   Limits
	docs     []*modelDoc
	now      time.Duration
	read     uint64
	draining bool
	ticket   int // numbers the places in queues
}

type modelDoc struct {
	key      string
	held     []modelHeld
	flying   int // the first so many are in flight
	due      bool
	returned bool // due again: goes before the others
	class    int  // of a document that is not due; 0: none
	place    int  // ticket of its place among the due or in its class; 0: none
}

type modelHeld struct {
	Fragment
	added time.Duration
	read  uint64
}

func (h modelHeld) memory() int64 { return allocated(cap(h.Data)) + heldBytes }

func (m *model) find(key string) *modelDoc {
	for _, d := range m.docs {
		if d.key == key {
			return d
		}
	}
	return nil
}

func (d *modelDoc) waiting() []modelHeld { return d.held[d.flying:] }

func (d *modelDoc) memory() (sum int64) {
	for _, h := range d.waiting() {
		sum += h.memory()
	}
	return sum
}

func (d *modelDoc) text() (sum int) {
	for _, h := range d.waiting() {
		sum += len(h.Text())
	}
	return sum
}

// oldestFirst returns the documents that wait, by their oldest waiting fragment.
func (m *model) oldestFirst() []*modelDoc {
	var docs []*modelDoc
	for _, d := range m.docs {
		if len(d.waiting()) > 0 {
			docs = append(docs, d)
		}
	}
	slices.SortFunc(docs, func(a, b *modelDoc) int { return cmp.Compare(a.waiting()[0].Seq, b.waiting()[0].Seq) })
	return docs
}

// update applies the rules of becoming due and gives out places in queues.
func (m *model) update() {
	m.docs = slices.DeleteFunc(m.docs, func(d *modelDoc) bool { return len(d.held) == 0 })
	for _, d := range m.oldestFirst() {
		h := d.waiting()[0]
		if m.draining || m.now-h.added >= m.limits.MaxAge || m.read-h.read > m.limits.MaxDistance {
			d.due = true
			m.enqueue(d)
		}
	}
	for _, d := range m.oldestFirst() {
		final := slices.ContainsFunc(d.waiting(), func(h modelHeld) bool { return h.Final })
		if final || d.text() >= m.limits.ChunkBytes {
			d.due = true
		}
		m.enqueue(d)
	}
}

// enqueue gives a document a new place if it has moved to another queue.
func (m *model) enqueue(d *modelDoc) {
	class := 0
	if !d.due {
		for size := d.memory(); size > 0; size /= 2 {
			class++
		}
	}
	ready := d.due && d.flying == 0
	if d.due && !ready {
		d.place = 0
	} else if d.place == 0 || d.class != class {
		m.ticket++
		d.place = m.ticket
	}
	d.class = class
}

func (m *model) add(now time.Duration, f Fragment) {
	m.now = max(m.now, now)
	m.read++
	d := m.find(f.Key)
	if d == nil {
		d = &modelDoc{key: f.Key}
		m.docs = append(m.docs, d)
	}
	d.held = append(d.held, modelHeld{f, m.now, m.read})
	m.update()
}

func (m *model) take(now time.Duration, l Limit) (groups []Group) {
	m.now = max(m.now, now)
	m.update()
	ready := m.ready()
	for i, d := range ready {
		if i == max(l.Documents, 1) {
			break
		}
		g := Group{Key: d.key}
		for j, h := range d.waiting() {
			size := len(h.Text())
			if size > l.Bytes && (i > 0 || j > 0) {
				break
			}
			l.Bytes -= size
			g.Fragments = append(g.Fragments, h.Fragment)
			g.Bytes += size
			if h.Final {
				break
			}
		}
		if len(g.Fragments) == 0 {
			break
		}
		groups = append(groups, g)
	}
	for _, g := range groups {
		d := m.find(g.Key)
		d.flying = len(g.Fragments)
		d.due = d.due && len(d.waiting()) > 0
		d.returned, d.place, d.class = false, 0, 0
	}
	return groups
}

// ready returns what Take may hand out, in its order.
func (m *model) ready() (docs []*modelDoc) {
	for _, d := range m.docs {
		if d.due && d.flying == 0 {
			docs = append(docs, d)
		}
	}
	slices.SortFunc(docs, func(a, b *modelDoc) int {
		if a.returned != b.returned {
			if a.returned {
				return -1
			}
			return 1
		}
		return a.place - b.place
	})
	return docs
}

func (m *model) settle(key string, through uint64) {
	d := m.find(key)
	if d == nil {
		return
	}
	for len(d.held) > 0 && d.held[0].Seq <= through {
		d.held = d.held[1:]
		d.flying = max(d.flying-1, 0)
	}
	if d.flying > 0 {
		d.flying, d.due, d.returned, d.place = 0, true, true, 0
	}
	m.update()
}

func (m *model) hurry() {
	for _, d := range m.oldestFirst() {
		if !d.due {
			d.due = true
			m.enqueue(d)
		}
	}
}

func (m *model) relieve(bytes int64) {
	for {
		var sum int64
		var choice *modelDoc
		for _, d := range m.oldestFirst() {
			if d.due {
				sum += d.memory()
			} else if choice == nil || d.class > choice.class || d.class == choice.class && d.place < choice.place {
				choice = d
			}
		}
		if sum >= bytes || choice == nil {
			return
		}
		choice.due = true
		m.enqueue(choice)
	}
}

func (m *model) bytes() (sum int64) {
	for _, d := range m.docs {
		sum += int64(len(d.key)) + documentBytes + int64(d.flying)*takenBytes
		for _, h := range d.held {
			sum += h.memory()
		}
	}
	return sum
}

// deadline returns when Take has to be called next; false: never.
func (m *model) deadline() (time.Duration, bool) {
	if len(m.ready()) > 0 {
		return m.now, true
	}
	for _, d := range m.oldestFirst() {
		if !d.due {
			return d.waiting()[0].added + m.limits.MaxAge, true
		}
	}
	return 0, false
}
