package consumer

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// reading is what a turn knows about the stream.
type reading struct {
	allowance int64 // bytes of memory that this partition may use now

	start        uint64             // the stream sequence at which the consumer begins
	connection   uint64             // the connection over which the stream was inspected
	last         lobwriter.Position // the last message received
	lastConsumer uint64             // its consumer sequence
	had          uint64             // the highest message known when the stream was last checked
	// received are the messages received above the checkpoint, ascending: the
	// checkpoint may stand on these and no others.
	received []lobwriter.Position
	// kept are the sequences of the last message of each delivery, whose
	// handles the shell keeps for acknowledging, ascending.
	kept []uint64

	fetching, halted bool
	looking          bool
	lookAt           time.Time
	look             Look               // the answer before, for its leaders
	idle             lobwriter.Position // the stream's end when all was read
	idleDue          bool               // an idle checkpoint is to be stored

	ack struct {
		outstanding bool
		again       bool // a receipt or renewal came since the last one failed
	}
	leaving struct {
		why    Doubt
		detail string
	}
	handing bool      // what is held is flushed, then the lease is given back
	handBy  time.Time // by when, unless the member stops
}

// Allow says how many bytes of memory the partition may use from now on.
func (p *Partition) Allow(bytes int64) { p.allowance = bytes }

// Bytes returns the memory that the partition uses: fragments, rows believed,
// positions, and the text of a flush under way.
func (p *Partition) Bytes() int64 {
	return p.batch.Bytes() + p.orphanBytes + p.rows.bytes + int64(cap(p.received))*positionBytes + p.flightBytes
}

// anotherConnection is the detail of a doubt that comes before Reconnected does.
const anotherConnection = "the connection is another one"

// known is the sequence up to which the partition has been read.
func (p *Partition) known() uint64 {
	return max(p.last.Seq, p.idle.Seq, max(p.start, 1)-1)
}

// positionBytes is the size of a lobwriter.Position.
const positionBytes = 16

// read asks for the next messages if there is room for them.
func (p *Partition) read() {
	if p.phase != owning || p.paused || p.fetching || p.looking || p.ending() {
		return
	}
	room := p.allowance - p.Bytes()
	if room < p.opt.MaxMessage {
		p.batch.Relieve(p.allowance / 2)
		// A partition that holds nothing reads all the same: the budget
		// guarantees it one message, and a row cache never stops reading.
		if p.holds() || p.flight != nil {
			return
		}
		p.rows.shrink(0)
		room = p.opt.MaxMessage
	}
	p.fetching = true
	p.do(DoFetch{Turn: p.turn, Bytes: room})
}

// halt ends an outstanding fetch early.
func (p *Partition) halt() {
	if p.fetching && !p.halted {
		p.halted = true
		p.do(DoHalt{Turn: p.turn})
	}
}

// Received brings messages in the order in which they came.
func (p *Partition) Received(now time.Time, turn Turn, batch []Received) {
	if turn != p.turn || p.phase != owning || p.lapsed(now) || len(batch) == 0 {
		return
	}
	// What is not taken is read again by the next claim. Between the loss of
	// the connection and Reconnected the stream may be one without its tail.
	if p.ending() || !p.online {
		return
	}
	for i := range batch {
		if !p.receive(now, &batch[i]) {
			return
		}
	}
	p.kept = append(p.kept, p.last.Seq)
	p.lookAt = time.Time{}
	p.advance(now)
}

// receive takes one message; false: the turn is over.
func (p *Partition) receive(now time.Time, r *Received) bool {
	f := &r.Fragment
	switch {
	case r.Connection != p.connection:
		p.doubt(now, DoubtReconnect, anotherConnection)
		return false
	case r.Consumer != p.lastConsumer+1:
		p.doubt(now, DoubtOrder, fmt.Sprintf("consumer sequence %d after %d", r.Consumer, p.lastConsumer))
		return false
	case f.Seq <= p.known():
		p.doubt(now, DoubtOrder, fmt.Sprintf("stream sequence %d after %d", f.Seq, p.known()))
		return false
	case r.Deliveries != 1:
		p.doubt(now, DoubtOrder, fmt.Sprintf("message %d was delivered %d times", f.Seq, r.Deliveries))
		return false
	case r.Stray != nil:
		p.stop(now, DoubtStray, fmt.Errorf("partition %d stopped: %w", p.opt.Partition, r.Stray))
		return false
	}
	p.lastConsumer = r.Consumer
	p.last = lobwriter.Position{Seq: f.Seq, Time: f.Time}
	p.received = append(p.received, p.last)
	row, known := p.rows.get(f.Key)
	switch {
	case r.Orphan:
		p.batch.Passed(1)
		p.orphans = append(p.orphans, *f)
		p.orphanBytes += orphanSize(f)
	case known && !row.Mark.Before(p.mark(f.Seq)):
		p.batch.Passed(1) // stored already: it counts as received, no more
	default:
		p.batch.Add(now, *f)
	}
	return true
}

func (p *Partition) mark(seq uint64) lobwriter.Mark {
	return lobwriter.Mark{Life: p.fence.Life, Seq: seq}
}

// Fetched answers DoFetch: it has ended after count messages. quiet tells that
// it ended without any because there were none, not because it was halted or
// NATS did not answer. An error is the consumer's own, such as its deletion.
func (p *Partition) Fetched(now time.Time, turn Turn, quiet bool, err error) {
	if turn != p.turn || p.phase != owning {
		return
	}
	p.fetching, p.halted = false, false
	if p.lapsed(now) {
		return
	}
	if err != nil {
		p.doubt(now, DoubtConsumer, err.Error())
		return
	}
	if quiet && !p.looking && !now.Before(p.lookAt) && !p.ending() {
		p.looking = true
		p.do(DoLook{Turn: p.turn, Last: p.last, Read: p.known()})
		return
	}
	p.advance(now)
}

// Looked answers DoLook. An error is no evidence of anything.
func (p *Partition) Looked(now time.Time, turn Turn, l Look, err error) {
	if turn != p.turn || p.phase != owning || !p.looking {
		return
	}
	p.looking = false
	if p.lapsed(now) {
		return
	}
	if err != nil || !p.online {
		p.advance(now)
		return
	}
	before := p.look
	sameLeaders := l.Leader == before.Leader && l.ConsumerLeader == before.ConsumerLeader
	switch known := before.Created != 0; {
	case l.Connection != p.connection:
		p.doubt(now, DoubtReconnect, anotherConnection)
	case l.Created != p.opt.Binding.Created:
		p.doubt(now, DoubtWentBack, "the stream was created again")
	case l.Last.Seq < p.last.Seq || l.Last.Seq < p.fence.Highest.Seq:
		p.doubt(now, DoubtWentBack, fmt.Sprintf("the stream ends at %d, below %d", l.Last.Seq, max(p.last.Seq, p.fence.Highest.Seq)))
	case l.LastTime != 0 && l.LastTime != p.last.Time:
		p.doubt(now, DoubtWentBack, fmt.Sprintf("message %d is another one", p.last.Seq))
	case l.Changed != "":
		p.doubt(now, DoubtConsumer, "the consumer was changed: "+l.Changed)
	case l.Delivered != p.lastConsumer:
		p.doubt(now, DoubtQuiet, fmt.Sprintf("the server delivered %d messages, %d arrived", l.Delivered, p.lastConsumer))
	case known && !sameLeaders:
		p.doubt(now, DoubtLeader, fmt.Sprintf("leader of the stream %q, of the consumer %q; before %q, %q", l.Leader, l.ConsumerLeader, before.Leader, before.ConsumerLeader))
	default:
		p.look = l
		p.lookAt = now.Add(p.opt.Quiet)
		p.retry = firstRetry
		p.atEnd(before, l)
		p.advance(now)
	}
}

// atEnd notes up to where everything has been read: to the stream's last message
// of before it said that nothing of the partition follows. A replicated stream
// vouches for that only one look later, when the leader is still the same: a new
// one might not have had everything yet.
func (p *Partition) atEnd(before, l Look) {
	switch {
	case l.Leader == "" && !l.More:
		p.idle = l.Last
	case l.Leader != "" && l.Leader == before.Leader && !before.More:
		p.idle = before.Last
	}
	p.idleDue = p.idleDue || !l.More
}

// checkpoint returns where the checkpoint may stand once the given works are
// stored: on the last message received below everything else that is held.
func (p *Partition) checkpoint(flushed map[string]bool) lobwriter.Position {
	low, held := p.batch.Oldest()
	lower := func(seq uint64) {
		if !held || seq < low {
			low, held = seq, true
		}
	}
	for _, w := range p.works.held {
		if !flushed[w.group.Key] {
			lower(w.group.First())
		}
	}
	for i := range p.orphans {
		lower(p.orphans[i].Seq)
	}
	if !held {
		if p.idle.Seq > p.last.Seq {
			return p.idle
		}
		return p.last
	}
	i := sort.Search(len(p.received), func(i int) bool { return p.received[i].Seq >= low })
	if i == 0 {
		return lobwriter.Position{}
	}
	return p.received[i-1]
}

// passed forgets the positions that the stored checkpoint has passed.
func (p *Partition) passed(checkpoint lobwriter.Position) {
	i := sort.Search(len(p.received), func(i int) bool { return p.received[i].Seq > checkpoint.Seq })
	if 2*i < len(p.received) {
		p.received = p.received[i:]
		return
	}
	// The room is used again, unless it is much more than was needed last.
	n := copy(p.received, p.received[i:])
	if p.received = p.received[:n]; cap(p.received) > max(8*n, smallReceived) {
		p.received = slices.Clone(p.received)
	}
}

// smallReceived is for how many positions room is kept without need.
const smallReceived = 1024

// acknowledge acknowledges the highest kept message at or below the stored
// checkpoint. The database is the truth: a failure is repeated with the next
// flush or renewal, and is never a doubt.
func (p *Partition) acknowledge() {
	if p.phase != owning || p.ack.outstanding || !p.ack.again {
		return
	}
	ck := p.fence.Checkpoint.Seq
	i := sort.Search(len(p.kept), func(i int) bool { return p.kept[i] > ck })
	if i == 0 {
		return
	}
	p.ack.outstanding, p.ack.again = true, false
	p.do(DoAck{Turn: p.turn, Seq: p.kept[i-1]})
}

// Acked answers DoAck.
func (p *Partition) Acked(now time.Time, turn Turn, seq uint64, err error) {
	if turn != p.turn || p.phase != owning {
		return
	}
	p.ack.outstanding = false
	if err == nil {
		i := sort.Search(len(p.kept), func(i int) bool { return p.kept[i] > seq })
		p.kept = p.kept[i:]
		p.ack.again = true
	}
	if !p.lapsed(now) {
		p.advance(now)
	}
}
