package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// Options are the settings of a Partition. All are required.
type Options struct {
	// Partition is the number of the partition, from 0.
	Partition int
	// Binding is what the database says about the stream it serves.
	Binding lobwriter.Binding
	// Batch says when a document is due.
	Batch batcher.Limits
	// Flush is what one flush of the store may carry.
	Flush lobwriter.Limits
	// MaxMessage is the size of the largest message that the stream can hold,
	// headers and overhead included. A fetch asks for at least that much: a
	// smaller limit returns nothing, for ever, when such a message is next.
	MaxMessage int64
	// Rows is how many bytes of memory the rows believed may take.
	Rows int64
	// Lease is how long a claim holds without being renewed.
	Lease time.Duration
	// Renew is how often a claim is renewed.
	Renew time.Duration
	// Quiet is how often the server is asked when nothing arrives; at most the
	// lease, for that is how often an idle checkpoint has to move.
	Quiet time.Duration
}

// Waits between attempts. They are short where a member merely has to try
// again, long where an operator has to act.
const (
	firstRetry    = 100 * time.Millisecond // after a doubt; doubles while claims bring no flush
	lastRetry     = 5 * time.Second        // the most between two claims
	confirmAfter  = 5 * time.Second        // a mismatch is believed when it still stands (a lagging leader)
	lookAgain     = time.Minute            // a stopped partition looks again
	reportedRetry = 5 * time.Second        // a flush that only an operator can help
)

// phase is where a turn stands. The order matters: from inspecting to owning
// there is a claim, and what was asked of NATS so far counts.
type phase int

const (
	waiting    phase = iota // until claimAt
	claiming                // DoClaim is outstanding
	inspecting              // DoInspect is outstanding
	opening                 // DoOpen is outstanding
	checking                // DoInspect is outstanding, for the second time
	confirming              // DoConfirm is outstanding
	owning                  // reading, flushing, acknowledging
	releasing               // DoRelease is outstanding
	ended                   // released after Stop
)

// Partition decides everything about one partition: when to claim it, whether
// what arrives is in order, what is flushed next, where the checkpoint may go,
// when to acknowledge and when to start again.
//
// It is a pure value. Events are methods; each may add actions, which Actions
// hands out. Times are the caller's; they never go back. It is not safe for
// concurrent use.
type Partition struct {
	opt   Options
	out   []Action
	phase phase
	turn  Turn

	online    bool          // the last word about the connection to NATS
	claimAt   time.Time     // when waiting: when to claim
	retry     time.Duration // the wait after the next doubt
	suspectAt time.Time     // when a mismatch was first seen; zero: none
	stopping  bool          // Stop was called
	assigned  bool          // the last word of Assign
	paused    bool          // the last word of Pause
	// left is the claim of a turn that was dropped, whose lease holds on; its
	// epoch is 0 if there is none.
	left lobwriter.Claim

	claim    lobwriter.Claim
	fence    lobwriter.Fence // the fence row as believed
	leaseEnd time.Time       // when the lease may have run out, by the caller's clock
	renewAt  time.Time
	renewal  renewal

	reading
	writing
}

// renewal is an outstanding DoRenew.
type renewal struct {
	outstanding bool
	// number is the flush number that the renewal must find if no flush was in
	// flight when it was sent, else -1.
	number int64
}

// New returns a partition that waits for its first claim. It is this member's to
// own until Assign says otherwise.
func New(o Options) *Partition {
	p := &Partition{opt: o, retry: firstRetry, assigned: true}
	p.forget()
	return p
}

// Actions returns what has to be done since the last call, in order.
func (p *Partition) Actions() []Action {
	out := p.out
	p.out = nil
	return out
}

func (p *Partition) do(a Action) { p.out = append(p.out, a) }

// Turn returns the current turn.
func (p *Partition) Turn() Turn { return p.turn }

// Owning reports whether the partition is claimed and being read.
func (p *Partition) Owning() bool { return p.phase == owning }

// Ended reports whether Stop has been carried out.
func (p *Partition) Ended() bool { return p.phase == ended }

// Claim returns the claim of the current turn, if there is one.
func (p *Partition) Claim() (lobwriter.Claim, bool) {
	return p.claim, p.claimed()
}

func (p *Partition) claimed() bool { return p.phase >= inspecting && p.phase <= owning }

// Deadline returns when Tick has something to do next. Without an outstanding
// action the zero time means never.
func (p *Partition) Deadline() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	switch {
	case p.phase == waiting && !(p.online && p.assigned || p.stopping):
		return time.Time{}
	case p.phase == waiting:
		return p.claimAt
	case !p.claimed():
		return time.Time{}
	}
	sooner(p.leaseEnd)
	if !p.renewal.outstanding {
		sooner(p.renewAt)
	}
	if p.phase == owning {
		if p.flight == nil && p.works.reading == nil {
			if t, ok := p.batch.Deadline(); ok {
				sooner(t)
			}
		}
		sooner(p.resendAt)
		if p.handing && !p.stopping {
			sooner(p.handBy)
		}
	}
	return next
}

// Tick carries out what has become due by now.
func (p *Partition) Tick(now time.Time) {
	switch {
	case p.phase == waiting && !p.wanted():
		p.rest()
		return
	case p.phase == waiting && p.online && !now.Before(p.claimAt):
		p.phase = claiming
		p.do(DoClaim{Turn: p.turn})
		return
	case !p.claimed() || p.lapsed(now) || p.overdue(now):
		return
	}
	if !p.renewal.outstanding && !now.Before(p.renewAt) {
		p.renewal = renewal{outstanding: true, number: p.fence.Flush}
		if p.flight != nil {
			p.renewal.number = -1
		}
		p.do(DoRenew{Turn: p.turn, Claim: p.claim})
	}
	if p.phase == owning {
		p.advance(now)
	}
}

// advance does everything that an owner can do at this moment.
func (p *Partition) advance(now time.Time) {
	p.resend(now)
	p.write(now)
	p.acknowledge()
	p.read()
	p.finish(now)
}

// Connected tells that NATS answers, or that it does not. No answer is neither
// mismatch nor doubt: a claim just does not start before NATS answers.
func (p *Partition) Connected(now time.Time, online bool) {
	p.online = online
	p.Tick(now)
}

// Reconnected tells that the connection was lost and that NATS answers again:
// the server may have lost messages, the consumer or itself. What is in memory
// is flushed first if retention has passed the checkpoint, for then the stream
// may not have it any more.
func (p *Partition) Reconnected(now time.Time, facts StreamFacts) {
	p.online = true
	switch {
	case !p.claimed():
		p.Tick(now)
	case p.lapsed(now):
	case p.phase == owning && facts.Created == p.opt.Binding.Created && facts.First > p.fence.Checkpoint.Seq+1 && p.holds():
		p.leave(now, DoubtReconnect, "the connection was lost and is back")
	default:
		p.doubt(now, DoubtReconnect, "the connection was lost and is back")
	}
}

// StreamChecked tells what the stream says about itself, at least once per
// renewal. A stream that is not where it was is looked at closely by the claim
// that follows.
func (p *Partition) StreamChecked(now time.Time, facts StreamFacts) {
	if p.phase != owning || p.lapsed(now) {
		return
	}
	// The stream was asked after the check before this one was told. What came
	// since then may be newer than its answer.
	had := p.had
	p.had = max(p.last.Seq, p.fence.Highest.Seq)
	switch known := p.known(); {
	case facts.Created != p.opt.Binding.Created:
		p.doubt(now, DoubtWentBack, "the stream was created again")
	case facts.Last.Seq < had:
		p.doubt(now, DoubtWentBack, fmt.Sprintf("the stream ends at %d, below %d", facts.Last.Seq, had))
	case facts.First > known+1:
		p.leave(now, DoubtRetention, fmt.Sprintf("the stream begins at %d, but this partition has been read up to %d only", facts.First, known))
	case facts.First > p.fence.Checkpoint.Seq+1 && p.holds():
		p.batch.Hurry() // what is in memory is the only copy
		p.advance(now)
	default:
		p.advance(now)
	}
}

// lapsed drops a turn whose lease may have run out.
func (p *Partition) lapsed(now time.Time) bool {
	if !p.claimed() || now.Before(p.leaseEnd) {
		return false
	}
	p.doubt(now, DoubtLease, "the lease may have run out")
	return true
}

// isCurrent reports whether the fence row is the one of our claim.
func (p *Partition) isCurrent(f lobwriter.Fence) bool {
	return f.Life == p.fence.Life && f.Epoch == p.fence.Epoch && f.ClaimID == p.fence.ClaimID
}

// Renewed answers DoRenew, which was sent at sent. The renewal also reads the
// fence row, so that a database that went back under a quiet owner is noticed.
func (p *Partition) Renewed(now time.Time, turn Turn, sent time.Time, f lobwriter.Fence, err error) {
	if turn != p.turn || !p.claimed() {
		return
	}
	expected := p.renewal.number
	p.renewal = renewal{}
	var fenced *lobwriter.FencedError
	switch {
	case errors.As(err, &fenced) || lobwriter.KindOf(err) == lobwriter.Fenced:
		p.doubt(now, DoubtFenced, "the lease is no longer ours")
		return
	case err != nil:
		p.renewAt = now.Add(p.opt.Renew / 4)
		p.Tick(now)
		return
	case !p.isCurrent(f):
		p.doubt(now, DoubtDatabase, fmt.Sprintf("the fence row has epoch %d, claim %s; ours is epoch %d, claim %s", f.Epoch, f.ClaimID, p.fence.Epoch, p.fence.ClaimID))
		return
	case expected >= 0 && p.flight == nil && p.fence.Flush == expected && f.Flush != expected:
		p.doubt(now, DoubtDatabase, fmt.Sprintf("the fence row expects flush %d, not %d", f.Flush, expected))
		return
	}
	p.leaseEnd, p.renewAt = sent.Add(p.opt.Lease), sent.Add(p.opt.Renew)
	// What is about to be given back is not acknowledged for ever.
	p.ack.again = p.ack.again || !p.ending()
	p.Tick(now)
}
