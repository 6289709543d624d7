package batcher

// arrivals are all fragments held, in the order of their sequences, which is
// that of their ages too. Each has a place; the places of those that were freed
// are empty, so that none keeps others in memory, and are dropped once there is
// nothing before them. Limits.MaxDistance bounds how many there are.
//
// Two cursors make a search unnecessary. Both are moved only when asked for.
type arrivals struct {
	// places begin with number base. Those before head are dropped.
	places []*held
	base   uint64
	head   int
	// fresh: every fragment before this place is in flight or its document is
	// due. It never goes back, for neither ends but by freeing the fragment or
	// making its document due.
	fresh uint64
	// low: every fragment before this place is in flight. It goes back when a
	// fragment is given back.
	low uint64
}

// smallPlaces is for how many places room is kept without need.
const smallPlaces = 1024

func (a *arrivals) push(h *held) {
	h.place = a.base + uint64(len(a.places))
	a.places = append(a.places, h)
}

func (a *arrivals) remove(h *held) {
	a.places[h.place-a.base] = nil
	for a.head < len(a.places) && a.places[a.head] == nil {
		a.head++
	}
	if a.head < smallPlaces && a.head < len(a.places) || 2*a.head < len(a.places) {
		return
	}
	// Moving half of the places or less costs less than the removals that came
	// before.
	rest := a.places[a.head:]
	a.base += uint64(a.head)
	a.head = 0
	if cap(a.places) > max(4*len(rest), smallPlaces) {
		a.places = append(make([]*held, 0, 2*len(rest)), rest...)
		return
	}
	n := copy(a.places, rest)
	clear(a.places[n:])
	a.places = a.places[:n]
}

// first returns the oldest fragment; nil: none is held.
func (a *arrivals) first() *held {
	if a.head == len(a.places) {
		return nil
	}
	return a.places[a.head]
}

// giveBack tells that a fragment is no longer in flight.
func (a *arrivals) giveBack(h *held) { a.low = min(a.low, h.place) }

// unripe returns the oldest waiting fragment whose document is not due.
func (a *arrivals) unripe() *held {
	return a.seek(&a.fresh, func(h *held) bool { return !h.taken && !h.doc.due })
}

// lowest returns the oldest waiting fragment.
func (a *arrivals) lowest() *held {
	return a.seek(&a.low, func(h *held) bool { return !h.taken })
}

// seek moves a cursor to the next fragment that is wanted; nil: there is none.
func (a *arrivals) seek(cursor *uint64, wanted func(*held) bool) *held {
	*cursor = max(*cursor, a.base+uint64(a.head))
	for i := *cursor - a.base; i < uint64(len(a.places)); i++ {
		if h := a.places[i]; h != nil && wanted(h) {
			*cursor = a.base + i
			return h
		}
	}
	*cursor = a.base + uint64(len(a.places))
	return nil
}
