package consumer

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// Flushed answers DoFlush, with a receipt or an error.
func (p *Partition) Flushed(now time.Time, turn Turn, r lobwriter.Receipt, err error) {
	if turn != p.turn || p.phase != owning || p.flight == nil {
		return
	}
	if p.lapsed(now) {
		return
	}
	fl := p.flight
	if err != nil {
		p.unanswered(now, err)
		return
	}
	if len(r.Answers) != len(fl.works) {
		p.doubt(now, DoubtDatabase, fmt.Sprintf("%d answers to %d groups", len(r.Answers), len(fl.works)))
		return
	}
	p.flight, p.flightBytes = nil, 0
	p.fence.Flush = r.Number
	p.fence.Checkpoint = r.Checkpoint
	if fl.flush.Highest.Seq > p.fence.Highest.Seq {
		p.fence.Highest = fl.flush.Highest
	}
	for i, w := range fl.works {
		if !p.answered(now, w, r.Answers[i]) {
			return
		}
	}
	p.works.held = slices.DeleteFunc(p.works.held, func(w *work) bool { return w.stage == settled })
	p.passed(r.Checkpoint)
	p.idleDue = false
	p.ack.again = true
	p.retry = firstRetry
	p.advance(now)
}

// answered takes the answer to one group; false: the turn is over.
func (p *Partition) answered(now time.Time, w *work, a lobwriter.Answer) bool {
	switch a.Status {
	case lobwriter.Appended:
		p.rows.put(w.group.Key, w.sent.After)
		p.settle(w, w.group.Last())
		return true
	case lobwriter.AlreadyThere, lobwriter.Stale:
		return p.learn(now, w, a.Row)
	case lobwriter.Closed:
		reason := batcher.Reason{Code: CodeLate, Text: "the document is complete"}
		if a.Row.State == lobwriter.Quarantined {
			reason = batcher.Reason{Code: CodeQuarantined, Text: "the document is quarantined: " + a.Row.Reason}
		}
		return p.refuse(now, w, a.Row, reason, 0)
	case lobwriter.Rejected:
		return p.refuse(now, w, a.Row, batcher.Reason{Code: a.Code, Text: a.Text}, lobwriter.Quarantined)
	}
	p.doubt(now, DoubtDatabase, fmt.Sprintf("%s to the group of %q", a.Status, w.group.Key))
	return false
}

// learn takes the stored row of a document in place of the believed one, and
// drops what is held of it up to the stored mark.
func (p *Partition) learn(now time.Time, w *work, stored lobwriter.Row) bool {
	believed := w.sent.Believed
	if stored.Mark.Before(believed.Mark) || stored.Mark == believed.Mark && stored.Generation == believed.Generation && !stored.Same(believed) {
		p.doubt(now, DoubtDatabase, fmt.Sprintf("the row of %q is behind what was committed: mark %d, was %d", w.group.Key, stored.Mark.Seq, believed.Mark.Seq))
		return false
	}
	p.rows.put(w.group.Key, stored)
	through := uint64(0)
	if stored.Mark.Life == p.fence.Life {
		through = stored.Mark.Seq
	}
	p.settle(w, through)
	return true
}

// settle ends a work: its members up to through are in the database or in the
// dead letters, the others are due again.
func (p *Partition) settle(w *work, through uint64) {
	w.stage = settled
	p.batch.Settle(w.group.Key, through)
}

// refuse sends a group to the dead letters; false: the turn is over. Letters
// first, then the empty group that records them: a crash in between repeats the
// letters, which are there already.
func (p *Partition) refuse(now time.Time, w *work, stored lobwriter.Row, why batcher.Reason, state lobwriter.State) bool {
	if w.refused != nil {
		p.do(DoReport{Err: fmt.Errorf("partition %d: the database refuses even an empty group of document %q: %s: %s", p.opt.Partition, w.group.Key, why.Code, why.Text)})
		p.drop(now, DoubtRefused, why.Text, lookAgain)
		return false
	}
	p.rows.put(w.group.Key, stored)
	w.row, w.known = stored, true
	w.refused, w.state, w.stage = &why, state, unsaid
	return true
}

// unanswered deals with a flush that brought no receipt.
func (p *Partition) unanswered(now time.Time, err error) {
	var fenced *lobwriter.FencedError
	if errors.As(err, &fenced) {
		f := fenced.Stored
		if p.isCurrent(f) && f.Flush == p.flight.flush.Number+1 {
			// The first try committed and its reply was lost. The same groups
			// go out as a new flush, whose answers bring the stored rows.
			again := *p.flight.flush
			again.Number = f.Flush
			p.fence.Flush, p.fence.Checkpoint = f.Flush, f.Checkpoint
			p.flight.flush = &again
			p.do(DoFlush{Turn: p.turn, Flush: &again})
			return
		}
		p.doubt(now, DoubtFenced, err.Error())
		return
	}
	switch lobwriter.KindOf(err) {
	case lobwriter.Transient, lobwriter.Space:
		p.resendAt = now.Add(firstRetry)
	default:
		p.do(DoReport{Err: fmt.Errorf("partition %d cannot flush: %w", p.opt.Partition, err)})
		p.resendAt = now.Add(reportedRetry)
	}
}

// resend repeats a flush whose outcome is unknown: the identical one, and
// nothing else, until it is answered.
func (p *Partition) resend(now time.Time) {
	if p.phase != owning || p.flight == nil || p.resendAt.IsZero() || now.Before(p.resendAt) {
		return
	}
	p.resendAt = time.Time{}
	p.do(DoFlush{Turn: p.turn, Flush: p.flight.flush})
}
