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
// among the proven ones; and a member that holds nothing and leaves lying what
// was its to take is not proven any more, until it holds something. So no
// partition is left alone while somebody can serve it.
//
// It is a pure value. The times of leases are the database's and come as what is
// left of them; now is this member's own clock, of which only differences count.
type Share struct {
	opt     ShareOptions
	peers   map[string]*peer
	free    []time.Time // since when each partition has been seen without an owner; zero: it has one
	ends    []time.Time // when the lease of another member ended, or ends; zero: none
	own     []bool
	next    time.Time
	offline time.Time // since when NATS does not answer; zero: it does
	gone    bool      // Stop was called
}

// peer is what is known of another member.
type peer struct {
	since time.Time // when it was first seen
	seen  time.Time // when it was last seen to have attended since
	until time.Time // when it would not be live any more, as of then
	idle  bool      // it leaves lying what it should take
}

// attendOften is how often a member attends while there are others: what one
// gives back, another one sees after so long at most.
const attendOften = time.Second

// NewShare returns the share of a member that has not attended yet: nothing.
func NewShare(o ShareOptions) *Share {
	return &Share{
		opt: o, peers: map[string]*peer{},
		free: make([]time.Time, o.Partitions), ends: make([]time.Time, o.Partitions), own: make([]bool, o.Partitions),
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
	s.next = s.wake(now, r)
	if s.Attendance(now) == 0 {
		clear(s.own)
		clear(s.free)
		return
	}
	holders := s.holders(now, r)
	held := map[string]int{}
	for _, id := range holders {
		held[id]++
	}
	everybody, proven := []string{s.opt.Member}, []string{s.opt.Member}
	for id := range s.peers {
		everybody = append(everybody, id)
	}
	deal := deal(everybody, held, holders)
	s.notice(now, held, deal)
	for id, p := range s.peers {
		if !p.idle && p.seen.Sub(p.since) >= s.opt.Lease/2 {
			proven = append(proven, id)
		}
	}
	s.decide(now, holders, deal, targets(everybody, held, s.opt.Partitions)[s.opt.Member], targets(proven, held, s.opt.Partitions)[s.opt.Member])
}

// meet notes who is live, and since when.
func (s *Share) meet(now time.Time, r lobwriter.Roster) {
	live := map[string]bool{}
	for _, m := range r.Members {
		if m.ID == s.opt.Member {
			continue
		}
		live[m.ID] = true
		until := now.Add(m.Left)
		p := s.peers[m.ID]
		if p == nil {
			p = &peer{since: now, seen: now, until: until}
			s.peers[m.ID] = p
		}
		// Less than this is how unevenly answers travel.
		if until.Sub(p.until) >= s.opt.Lease/20 {
			p.seen, p.until = now, until
		}
	}
	for id := range s.peers {
		if !live[id] {
			delete(s.peers, id)
		}
	}
}

// wake returns when to attend again: soon enough to see what others give back,
// and when the first lease of another one ends.
func (s *Share) wake(now time.Time, r lobwriter.Roster) time.Time {
	wait := s.opt.Renew
	if len(s.peers) > 0 {
		wait = min(wait, attendOften)
	}
	sooner := func(id string, left time.Duration) {
		if id != s.opt.Member && left > 0 {
			wait = min(wait, left)
		}
	}
	for _, l := range r.Leases {
		sooner(l.MemberID, l.Left)
	}
	for _, m := range r.Members {
		sooner(m.ID, m.Left)
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
			s.free[p] = time.Time{}
		case s.free[p].IsZero():
			s.free[p] = now
		}
	}
	return holders
}

// notice finds members that hold nothing and leave lying what is theirs to take.
func (s *Share) notice(now time.Time, held map[string]int, deal []string) {
	for p, id := range deal {
		if other := s.peers[id]; other != nil && held[id] == 0 && s.lying(now, p) {
			other.idle = true
		}
	}
	for id, other := range s.peers {
		if held[id] > 0 {
			other.idle = false
		}
	}
}

// lying reports whether nobody has taken a partition for a whole lease.
func (s *Share) lying(now time.Time, p int) bool {
	return !s.free[p].IsZero() && now.Sub(s.free[p]) >= s.opt.Lease
}

// decide says which partitions this member is to own: of those that it holds up
// to most, and of the free ones what is dealt to it, up to share.
func (s *Share) decide(now time.Time, holders, deal []string, share, most int) {
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
	// What it was about to claim a moment ago it may have claimed by now.
	take(share, func(p int) bool { return free(p) && before[p] })
	take(share, func(p int) bool { return free(p) && deal[p] == s.opt.Member })
	take(most, func(p int) bool { return free(p) && s.lying(now, p) })
}

// targets returns how many partitions each of these members should own. Whoever
// holds more comes first where not all can have the same.
func targets(members []string, held map[string]int, partitions int) map[string]int {
	ranked := slices.SortedFunc(slices.Values(members), func(a, b string) int {
		return cmp.Or(cmp.Compare(held[b], held[a]), cmp.Compare(a, b))
	})
	out := map[string]int{}
	for rank, id := range ranked {
		out[id] = partitions / len(ranked)
		if rank < partitions%len(ranked) {
			out[id]++
		}
	}
	return out
}

// deal deals the partitions that nobody holds, each to the member that lacks
// most. All members deal alike from the same roster, so that they do not claim
// the same partitions.
func deal(members []string, held map[string]int, holders []string) []string {
	lacks := targets(members, held, len(holders))
	for id := range lacks {
		lacks[id] -= held[id]
	}
	out := make([]string, len(holders))
	for p, holder := range holders {
		if holder != "" {
			continue
		}
		next := members[0]
		for _, id := range members {
			if lacks[id] > lacks[next] || lacks[id] == lacks[next] && id < next {
				next = id
			}
		}
		out[p] = next
		lacks[next]--
	}
	return out
}
