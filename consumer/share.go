package consumer

import (
	"cmp"
	"slices"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// ShareOptions are the settings of a Share. All are required.
type ShareOptions struct {
	// Member is the ID of this member.
	Member string
	// Partitions is how many there are to share, from 1.
	Partitions int
	// Lease is how long a claim, and the word that a member is live, hold.
	Lease time.Duration
	// Renew is how often a member attends at least.
	Renew time.Duration
}

// Share decides which partitions this member is to own. Every member decides
// for itself, from the roster alone: P partitions among M members are floor(P/M)
// or ceil(P/M) for each, and where that leaves a choice, whoever holds more keeps
// more, so that as few as possible change hands.
//
// A member takes only below its share and gives up only above it. Both count
// other members, but not the same ones. Taking counts everybody who is live.
// Giving up counts only who has proven itself, by being seen to attend for half a
// lease: a process that starts and dies, again and again, moves nothing.
//
// What nobody takes for a whole lease is taken by whoever is below its share
// among the proven ones; and a member that holds nothing and for a whole lease
// leaves lying what was its to take is not counted any more, until it holds
// something. So no partition is left alone while somebody can serve it.
//
// It is a pure value. The times of leases are the database's and come as what is
// left of them; now is this member's own clock, of which only differences count.
type Share struct {
	opt     ShareOptions
	peers   map[string]*peer
	free    []vacancy
	ends    []time.Time // when the lease of another member ended, or ends; zero: none
	own     []bool
	next    time.Time
	offline time.Time // since when NATS does not answer; zero: it does
	gone    bool      // Stop was called
}

// peer is what is known of another member.
type peer struct {
	first time.Time // until when it was live when it was first seen
	until time.Time // until when it is live
	idle  bool      // it leaves lying what it should take
}

// vacancy is what is known of a partition without an owner.
type vacancy struct {
	since time.Time // zero: it has one
	heir  string    // whose it is to take
	named time.Time // since when
}

// attendOften is how often a member attends while there are others: what one
// gives back, another one sees after so long at most.
const attendOften = time.Second

// NewShare returns the share of a member that has not attended yet: nothing.
func NewShare(o ShareOptions) *Share {
	return &Share{
		opt: o, peers: map[string]*peer{},
		free: make([]vacancy, o.Partitions), ends: make([]time.Time, o.Partitions), own: make([]bool, o.Partitions),
	}
}

// Own reports whether this member is to own a partition. A partition of another
// member that it is to own is free, or its lease has ended.
func (s *Share) Own(partition int) bool { return s.own[partition] }

// Ended returns when the lease ended that another member let run out; zero: it
// has not.
func (s *Share) Ended(partition int) time.Time { return s.ends[partition] }

// Members returns how many members are live, this one included.
func (s *Share) Members() int { return len(s.peers) + 1 }

// Next returns when to attend again.
func (s *Share) Next() time.Time { return s.next }

// Attendance is the lease with which to attend: 0 for a member that serves
// nothing, so that the others need not wait for it.
func (s *Share) Attendance(now time.Time) time.Duration {
	if s.gone || s.cutOff(now) {
		return 0
	}
	return s.opt.Lease
}

// Connected tells whether NATS answers. A member to which it does not for a whole
// lease gives up everything: another one may be able to serve it.
func (s *Share) Connected(now time.Time, online bool) {
	switch {
	case online:
		s.offline = time.Time{}
	case s.offline.IsZero():
		s.offline = now
	}
}

func (s *Share) cutOff(now time.Time) bool {
	return !s.offline.IsZero() && now.Sub(s.offline) >= s.opt.Lease
}

// Stop tells that this member ends. It cannot be taken back.
func (s *Share) Stop() { s.gone = true }

// Attended tells what the roster says, and decides.
func (s *Share) Attended(now time.Time, r lobwriter.Roster) {
	s.meet(now, r)
	if s.Attendance(now) == 0 {
		clear(s.own)
		clear(s.free)
		s.next = now.Add(s.opt.Renew)
		return
	}
	holders := s.holders(now, r)
	held := map[string]int{}
	for _, id := range holders {
		held[id]++
	}
	s.notice(now, held)
	counted, proven := []string{s.opt.Member}, []string{s.opt.Member}
	for id, p := range s.peers {
		if p.idle {
			continue
		}
		counted = append(counted, id)
		if p.until.Sub(p.first) >= s.opt.Lease/2 {
			proven = append(proven, id)
		}
	}
	s.deal(now, counted, held, holders)
	share := targets(counted, held, s.opt.Partitions)[s.opt.Member]
	most := targets(proven, held, s.opt.Partitions)[s.opt.Member]
	s.decide(now, holders, share, most)
	s.next = s.wake(now, r)
}

// meet notes who is live, and for how long it has been seen to attend.
func (s *Share) meet(now time.Time, r lobwriter.Roster) {
	live := map[string]bool{}
	for _, m := range r.Members {
		if m.ID == s.opt.Member {
			continue
		}
		live[m.ID] = true
		if s.peers[m.ID] == nil {
			s.peers[m.ID] = &peer{first: now.Add(m.Left)}
		}
		s.peers[m.ID].until = now.Add(m.Left)
	}
	for id := range s.peers {
		if !live[id] {
			delete(s.peers, id)
		}
	}
}

// wake returns when to attend again: soon enough to see what others give back,
// when the first lease of another one ends, and soon while something is about to
// be taken.
func (s *Share) wake(now time.Time, r lobwriter.Roster) time.Time {
	wait := s.opt.Renew
	sooner := func(id string, left time.Duration) {
		if id != s.opt.Member && left > 0 {
			wait = min(wait, left, attendOften)
		}
	}
	for _, l := range r.Leases {
		sooner(l.MemberID, l.Left)
	}
	for _, m := range r.Members {
		sooner(m.ID, m.Left)
	}
	for _, v := range s.free {
		if !v.since.IsZero() && now.Sub(v.since) < s.opt.Lease {
			wait = min(wait, s.opt.Lease/20)
		}
	}
	return now.Add(max(wait, s.opt.Lease/100))
}

// holders returns who holds each partition; "": nobody.
func (s *Share) holders(now time.Time, r lobwriter.Roster) []string {
	holders := make([]string, s.opt.Partitions)
	clear(s.ends)
	for _, l := range r.Leases {
		if l.Partition < 0 || l.Partition >= s.opt.Partitions {
			continue
		}
		if l.MemberID != s.opt.Member {
			s.ends[l.Partition] = now.Add(l.Left)
		}
		if l.Left > 0 {
			holders[l.Partition] = l.MemberID
		}
	}
	for p, id := range holders {
		switch {
		case id != "":
			s.free[p] = vacancy{}
		case s.free[p].since.IsZero():
			s.free[p].since = now
		}
	}
	return holders
}

// notice finds members that hold nothing and leave lying what is theirs to take.
func (s *Share) notice(now time.Time, held map[string]int) {
	for _, v := range s.free {
		if other := s.peers[v.heir]; other != nil && held[v.heir] == 0 && now.Sub(v.named) >= s.opt.Lease {
			other.idle = true
		}
	}
	for id, other := range s.peers {
		if held[id] > 0 {
			other.idle = false
		}
	}
}

// deal deals the partitions that nobody holds, each to the member that lacks
// most. All members deal alike from the same roster, so that they do not claim
// the same partitions.
func (s *Share) deal(now time.Time, members []string, held map[string]int, holders []string) {
	lacks := targets(members, held, len(holders))
	for id := range lacks {
		lacks[id] -= held[id]
	}
	for p, holder := range holders {
		if holder != "" {
			continue
		}
		heir := members[0]
		for _, id := range members {
			if lacks[id] > lacks[heir] || lacks[id] == lacks[heir] && id < heir {
				heir = id
			}
		}
		lacks[heir]--
		if v := &s.free[p]; v.heir != heir {
			v.heir, v.named = heir, now
		}
	}
}

// decide says which partitions this member is to own: of those that it holds up
// to most, and of the free ones what is dealt to it, up to share.
func (s *Share) decide(now time.Time, holders []string, share, most int) {
	before := slices.Clone(s.own)
	clear(s.own)
	count := 0
	take := func(limit int, which func(p int) bool) {
		for p := range s.own {
			if count < limit && !s.own[p] && which(p) {
				s.own[p] = true
				count++
			}
		}
	}
	mine := func(p int) bool { return holders[p] == s.opt.Member }
	free := func(p int) bool { return holders[p] == "" }
	// What is being given up already goes first.
	take(most, func(p int) bool { return mine(p) && before[p] })
	take(most, mine)
	// What it was about to claim a moment ago it may have claimed by now: to give
	// that back, because somebody has joined meanwhile, would move it twice.
	take(most, func(p int) bool { return free(p) && before[p] })
	take(share, func(p int) bool { return free(p) && s.free[p].heir == s.opt.Member })
	take(most, func(p int) bool { return free(p) && now.Sub(s.free[p].since) >= s.opt.Lease })
}

// targets returns how many partitions each of these members should own. Whoever
// holds more comes first where not all can have the same; but not by what it has
// to give up anyway, or the order would change while it does.
func targets(members []string, held map[string]int, partitions int) map[string]int {
	low, more := partitions/len(members), partitions%len(members)
	keeps := func(id string) int { return min(held[id], low+1) }
	ranked := slices.SortedFunc(slices.Values(members), func(a, b string) int {
		return cmp.Or(cmp.Compare(keeps(b), keeps(a)), cmp.Compare(a, b))
	})
	out := map[string]int{}
	for rank, id := range ranked {
		out[id] = low
		if rank < more {
			out[id]++
		}
	}
	return out
}
