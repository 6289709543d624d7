package check

// placement is where the fragments of a document stand in its text.
type placement struct {
	times     []int // how often each fragment stands there
	order     []int // the fragments in the order in which each stands there first
	foreign   int   // bytes that belong to no fragment
	foreignAt int   // the offset of the first of them
}

// headBytes is how much of a fragment is looked up to find it in a text.
// Producers that number their fragments make it nearly unique.
const headBytes = 24

// place finds fragments in a text that is not their concatenation. It reads the
// text from its beginning: where the next fragment stands it takes that one,
// otherwise whichever fits, otherwise the byte is foreign. A fragment whose data
// the stream has several times may stand there as often.
func place(text string, fragments []Fragment) placement {
	p := placement{times: make([]int, len(fragments))}
	head := headBytes
	for _, f := range fragments {
		if len(f.Data) > 0 {
			head = min(head, len(f.Data))
		}
	}
	byHead := map[string][]int{}
	for i, f := range fragments {
		if len(f.Data) == 0 {
			p.times[i] = 1 // nothing of it can be missing
			continue
		}
		byHead[f.Data[:head]] = append(byHead[f.Data[:head]], i)
	}
	starts := func(at, i int) bool {
		data := fragments[i].Data
		return len(data) > 0 && len(text)-at >= len(data) && text[at:at+len(data)] == data
	}
	next := 0
	for at := 0; at < len(text); {
		best := -1
		if next < len(fragments) && p.times[next] == 0 && starts(at, next) {
			best = next
		} else if len(text)-at >= head {
			for _, i := range byHead[text[at:at+head]] {
				if starts(at, i) && (best < 0 || better(fragments, p.times, i, best)) {
					best = i
				}
			}
		}
		if best < 0 {
			if p.foreign == 0 {
				p.foreignAt = at
			}
			p.foreign++
			at++
			continue
		}
		if p.times[best]++; p.times[best] == 1 {
			p.order = append(p.order, best)
		}
		at += len(fragments[best].Data)
		next = best + 1
	}
	return p
}

// better reports whether fragment i explains a place better than fragment j: the
// longer one, and of two equal ones that which is not there yet.
func better(fragments []Fragment, times []int, i, j int) bool {
	if li, lj := len(fragments[i].Data), len(fragments[j].Data); li != lj {
		return li > lj
	}
	return times[j] > 0 && times[i] == 0
}
