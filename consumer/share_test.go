package consumer

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lobsink/lobsink/lobwriter"
)

// TestShare: what one member decides at one roster.
func TestShare(t *testing.T) {
	type held = map[string][]int
	for _, c := range []struct {
		name   string
		member string
		live   []string // the others
		p      int
		held   held
		want   []int // what it is to own
	}{
		{"alone it takes everything", "a", nil, 4, nil, []int{0, 1, 2, 3}},
		{"of two, each takes its half", "a", []string{"b"}, 4, nil, []int{0, 2}},
		{"and the other one the other half", "b", []string{"a"}, 4, nil, []int{1, 3}},
		{"what others hold stays theirs", "b", []string{"a"}, 4, held{"a": {0, 1, 2, 3}}, nil},
		{"a half is left to whoever has none", "a", []string{"b"}, 4, held{"a": {0, 1}}, []int{0, 1}},
		{"the rest goes to whoever holds more", "b", []string{"a"}, 3, held{"b": {1}}, []int{1, 2}},
		{"at its share it takes nothing", "a", []string{"b"}, 4, held{"a": {2, 3}}, []int{2, 3}},
		{"above its share it gives nothing to somebody who may be gone tomorrow", "a", []string{"b"}, 4, held{"a": {0, 1, 2, 3}}, []int{0, 1, 2, 3}},
		{"more members than partitions: one stands by", "b", []string{"a"}, 1, held{"a": {0}}, nil},
		{"and takes nothing that is another one's to take", "b", []string{"a"}, 1, nil, nil},
		{"a lease of somebody who is not live is still a lease", "a", nil, 2, held{"x": {0}}, []int{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewShare(ShareOptions{Member: c.member, Partitions: c.p, Lease: 10 * time.Second, Renew: 3 * time.Second})
			s.Attended(start, roster(append(c.live, c.member), c.held))
			var got []int
			for p := range c.p {
				if s.Own(p) {
					got = append(got, p)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%s is to own %v, want %v", c.member, got, c.want)
			}
		})
	}
}

func roster(live []string, held map[string][]int) (r lobwriter.Roster) {
	for _, id := range live {
		r.Members = append(r.Members, lobwriter.Presence{Member: lobwriter.Member{ID: id}, Left: 10 * time.Second})
	}
	for id, partitions := range held {
		for _, p := range partitions {
			r.Leases = append(r.Leases, lobwriter.Lease{Partition: p, MemberID: id, Left: 5 * time.Second})
		}
	}
	return r
}

// TestShareAttends: a member attends often enough, and at the end of a lease.
func TestShareAttends(t *testing.T) {
	next := func(r lobwriter.Roster) time.Duration {
		s := NewShare(ShareOptions{Member: "a", Partitions: 1, Lease: 10 * time.Second, Renew: 3 * time.Second})
		s.Attended(start, r)
		return s.Next().Sub(start)
	}
	lease := func(id string, left time.Duration) lobwriter.Roster {
		return lobwriter.Roster{Leases: []lobwriter.Lease{{MemberID: id, Left: left}}}
	}
	for name, c := range map[string]struct {
		got, want time.Duration
	}{
		"alone":                    {next(lease("a", time.Second)), 3 * time.Second},
		"with another one":         {next(roster([]string{"a", "b"}, map[string][]int{"a": {0}})), time.Second},
		"another one's lease":      {next(lease("b", 5*time.Second)), time.Second},
		"another one's lease ends": {next(lease("b", 400*time.Millisecond)), 400 * time.Millisecond},
		"something is free":        {next(lobwriter.Roster{}), 500 * time.Millisecond},
		"never in a hurry":         {next(lease("b", 1)), 100 * time.Millisecond},
	} {
		if c.got != c.want {
			t.Errorf("%s: after %v, want %v", name, c.got, c.want)
		}
	}
}

// TestShareCutOff: a member that NATS does not answer for a lease gives
// everything up and does not count, until NATS answers again.
func TestShareCutOff(t *testing.T) {
	s := NewShare(ShareOptions{Member: "a", Partitions: 2, Lease: 10 * time.Second, Renew: 3 * time.Second})
	now := start
	for _, c := range []struct {
		pass   time.Duration
		online bool
		own    bool
	}{{0, true, true}, {time.Second, false, true}, {9 * time.Second, false, true}, {time.Second, false, false}, {time.Minute, false, false}, {time.Second, true, true}} {
		now = now.Add(c.pass)
		s.Connected(now, c.online)
		s.Attended(now, lobwriter.Roster{})
		if s.Own(0) != c.own || (s.Attendance(now) != 0) != c.own {
			t.Fatalf("after %v, online %v: owns %v, attends for %v", now.Sub(start), c.online, s.Own(0), s.Attendance(now))
		}
	}
}

// shareProperty runs a world of members with clocks of their own.
func shareProperty(t *testing.T, play func(t *rapid.T, w *shareWorld)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		w := newShareWorld(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 16).Draw(t, "partitions"))
		defer func() {
			if t.Failed() {
				t.Log(w.tail())
			}
		}()
		play(t, w)
	})
}

// settles lets time pass, after which shares are fair and nothing moves any more.
func settles(t *rapid.T, w *shareWorld, within time.Duration) {
	t.Helper()
	w.run(within)
	if why := w.unfair(); why != "" {
		t.Fatalf("after %v: %s\n%s", within, why, w.tail())
	}
	moves := w.moves
	for range 10 {
		w.run(shareLeaseTime / 2)
		if why := w.unfair(); why != "" {
			t.Fatalf("it was fair once, then %s\n%s", why, w.tail())
		}
	}
	if w.moves != moves {
		t.Fatalf("%d moves among members that do nothing\n%s", w.moves-moves, w.tail())
	}
}

// TestShareConverges: whatever members have come and gone, in whatever order,
// within two leases of the last change everybody has its share, and then nothing
// moves any more.
func TestShareConverges(t *testing.T) {
	t.Parallel()
	shareProperty(t, func(t *rapid.T, w *shareWorld) {
		for range rapid.IntRange(1, 6).Draw(t, "members") {
			w.join()
			w.run(w.span(0, 2*shareLeaseTime))
		}
		for range rapid.IntRange(0, 8).Draw(t, "changes") {
			all := w.living()
			switch rapid.SampledFrom([]string{"join", "kill", "stop", "freeze"}).Draw(t, "change") {
			case "join":
				w.join()
			case "kill":
				if len(all) > 1 {
					w.kill(all[w.rng.IntN(len(all))])
				}
			case "stop":
				if len(all) > 1 {
					w.stop(all[w.rng.IntN(len(all))])
				}
			case "freeze":
				m := all[w.rng.IntN(len(all))]
				m.frozen = w.now + w.span(0, 3*shareLeaseTime)
				w.note("%s is frozen until %v", m.id, m.frozen)
			}
			w.run(w.span(0, 2*shareLeaseTime))
		}
		thawed := w.now
		for _, m := range w.members {
			thawed = max(thawed, m.frozen)
		}
		w.run(thawed - w.now)
		// The last member may have been killed just now: its lease ends first.
		settles(t, w, 3*shareLeaseTime)
	})
}

// TestShareJoin: a new member has its share within two leases, and nothing moves
// but what becomes its.
func TestShareJoin(t *testing.T) {
	t.Parallel()
	shareProperty(t, func(t *rapid.T, w *shareWorld) {
		n := rapid.IntRange(1, 5).Draw(t, "members")
		for range n {
			w.join()
			w.run(w.span(0, shareLeaseTime/10))
		}
		settles(t, w, 2*shareLeaseTime)
		before := w.moves
		m := w.join()
		w.run(2 * shareLeaseTime)
		if why := w.unfair(); why != "" {
			t.Fatalf("two leases after another one joined: %s\n%s", why, w.tail())
		}
		if got := w.counts()[m.id]; w.moves-before != got {
			t.Fatalf("%d partitions moved, the new member has %d\n%s", w.moves-before, got, w.tail())
		}
		settles(t, w, 0)
	})
}

// TestShareColdStart: members that start at once, or nearly, take what is free;
// nobody gives back what it has just taken because of somebody who may be gone
// again.
func TestShareColdStart(t *testing.T) {
	t.Parallel()
	shareProperty(t, func(t *rapid.T, w *shareWorld) {
		w.claims = shareLeaseTime / 5
		for range rapid.IntRange(2, 5).Draw(t, "members") {
			w.join()
			w.run(w.span(0, 500*time.Millisecond))
		}
		w.run(shareLeaseTime / 4)
		if w.moves > 0 {
			t.Fatalf("%d moves at the start\n%s", w.moves, w.tail())
		}
		settles(t, w, 2*shareLeaseTime)
	})
}

// TestShareKilled: what a killed member held is taken within a lease and a second.
func TestShareKilled(t *testing.T) {
	t.Parallel()
	shareProperty(t, func(t *rapid.T, w *shareWorld) {
		for range rapid.IntRange(2, 5).Draw(t, "members") {
			w.join()
		}
		settles(t, w, 2*shareLeaseTime)
		w.run(w.span(0, shareLeaseTime))
		w.kill(w.living()[0])
		w.run(shareLeaseTime + time.Second)
		settles(t, w, 0)
	})
}

// TestShareStops: what a member gives back when it stops is taken within the time
// of a drain and some, long before a lease has passed.
func TestShareStops(t *testing.T) {
	t.Parallel()
	shareProperty(t, func(t *rapid.T, w *shareWorld) {
		for range rapid.IntRange(2, 5).Draw(t, "members") {
			w.join()
		}
		settles(t, w, 2*shareLeaseTime)
		w.run(w.span(0, shareLeaseTime))
		w.stop(w.living()[0])
		w.run(3 * time.Second)
		settles(t, w, 0)
	})
}

// TestShareFlaps: a member that starts and dies, again and again, moves nothing,
// and keeps nobody from serving everything.
func TestShareFlaps(t *testing.T) {
	t.Parallel()
	shareProperty(t, func(t *rapid.T, w *shareWorld) {
		early := rapid.Bool().Draw(t, "before the others")
		flap := func() {
			m := w.join()
			m.unable = true
			w.run(w.span(0, shareLeaseTime/2-time.Second))
			w.kill(m)
			w.run(w.span(0, time.Second))
		}
		if early {
			flap()
			flap()
		}
		for range rapid.IntRange(1, 4).Draw(t, "members") {
			w.join()
		}
		for end := w.now + 3*shareLeaseTime; w.now < end; {
			flap()
		}
		if why := w.unfair(); why != "" {
			t.Fatalf("while one flaps: %s\n%s", why, w.tail())
		}
		before := w.moves
		for end := w.now + 5*shareLeaseTime; w.now < end; {
			flap()
		}
		if w.moves != before {
			t.Fatalf("%d moves because of a member that flaps\n%s", w.moves-before, w.tail())
		}
		settles(t, w, 2*shareLeaseTime)
	})
}

// TestShareUnable: partitions that a live member cannot serve are served by the
// others, and stay with them.
func TestShareUnable(t *testing.T) {
	t.Parallel()
	shareProperty(t, func(t *rapid.T, w *shareWorld) {
		able := rapid.IntRange(1, 3).Draw(t, "able")
		if rapid.Bool().Draw(t, "unable first") {
			w.join().unable = true
			w.run(w.span(0, 2*shareLeaseTime))
		}
		for range able {
			w.join()
			w.run(w.span(0, time.Second))
		}
		w.run(w.span(0, 3*shareLeaseTime))
		w.join().unable = true
		settles(t, w, 5*shareLeaseTime)
	})
}
