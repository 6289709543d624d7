package consumer

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"
)

// The search itself: which states are new, how they were reached, and whether a
// good end can be.

// tidy drops what cannot have an effect any more.
func (x *explorer) tidy(n *exState) {
	inUse := func(name string) bool {
		return x.shared || name == n.owners[0].consumerName || name == n.owners[1].consumerName
	}
	n.consumers = slices.DeleteFunc(n.consumers, func(c exConsumer) bool { return !inUse(c.consumerName) })
	if len(n.late) == 0 {
		return
	}
	back := n.left[faultRewind] > 0
	n.late = slices.DeleteFunc(slices.Clone(n.late), func(r exRequest) bool {
		switch a := r.action.(type) {
		case DoFlush:
			return !back && !x.cfg.keepAll && (a.Flush.ClaimID != n.current.claimID || a.Flush.Number < n.fence.Flush)
		case DoOpen:
			return !inUse(r.consumerName)
		case DoRelease:
			return !back && a.Claim.Fence.ClaimID != n.current.claimID
		}
		return false
	})
}

// hash tells states apart. Two that differ only in which member is which are the
// same.
func (x *explorer) hash(n *exState) uint64 {
	e := x.encoder
	lowest := uint64(0)
	for _, first := range []int{0, 1} {
		e.reset()
		e.databaseNow, e.first = n.dbNow, first
		encode(e, &n.db)
		encode(e, &n.current)
		encode(e, &n.stream)
		encode(e, &n.left)
		for i := range n.owners {
			o := n.owners[i^first]
			e.now = o.now
			encode(e, o)
		}
		encode(e, &n.consumers)
		encode(e, &n.late)
		encode(e, &n.backup)
		if h := maphash.Bytes(x.seed, e.buf); first == 0 || h < lowest {
			lowest = h
		}
	}
	return lowest
}

// add numbers a state; fresh: it is a new one.
func (x *explorer) add(n *exState, from uint32) (i uint32, fresh bool) {
	x.tidy(n)
	h := x.hash(n)
	if i, ok := x.seen[h]; ok {
		return i, false
	}
	i = uint32(len(x.parent))
	x.seen[h] = i
	x.parent, x.hashes, x.goods = append(x.parent, from), append(x.hashes, h), append(x.goods, x.good(n))
	return i, true
}

func (x *explorer) run(t *testing.T) {
	t.Helper()
	begun := time.Now()
	type numbered struct {
		state *exState
		i     uint32
	}
	first := x.first()
	x.add(first, 0)
	layer := []numbered{{first, 0}}
	depth, full := 0, true
	for ; len(layer) > 0 && full && !t.Failed(); depth++ {
		var next []numbered
		for k := range layer {
			from := layer[k]
			layer[k].state = nil
			x.expand(from.state, func(n *exState, fault bool, broken string) {
				if t.Failed() {
					return
				}
				if broken != "" {
					t.Errorf("%s: %s\n%s", x.cfg.name, broken, x.trace(from.i, broken))
					return
				}
				i, fresh := x.add(n, from.i)
				if !fault {
					x.edges.from, x.edges.to = append(x.edges.from, from.i), append(x.edges.to, i)
				}
				if fresh {
					next = append(next, numbered{n, i})
				}
			})
		}
		layer = next
		if *exploreTrace {
			t.Logf("depth %d: %d states, %d of them new, %s", depth, len(x.parent), len(layer), time.Since(begun).Round(time.Second))
			if len(layer) > 0 && depth%10 == 9 {
				t.Log(x.trace(layer[len(layer)-1].i, ""))
			}
		}
		full = len(x.parent) <= *exploreLimit
	}
	if t.Failed() {
		return
	}
	t.Logf("%s: %d states, %d edges without a fault, depth %d, %s", x.cfg.name, len(x.parent), len(x.edges.from), depth, time.Since(begun).Round(time.Millisecond))
	if !full {
		t.Fatalf("more than %d states", *exploreLimit)
	}
	if i, n := x.stuck(); n > 0 {
		t.Errorf("%s: from %d states no good end can be reached, first from this one:\n%s", x.cfg.name, n, x.trace(i, ""))
	}
}

// stuck counts the states from which no good one can be reached without a
// further fault, and returns the first of them.
func (x *explorer) stuck() (first uint32, n int) {
	begin := make([]uint32, len(x.parent)+1)
	for _, to := range x.edges.to {
		begin[to+1]++
	}
	for i := 1; i < len(begin); i++ {
		begin[i] += begin[i-1]
	}
	at := slices.Clone(begin)
	before := make([]uint32, len(x.edges.to))
	for e, to := range x.edges.to {
		before[at[to]] = x.edges.from[e]
		at[to]++
	}
	reach := slices.Clone(x.goods)
	var todo []uint32
	for i, good := range reach {
		if good {
			todo = append(todo, uint32(i))
		}
	}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range before[begin[i]:begin[i+1]] {
			if !reach[from] {
				reach[from] = true
				todo = append(todo, from)
			}
		}
	}
	for i := len(reach) - 1; i >= 0; i-- {
		if !reach[i] {
			first, n = uint32(i), n+1
		}
	}
	return first, n
}

// trace plays the steps that lead to a state once more, and tells them. With
// broken, one more step follows, which breaks that rule.
func (x *explorer) trace(to uint32, broken string) string {
	var path []uint32
	for i := to; i != 0; i = x.parent[i] {
		path = append(path, i)
	}
	x.tracing = true
	defer func() { x.tracing = false }()
	var out strings.Builder
	step := 0
	s := x.first()
	follow := func(is func(n *exState, why string) bool) {
		var found *exState
		x.expand(s, func(n *exState, _ bool, why string) {
			line := x.line.String()
			if found == nil && is(n, why) {
				found = n
				step++
				fmt.Fprintf(&out, "%4d  %s\n", step, line)
			}
		})
		s = found
	}
	for _, i := range slices.Backward(path) {
		follow(func(n *exState, why string) bool {
			if why != "" {
				return false
			}
			x.tidy(n)
			return x.hash(n) == x.hashes[i]
		})
		if s == nil {
			return out.String() + "      and then a state that does not come again\n"
		}
	}
	if broken != "" {
		follow(func(_ *exState, why string) bool { return why == broken })
	} else {
		fmt.Fprintf(&out, "      fence row %+v\n", s.fence)
	}
	return out.String()
}
