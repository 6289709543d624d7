package consumer

import (
	"errors"
	"slices"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// exState is one state of the small case. States share what did not change
// between them: a step copies an owner before it touches it.
type exState struct {
	stream    []batcher.Fragment // sequence - 1 is the index
	consumers []exConsumer
	owners    [2]*exOwner
	// late are requests whose sender does not wait for them any more. Each may
	// still arrive, at any time or never.
	late []exRequest

	db      lobtest.Snapshot
	fence   lobwriter.Fence // as stored
	current exClaim         // the claim that is current, as the search counts it
	// dbNow is the clock of the database. It moves when a lease runs out.
	dbNow  int64
	backup *exBackup

	left exBudget
}

// exClaim is the truth about claim and lease.
type exClaim struct {
	claimID, memberID string
	until             int64 // the lease
}

// exBackup is a state of the database that it can go back to.
type exBackup struct {
	db      lobtest.Snapshot
	current exClaim
}

// exOwner is a member with its one Partition. It has no logic of its own.
type exOwner struct {
	alive, frozen bool
	lost          bool // its connection is another one, and it has not been told
	memberID      string
	now           time.Time // its clock
	part          *Partition
	connection    uint64

	// What follows belongs to the turn.
	claimID      string
	consumerName string
	leaseEnd     time.Time
	requests     []exRequest // those that it waits for
	fetching     bool
	inbox        []Received       // arrived for the fetch under way
	committed    uint64           // the highest checkpoint committed under its claim
	unknown      *lobwriter.Flush // the flush whose outcome is unknown
}

// exRequest is a request under way. A flush first arrives, then its reply does;
// others do both at once, for what they bring changes nothing but their sender.
type exRequest struct {
	action       Action
	memberID     string
	claimID      string // of a claim that is requested
	consumerName string
	arrived      bool
	receipt      lobwriter.Receipt
	err          error
}

// exConsumer is a durable pull consumer: AckAll, one queue of pulls whoever sent
// them, deliveries numbered from 1.
type exConsumer struct {
	consumerName string
	next         uint64
	sent         []uint64 // stream sequences; the index is the consumer sequence - 1
	again        []uint64 // to be delivered again
	floor        int      // so many deliveries are acknowledged
	pulls        []exPull
	edited       bool
}

// exPull is an outstanding pull: of an owner that waits, or of a dead inbox. The
// server cannot tell one from the other.
type exPull struct {
	owner int
	dead  bool
}

// exBudget is how often each fault may still happen.
type exBudget [exFaults]int8

// The faults.
const (
	faultCrash     = iota // an owner's process ends without a word
	faultFreeze           // an owner stands still until its lease has run out
	faultExpire           // the lease runs out under an owner that goes on
	faultLose             // a request or its reply is lost, or is late
	faultDrop             // a delivered message does not arrive
	faultRedeliver        // the consumer is edited: what is not acknowledged comes again
	faultDelete           // the consumer is deleted by hand
	faultCut              // an owner's connection breaks and is back at once
	faultTail             // the server loses its tail and gives the sequences to others
	faultRewind           // the database goes back to an earlier state
	faultGiveUp           // an owner is to give the partition up, for another member; no fault, but as rare
	faultStop             // an owner is asked to stop; likewise
	exFaults
)

// exLease and exRenew are so long that no wait of a Partition comes near them:
// what runs out does so because the search says so.
const (
	exLease = 100_000 * time.Hour
	exRenew = 1_000 * time.Hour
)

const exDatabaseNow = int64(1 << 60)

func (s *exState) last() uint64 { return uint64(len(s.stream)) }

// at is the position of a message; its time is 0 where there is none.
func (s *exState) at(seq uint64) lobwriter.Position {
	if seq == 0 || seq > s.last() {
		return lobwriter.Position{Seq: seq}
	}
	return lobwriter.Position{Seq: seq, Time: s.stream[seq-1].Time}
}

func (s *exState) facts(o *exOwner) StreamFacts {
	return StreamFacts{Created: exCreated, First: 1, Last: s.at(s.last()), Connection: o.connection}
}

const exCreated = 7

// mine reports whether a message is of the partition.
func mine(f *batcher.Fragment) bool { return f.Key != "" }

// consumer returns the consumer of a name; nil: there is none.
func (s *exState) consumer(name string) *exConsumer {
	for i := range s.consumers {
		if s.consumers[i].consumerName == name {
			return &s.consumers[i]
		}
	}
	return nil
}

// open creates a consumer. A new claim has a name of its own; where it has not,
// the one there is begins anew, and the pulls that wait on it still do.
func (s *exState) open(name string, from uint64) {
	fresh := exConsumer{consumerName: name, next: from}
	if c := s.consumer(name); c != nil {
		fresh.pulls = c.pulls
		*c = fresh
		return
	}
	s.consumers = append(s.consumers, fresh)
}

// remove deletes consumers. Whoever waits on one of them is told.
func (s *exState) remove(x *explorer, which func(*exConsumer) bool) {
	for _, c := range slices.Clone(s.consumers) {
		if !which(&c) {
			continue
		}
		s.consumers = slices.DeleteFunc(s.consumers, func(o exConsumer) bool { return o.consumerName == c.consumerName })
		for _, p := range c.pulls {
			if !p.dead {
				x.fetched(s, p.owner, errConsumerDeleted)
			}
		}
	}
}

// pending is the next message that a consumer delivers; 0: none.
func (c *exConsumer) pending(s *exState) uint64 {
	if len(c.again) > 0 {
		return c.again[0]
	}
	for seq := c.next; seq <= s.last(); seq++ {
		if mine(&s.stream[seq-1]) {
			return seq
		}
	}
	return 0
}

// more reports whether messages follow: by the consumer's own count, or by what
// the stream stores above a sequence.
func (c *exConsumer) more(s *exState, above uint64) bool {
	for seq := above + 1; seq <= s.last(); seq++ {
		if mine(&s.stream[seq-1]) {
			return true
		}
	}
	return c.pending(s) != 0
}

// deliver takes the next message out, as from consumer sequence len(sent).
func (c *exConsumer) deliver(s *exState) Received {
	seq := c.pending(s)
	if len(c.again) > 0 {
		c.again = c.again[1:]
	} else {
		c.next = seq + 1
	}
	c.sent = append(slices.Clip(c.sent), seq)
	r := Received{Fragment: s.stream[seq-1], Consumer: uint64(len(c.sent))}
	for _, before := range c.sent {
		if before == seq {
			r.Deliveries++
		}
	}
	return r
}

// ack acknowledges everything up to the last delivery of a message.
func (c *exConsumer) ack(seq uint64) {
	for i := len(c.sent); i > c.floor; i-- {
		if c.sent[i-1] == seq {
			c.floor = i
		}
	}
}

var errExLost = errors.New("no answer in time")

// mismatched reports whether the stream is another one than the database was fed
// from, as far as what is stored shows it.
func (s *exState) mismatched() bool {
	other := func(p lobwriter.Position) bool { return p.Seq != 0 && s.at(p.Seq) != p }
	return other(s.fence.Checkpoint) || other(s.fence.Highest)
}

// held reports whether the lease keeps a member from claiming.
func (s *exState) held(memberID string) bool {
	return s.current.until > s.dbNow && s.current.memberID != memberID
}

// holder returns the owner that lives and believes in the current claim.
func (s *exState) holder() *exOwner {
	for _, o := range s.owners {
		if o.alive && !o.frozen && o.claimID != "" && o.claimID == s.current.claimID {
			return o
		}
	}
	return nil
}

// loseTail has the server come back without its last messages.
func (x *explorer) loseTail(n *exState, keep uint64) {
	x.note("the server loses everything after message %d", keep)
	n.stream = slices.Clip(n.stream[:keep])
	for c := range n.consumers {
		con := &n.consumers[c]
		con.next = min(con.next, keep+1)
		con.again = nil
	}
	for i := range n.owners {
		x.disconnect(n, i)
	}
	x.checkStored(n)
}

// publish adds a message that is like no other.
func (x *explorer) publish(n *exState) {
	seq := n.last() + 1
	id := int64(seq) + 10*int64(x.cfg.faults[faultTail]-n.left[faultTail])
	f := batcher.Fragment{Seq: seq, Time: id, Data: []byte{byte('a' + id)}}
	if key := x.cfg.documents[seq-1 : seq]; key != "-" {
		f.Key = key
	}
	n.stream = append(slices.Clip(n.stream), f)
	x.checkStored(n)
}
