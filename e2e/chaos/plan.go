package main

import (
	"math/rand/v2"
	"time"
)

// kind is a kind of fault.
type kind string

const (
	kill           kind = "kill"               // kill -9 of an owner; it starts again later
	freeze         kind = "freeze"             // SIGSTOP for longer than a lease, then SIGCONT
	cutNATS        kind = "cut_nats"           // connections break, and new ones are refused
	cutPostgres    kind = "cut_postgres"       //
	breakNATS      kind = "break_nats"         // connections break within an answer
	breakPostgres  kind = "break_postgres"     //
	silentNATS     kind = "silent_nats"        // nothing passes, and nobody is told
	silentPostgres kind = "silent_postgres"    //
	slowNATS       kind = "slow_nats"          // everything is late
	slowPostgres   kind = "slow_postgres"      //
	postgresStop   kind = "postgres_stop"      // immediate stop of the server, and a start
	leaderKill     kind = "nats_leader_kill"   // kill -9 of the server that leads the stream, and a start
	leaderFreeze   kind = "nats_leader_freeze" // SIGSTOP and SIGCONT of that server: it still takes itself for the leader
	join           kind = "join"               // another lobsink
	leave          kind = "leave"              // SIGTERM: a lobsink less
)

// deck is how often each kind comes in a round. Kills are what takeovers are
// measured by.
var deck = []struct {
	kind     kind
	cards    int
	min, max time.Duration // how long it lasts
}{
	{kill, 4, 0, 6 * time.Second},
	{freeze, 2, lease + 500*time.Millisecond, 3 * lease},
	{cutNATS, 1, 0, 3 * time.Second},
	{cutPostgres, 1, 0, 3 * time.Second},
	{breakNATS, 1, time.Second, 3 * time.Second},
	{breakPostgres, 1, time.Second, 3 * time.Second},
	{silentNATS, 1, lease, 3 * lease},
	{silentPostgres, 1, lease, 3 * lease},
	{slowNATS, 1, time.Second, 3 * lease},
	{slowPostgres, 1, time.Second, 3 * lease},
	{postgresStop, 1, 200 * time.Millisecond, 3 * time.Second},
	{leaderKill, 1, 500 * time.Millisecond, 4 * time.Second},
	{leaderFreeze, 1, time.Second, 6 * time.Second},
	{join, 1, 0, 0},
	{leave, 1, 0, 0},
}

// How many lobsinks there are: at the beginning, and at any time, those counted
// that are killed or frozen for a while.
const (
	firstMembers = 3
	leastMembers = 2
	mostMembers  = 5
)

// fault is one planned fault.
type fault struct {
	at   time.Duration // when it begins
	kind kind
	last time.Duration // how long it lasts
	pick int           // which of the possible targets
	size int64         // for breaks: bytes until then; for slow connections: milliseconds
}

// Of so many faults, one begins within togetherWithin of the one before it.
const (
	togetherShare  = 3
	togetherWithin = time.Second
)

// plan deals out faults over a time: all of a round before the next one, in
// random order, at random moments. The same seed gives the same plan.
func plan(seed uint64, faults int, over time.Duration) []fault {
	rng := rand.New(rand.NewPCG(seed, 'f'))
	spacing := over / time.Duration(max(faults, 1))
	members := firstMembers
	var round []int // indexes into deck
	var out []fault
	for i := range faults {
		if len(round) == 0 {
			for k, c := range deck {
				for range c.cards {
					round = append(round, k)
				}
			}
			rng.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		}
		card := deck[round[0]]
		round = round[1:]
		f := fault{
			at:   time.Duration(i)*spacing + time.Duration(rng.Int64N(int64(spacing)+1)),
			kind: card.kind,
			last: card.min + time.Duration(rng.Int64N(int64(card.max-card.min)+1)),
			pick: rng.IntN(1000),
		}
		if i > 0 && rng.IntN(togetherShare) == 0 {
			f.at = out[i-1].at + time.Duration(rng.Int64N(int64(togetherWithin)))
		}
		switch f.kind {
		case breakNATS, breakPostgres:
			f.size = 1 + rng.Int64N(20_000)
		case slowNATS, slowPostgres:
			f.size = 50 + rng.Int64N(450)
		case join, leave:
			f.kind = join
			if members == mostMembers || members > leastMembers && card.kind == leave {
				f.kind = leave
			}
			members += map[kind]int{join: 1, leave: -1}[f.kind]
		}
		out = append(out, f)
	}
	return out
}
