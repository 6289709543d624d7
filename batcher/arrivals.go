package batcher

// arrivals are all fragments held, in the order of their sequences, which is
// that of their ages too. The list runs through the fragments, so that each
// leaves it at once when it is freed: none keeps later ones in memory.
//
// Two cursors make a search unnecessary. Both are moved only when asked for.
type arrivals struct {
	first, last *held
	// fresh: every fragment before it is in flight or its document is due. It
	// never goes back, for neither ends but by freeing the fragment or making
	// its document due.
	fresh *held
	// low: every fragment before it is in flight. It goes back when a fragment
	// is given back.
	low *held
}

func (a *arrivals) push(h *held) {
	h.before = a.last
	if a.last == nil {
		a.first = h
	} else {
		a.last.after = h
	}
	a.last = h
	if a.fresh == nil {
		a.fresh = h
	}
	if a.low == nil {
		a.low = h
	}
}

func (a *arrivals) remove(h *held) {
	if a.fresh == h {
		a.fresh = h.after
	}
	if a.low == h {
		a.low = h.after
	}
	if h.before == nil {
		a.first = h.after
	} else {
		h.before.after = h.after
	}
	if h.after == nil {
		a.last = h.before
	} else {
		h.after.before = h.before
	}
}

// giveBack tells that a fragment is no longer in flight.
func (a *arrivals) giveBack(h *held) {
	if a.low == nil || h.seq < a.low.seq {
		a.low = h
	}
}

// unripe returns the oldest waiting fragment whose document is not due.
func (a *arrivals) unripe() *held {
	for a.fresh != nil && (a.fresh.taken || a.fresh.doc.due) {
		a.fresh = a.fresh.after
	}
	return a.fresh
}

// lowest returns the oldest waiting fragment.
func (a *arrivals) lowest() *held {
	for a.low != nil && a.low.taken {
		a.low = a.low.after
	}
	return a.low
}
