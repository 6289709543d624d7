package consumer

import (
	"fmt"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// writing is what a turn knows about the database, and what is on its way there.
type writing struct {
	batch *batcher.Batcher
	rows  rowCache
	works works
	// orphans are messages without a readable key, held until their dead
	// letters are confirmed; letters.orphans of them are being published.
	orphans     []batcher.Fragment
	orphanBytes int64
	letters     struct {
		outstanding bool
		batch       int // numbers the batches of letters
		orphans     int // how many of the orphans are in it
	}
	flight      *flight
	flightBytes int64
	resendAt    time.Time // when to send the flight again; zero: it is under way
}

// works are the groups taken from the batcher and not settled yet, in the order
// in which they were taken.
type works struct {
	held []*work
	// reading are the keys whose rows are being read; nil: none.
	reading []string
}

// work is one group on its way into the database.
type work struct {
	group batcher.Group
	stage stage
	// row is the row believed to be stored. A row that is not known is sent as
	// absent, which the database corrects.
	row   lobwriter.Row
	known bool
	// refused says why the whole group goes to the dead letters; nil: it does
	// not. It then becomes a group of zero-length members.
	refused *batcher.Reason
	// state is the state that the refusal gives the document; 0: none.
	state lobwriter.State
	sent  lobwriter.Group
}

// stage is how far a work has come.
type stage int

const (
	taken     stage = iota // its row may have to be read
	unsaid                 // its dead letters have to be published
	lettering              // they are being published
	ready                  // it may be flushed
	flying                 // it is in the flight
	settled                // it is in the database, or due again
)

// flight is the one flush under way.
type flight struct {
	flush *lobwriter.Flush
	works []*work
}

// flightCopies is how often the text of a flush under way is in memory beside
// its fragments: its chunks, the driver's encoding of them, and what the driver
// writes to the connection.
const flightCopies = 3

// guessBelow is the size of a group, in bytes of text, below which an unknown
// document is sent as absent at once: sending so little twice costs less than
// asking first.
const guessBelow = 4 << 10

func newWriting(o Options) writing {
	return writing{batch: batcher.New(o.Batch), rows: newRowCache(o.Rows)}
}

// holds reports whether anything is held that is not in the database.
func (p *Partition) holds() bool {
	return p.batch.Documents() > 0 || len(p.works.held) > 0 || len(p.orphans) > 0
}

// write brings what is due on its way, as far as it can go at this moment. One
// flush is under way at a time, so that what arrives meanwhile goes into the
// next.
func (p *Partition) write(now time.Time) {
	if p.phase != owning || p.flight != nil || p.works.reading != nil {
		return
	}
	p.take(now)
	if p.know() {
		p.letter()
		p.send()
	}
}

// take takes due groups from the batcher, as many as fit into a flush beside
// those that wait already.
func (p *Partition) take(now time.Time) {
	room := batcher.Limit{Documents: p.opt.Flush.Documents, Bytes: p.opt.Flush.Bytes}
	for _, w := range p.works.held {
		if w.stage == taken || w.stage == ready {
			room.Documents--
			room.Bytes -= w.group.Bytes
		}
	}
	if room.Documents <= 0 || room.Bytes <= 0 {
		return
	}
	for _, g := range p.batch.Take(now, room) {
		w := &work{group: g}
		w.row, w.known = p.rows.get(g.Key)
		p.works.held = append(p.works.held, w)
	}
}

// know makes sure that the rows of the groups taken are believed; false: they
// are being read. If one has to be read, all unknown ones are, in one query.
func (p *Partition) know() bool {
	var unknown []string
	must := false
	for _, w := range p.works.held {
		if w.stage == taken && !w.known {
			unknown = append(unknown, w.group.Key)
			// A dead letter names the generation, so it needs the row.
			must = must || w.group.Bytes >= guessBelow || w.hasHole()
		}
	}
	if must {
		p.works.reading = unknown
		p.do(DoRead{Turn: p.turn, Keys: unknown})
		return false
	}
	for _, w := range p.works.held {
		if w.stage != taken {
			continue
		}
		w.stage = ready
		if w.hasHole() {
			w.stage = unsaid
		}
	}
	return true
}

func (w *work) hasHole() bool {
	for i := range w.group.Fragments {
		if w.group.Fragments[i].Hole != nil {
			return true
		}
	}
	return false
}

// RowsRead answers DoRead with the rows in the order of the keys.
func (p *Partition) RowsRead(now time.Time, turn Turn, rows []lobwriter.Row, err error) {
	if turn != p.turn || p.phase != owning || p.works.reading == nil {
		return
	}
	keys := p.works.reading
	p.works.reading = nil
	if p.lapsed(now) {
		return
	}
	if err != nil || len(rows) != len(keys) {
		p.doubt(now, DoubtDatabase, fmt.Sprintf("rows cannot be read: %v", err))
		return
	}
	read := make(map[string]lobwriter.Row, len(keys))
	for i, k := range keys {
		read[k] = rows[i]
		p.rows.put(k, rows[i])
	}
	for _, w := range p.works.held {
		if row, ok := read[w.group.Key]; ok && w.stage == taken {
			w.row, w.known = row, true
		}
	}
	p.advance(now)
}

// orphanSize is the memory of an orphan: its data, and a Fragment in a slice that
// doubles.
func orphanSize(f *batcher.Fragment) int64 { return int64(len(f.Data)) + 185 }

// letter has the dead letters published that must be confirmed before the flush
// that records their holes.
func (p *Partition) letter() {
	if p.letters.outstanding {
		return
	}
	var letters []Refused
	for i := range p.orphans {
		letters = append(letters, Refused{Fragment: p.orphans[i], Reason: *p.orphans[i].Hole})
	}
	p.letters.orphans = len(p.orphans)
	for _, w := range p.works.held {
		if w.stage != unsaid {
			continue
		}
		before := len(letters)
		generation := max(w.row.Generation, 1)
		for _, f := range w.group.Fragments {
			switch {
			case f.Hole != nil:
				letters = append(letters, Refused{Fragment: f, Generation: generation, Reason: *f.Hole})
			case w.refused != nil && len(f.Data) > 0:
				letters = append(letters, Refused{Fragment: f, Generation: generation, Reason: *w.refused})
			}
		}
		w.stage = lettering
		if len(letters) == before { // empty fragments are counted, and have nothing to say
			w.stage = ready
		}
	}
	if len(letters) > 0 {
		p.letters.outstanding = true
		p.letters.batch++
		p.do(DoLetters{Turn: p.turn, Batch: p.letters.batch, Letters: letters})
	}
}

// Lettered answers DoLetters: every letter of the batch is confirmed.
func (p *Partition) Lettered(now time.Time, turn Turn, batch int) {
	if turn != p.turn || p.phase != owning || !p.letters.outstanding || batch != p.letters.batch {
		return
	}
	p.letters.outstanding = false
	for i := range p.orphans[:p.letters.orphans] {
		p.orphanBytes -= orphanSize(&p.orphans[i])
	}
	p.orphans = p.orphans[p.letters.orphans:]
	for _, w := range p.works.held {
		if w.stage == lettering {
			w.stage = ready
		}
	}
	if !p.lapsed(now) {
		p.advance(now)
	}
}

// send sends the groups that are ready, or none when only the checkpoint has to
// move: an idle partition's must not fall behind the stream's retention.
func (p *Partition) send() {
	fl := &flight{}
	flushed := map[string]bool{}
	bytes := 0
	for _, w := range p.works.held {
		if w.stage != ready || len(fl.works) == p.opt.Flush.Documents {
			continue
		}
		size := w.group.Bytes
		if w.refused != nil {
			size = 0
		}
		if len(fl.works) > 0 && bytes+size > p.opt.Flush.Bytes {
			continue
		}
		bytes += size
		fl.works = append(fl.works, w)
		flushed[w.group.Key] = true
	}
	ck := p.checkpoint(flushed)
	if ck.Seq <= p.fence.Checkpoint.Seq {
		ck = lobwriter.Position{}
	}
	if len(fl.works) == 0 {
		moves := ck.Seq != 0 && (p.idleDue || p.ending()) && !p.holds()
		p.idleDue = p.idleDue && p.holds()
		if !moves {
			return
		}
	}
	fl.flush = &lobwriter.Flush{
		Partition: p.opt.Partition,
		Life:      p.fence.Life, Epoch: p.fence.Epoch, ClaimID: p.fence.ClaimID, Number: p.fence.Flush,
		Checkpoint: ck, Highest: p.highest(fl.works, ck),
	}
	for _, w := range fl.works {
		w.stage = flying
		w.sent = p.compose(w)
		fl.flush.Groups = append(fl.flush.Groups, w.sent)
	}
	p.flight, p.flightBytes = fl, flightCopies*int64(bytes)
	p.do(DoFlush{Turn: p.turn, Flush: fl.flush})
}

// highest returns the highest message that the flush stores or passes. A
// message that was only read is no witness: the stream may lose it before
// anybody stored it, and nothing is wrong then.
func (p *Partition) highest(works []*work, checkpoint lobwriter.Position) lobwriter.Position {
	high := checkpoint
	for _, w := range works {
		if last := w.group.Fragments[len(w.group.Fragments)-1]; last.Seq > high.Seq {
			high = lobwriter.Position{Seq: last.Seq, Time: last.Time}
		}
	}
	if high.Seq <= p.fence.Highest.Seq {
		return lobwriter.Position{}
	}
	return high
}

// compose makes what the store gets of a work.
func (p *Partition) compose(w *work) lobwriter.Group {
	members := w.group.Fragments
	var chunks [][]byte
	if w.refused == nil {
		chunks = lobwriter.Cut(func(yield func([]byte) bool) {
			for i := range members {
				if !yield(members[i].Text()) {
					return
				}
			}
		}, w.group.Bytes, p.opt.Flush.ChunkBytes)
	} else {
		members = w.zeroLength()
	}
	after := w.row.Append(p.fence.Life, p.opt.Flush.Unit, members, chunks)
	if w.state != 0 {
		after.State = w.state
	}
	return lobwriter.Group{
		Key: w.group.Key, Believed: w.row, After: after,
		First: w.group.First(), Last: w.group.Last(), Chunks: chunks,
	}
}

// zeroLength returns the members of a refused group as its document gets them:
// holes where it is being quarantined or is, late ones where it is complete.
func (w *work) zeroLength() []batcher.Fragment {
	out := make([]batcher.Fragment, len(w.group.Fragments))
	for i, f := range w.group.Fragments {
		out[i] = batcher.Fragment{Key: f.Key, Seq: f.Seq, Time: f.Time, Hole: f.Hole}
		if f.Hole == nil && w.row.State != lobwriter.Complete {
			out[i].Hole = w.refused
		}
	}
	return out
}
