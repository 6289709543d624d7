package batcher

import "time"

// Deadline returns when Take has to be called next if nothing else is called
// before: then a document becomes due by age. If Take has something already,
// that is the time of the last call. false: no document waits to become due.
//
// A document in flight that becomes due counts once, though Take cannot hand it
// out yet.
func (b *Batcher) Deadline() (time.Time, bool) {
	if b.queues.next() != nil {
		return b.start.Add(b.now), true
	}
	h := b.arrivals.unripe()
	if h == nil {
		return time.Time{}, false
	}
	return b.start.Add(h.added).Add(b.limits.MaxAge), true
}

// Oldest returns the lowest sequence that waits; false: nothing does.
func (b *Batcher) Oldest() (seq uint64, ok bool) {
	h := b.arrivals.lowest()
	if h == nil {
		return 0, false
	}
	return h.seq, true
}

// Documents returns how many documents have fragments here, waiting or in
// flight.
func (b *Batcher) Documents() int { return len(b.documents) }

// Age returns how long ago the oldest fragment held was added, waiting or in
// flight; 0: there is none.
func (b *Batcher) Age(now time.Time) time.Duration {
	h := b.arrivals.first()
	if h == nil {
		return 0
	}
	return max(now.Sub(b.start)-h.added, 0)
}
