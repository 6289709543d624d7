package consumer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// shareWorld is a database's roster and members that share by it. It has no
// goroutine and no clock but its own, which is the database's; each member has
// another one.
type shareWorld struct {
	rng        *rand.Rand
	partitions int
	now        time.Duration
	members    []*shareMember           // in the order in which they joined
	rows       map[string]time.Duration // until when each member row says live
	leases     []shareLease
	moves      int // how often a partition was given back or changed its owner
	born       int
	claims     time.Duration // how long a claim takes at most
	trace      []string
}

type shareLease struct {
	id    string
	until time.Duration
}

type shareMember struct {
	id     string
	share  *Share
	clock  func(now time.Duration) time.Time
	frozen time.Duration // until when
	unable bool          // its claims never succeed
	attend time.Duration // when next
	due    time.Duration // when something is to be done
	held   []bool
	claim  []time.Duration // when the claim under way is made; 0: none
	hand   []time.Duration // when the drain under way ends; 0: none
	renew  []time.Duration // when the lease is renewed
}

const (
	shareLeaseTime = 10 * time.Second
	shareRenew     = 3 * time.Second
	shareTick      = 100 * time.Millisecond
)

func newShareWorld(seed uint64, partitions int) *shareWorld {
	return &shareWorld{
		rng: rand.New(rand.NewPCG(seed, 1)), partitions: partitions,
		rows: map[string]time.Duration{}, leases: make([]shareLease, partitions), now: time.Hour, claims: 300 * time.Millisecond,
	}
}

func (w *shareWorld) span(from, to time.Duration) time.Duration {
	return from + time.Duration(w.rng.Int64N(int64(to-from)+1))
}

func (w *shareWorld) note(format string, a ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%8.2f ", w.now.Seconds())+fmt.Sprintf(format, a...))
}

// join starts a member. Its clock is wrong by up to a day, and a little fast or
// slow.
func (w *shareWorld) join() *shareMember {
	w.born++
	id := fmt.Sprintf("%04x", w.rng.IntN(1<<16))
	for w.named(id) != nil || w.rows[id] != 0 {
		id += "x"
	}
	offset, rate := w.span(-24*time.Hour, 24*time.Hour), 0.98+w.rng.Float64()*0.04
	m := &shareMember{
		id: id, attend: w.now, due: w.now, held: make([]bool, w.partitions),
		claim: make([]time.Duration, w.partitions), hand: make([]time.Duration, w.partitions), renew: make([]time.Duration, w.partitions),
		share: NewShare(ShareOptions{Member: id, Partitions: w.partitions, Lease: shareLeaseTime, Renew: shareRenew}),
		clock: func(now time.Duration) time.Time {
			return start.Add(offset).Add(time.Duration(float64(now) * rate))
		},
	}
	w.members = append(w.members, m)
	w.note("%s joins", id)
	return m
}

// named returns a member; nil: it does not live.
func (w *shareWorld) named(id string) *shareMember {
	for _, m := range w.members {
		if m.id == id {
			return m
		}
	}
	return nil
}

func (w *shareWorld) remove(m *shareMember) {
	w.members = slices.DeleteFunc(slices.Clone(w.members), func(o *shareMember) bool { return o == m })
}

func (w *shareWorld) kill(m *shareMember) {
	w.note("%s is killed", m.id)
	w.remove(m)
}

// stop is what a member does that ends in order: it says so, gives back what it
// has, and goes.
func (w *shareWorld) stop(m *shareMember) {
	w.note("%s stops", m.id)
	m.share.Stop()
	m.attend, m.due = w.now, w.now
}

func (w *shareWorld) roster() (r lobwriter.Roster) {
	for _, id := range slices.Sorted(maps.Keys(w.rows)) {
		if left := w.rows[id] - w.now; left > 0 {
			r.Members = append(r.Members, lobwriter.Presence{Member: lobwriter.Member{ID: id}, Left: left})
		}
	}
	for p, l := range w.leases {
		if l.id != "" {
			r.Leases = append(r.Leases, lobwriter.Lease{Partition: p, MemberID: l.id, Left: l.until - w.now})
		}
	}
	return r
}

// run lets time pass.
func (w *shareWorld) run(d time.Duration) {
	for end := w.now + d; w.now < end; w.now += shareTick {
		for _, m := range w.members {
			if w.now >= m.frozen && w.now >= m.due {
				w.step(m)
			}
		}
	}
}

func (w *shareWorld) step(m *shareMember) {
	if w.now >= m.attend {
		now := m.clock(w.now)
		w.rows[m.id] = w.now + m.share.Attendance(now)
		m.share.Attended(now, w.roster())
		m.attend = w.now + m.share.Next().Sub(now)
	}
	nothing := true
	m.due = m.attend
	for p := range w.partitions {
		w.serve(m, p)
		nothing = nothing && !m.held[p] && m.claim[p] == 0
		for _, at := range []time.Duration{m.claim[p], m.hand[p], m.renew[p]} {
			if at != 0 {
				m.due = min(m.due, at)
			}
		}
	}
	if m.share.gone && nothing {
		w.note("%s is gone", m.id)
		w.remove(m)
		delete(w.rows, m.id)
	}
}

// serve does what an owner does for one partition.
func (w *shareWorld) serve(m *shareMember, p int) {
	l := &w.leases[p]
	own := m.share.Own(p) && !m.share.gone
	if m.held[p] && l.id != m.id {
		m.held[p], m.hand[p], m.renew[p] = false, 0, 0 // fenced
	}
	switch {
	case m.claim[p] != 0 && w.now >= m.claim[p]:
		m.claim[p] = 0
		if m.unable || l.id != "" && l.id != m.id && l.until > w.now {
			return
		}
		if l.id != "" && l.id != m.id {
			w.moves++
		}
		w.note("%s claims %d (was %q's)", m.id, p, l.id)
		*l = shareLease{m.id, w.now + shareLeaseTime}
		m.held[p], m.renew[p] = true, w.now+shareRenew
	case m.held[p] && m.hand[p] != 0 && w.now >= m.hand[p]:
		w.note("%s gives %d back", m.id, p)
		m.held[p], m.hand[p], m.renew[p], *l = false, 0, 0, shareLease{}
		w.moves++
	case m.held[p] && !own && m.hand[p] == 0:
		m.hand[p] = w.now + w.span(0, time.Second)
	case m.held[p] && w.now >= m.renew[p]:
		l.until, m.renew[p] = w.now+shareLeaseTime, w.now+shareRenew
	case !m.held[p] && own && m.claim[p] == 0:
		m.claim[p] = w.now + w.span(0, w.claims)
	}
}

// counts returns how many partitions each living member holds.
func (w *shareWorld) counts() map[string]int {
	out := map[string]int{}
	for _, m := range w.members {
		out[m.id] = 0
	}
	for _, l := range w.leases {
		if _, lives := out[l.id]; lives && l.until > w.now {
			out[l.id]++
		}
	}
	return out
}

// unfair says what is wrong with who holds what; "": nothing. Members that are
// unable count only for what they hold.
func (w *shareWorld) unfair() string {
	able := 0
	for _, m := range w.members {
		if !m.unable {
			able++
		}
	}
	sum := 0
	counts := w.counts()
	for _, m := range w.members {
		id, n := m.id, counts[m.id]
		sum += n
		if m.unable {
			continue
		}
		if low, high := w.partitions/able, (w.partitions+able-1)/able; n < low || n > high {
			return fmt.Sprintf("%s holds %d, not %d to %d: %v", id, n, low, high, counts)
		}
	}
	if sum != w.partitions {
		return fmt.Sprintf("%d of %d partitions are held: %v", sum, w.partitions, counts)
	}
	return ""
}

func (w *shareWorld) tail() string { return strings.Join(w.trace[max(0, len(w.trace)-60):], "\n") }

// living returns the members that have not been told to stop.
func (w *shareWorld) living() (all []*shareMember) {
	for _, m := range w.members {
		if !m.share.gone {
			all = append(all, m)
		}
	}
	return all
}
