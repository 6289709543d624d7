package consumer

import (
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
)

// Each test of this file was a bug of Partition first.

// The stream's beginning says nothing about a claim that has read nothing yet:
// what lies below its start was read by others.
func TestStreamCheckBeforeTheFirstMessage(t *testing.T) {
	d := drive(t)
	d.fence.Checkpoint, d.fence.Highest = at(1000), at(1000)
	d.stream.First, d.stream.Last = 500, at(1000)
	d.own()
	d.p.StreamChecked(d.now, d.stream)
	none[DoDrop](d)
}

// The stream may be created again while the consumer is: what was inspected is
// then not what is read (trap 8).
func TestStreamCreatedAgainBeforeTheConsumer(t *testing.T) {
	d := drive(t)
	d.fence.Checkpoint, d.fence.Highest = at(5), at(5)
	d.stream.Last = at(5)
	d.claim()
	d.p.Inspected(d.now, want[DoInspect](d).Turn, d.inspect(), nil)
	d.p.Opened(d.now, want[DoOpen](d).Turn, nil)
	d.stream = StreamFacts{Created: 2000, First: 1}
	d.p.Inspected(d.now, want[DoInspect](d).Turn, Inspection{StreamFacts: d.stream}, nil)
	d.dropped(DoubtIdentity)
}

// An inspection that was made before the connection broke says nothing about
// the stream behind the new one (trap 8).
func TestReconnectDuringInspection(t *testing.T) {
	d := drive(t).claim()
	before := want[DoInspect](d)
	d.p.Connected(d.now, false)
	d.p.Reconnected(d.now, d.stream)
	d.dropped(DoubtReconnect)
	d.p.Inspected(d.now, before.Turn, d.inspect(), nil)
	none[DoOpen](d)
}

// What arrives between the loss of the connection and the word of its return
// may come from a stream that has lost its tail (trap 8).
func TestNothingIsTakenWhileTheConnectionIsInDoubt(t *testing.T) {
	d := drive(t).own()
	d.p.Connected(d.now, false)
	d.receive(fragment(1, "a", "<a/>"))
	none[DoFlush](d)
	if d.p.Bytes() != 0 {
		t.Errorf("%d bytes are held", d.p.Bytes())
	}
}

// A sequence below what the idle partition has seen was given twice (trap 8).
func TestMessageBelowTheIdlePosition(t *testing.T) {
	d := drive(t).own()
	d.stream.Last = at(10)
	d.p.Fetched(d.now, 0, true, nil)
	d.p.Looked(d.now, want[DoLook](d).Turn, Look{StreamFacts: d.stream}, nil)
	d.receive(fragment(8, "a", "<a/>"))
	d.dropped(DoubtOrder)
}

// A consumer never delivers what lies below its start (trap 3).
func TestMessageBelowTheStart(t *testing.T) {
	d := drive(t)
	d.fence.Checkpoint, d.fence.Highest = at(5), at(5)
	d.stream.Last = at(5)
	d.own().receive(fragment(5, "a", "<a/>"))
	d.dropped(DoubtOrder)
}

// A refused group without text or holes has no dead letters to wait for.
func TestRefusedGroupWithoutLetters(t *testing.T) {
	d := drive(t).own()
	d.receive(finalFragment(1, "a", ""))
	f := d.commit(lobwriter.Answer{Status: lobwriter.Rejected, Code: "22001"})
	if len(f.Groups) != 1 || len(f.Groups[0].Chunks) != 0 {
		t.Fatalf("flushed %+v", f.Groups)
	}
	if again := d.commit(); again.Groups[0].After.State != lobwriter.Quarantined || again.Checkpoint != at(1) {
		t.Errorf("then flushed %+v with checkpoint %d", again.Groups, again.Checkpoint.Seq)
	}
}

// Messages without a key that wait for a full dead-letter stream count as
// memory, so that reading stops (budget).
func TestOrphansCountAsMemory(t *testing.T) {
	d := drive(t).own()
	before := d.p.Bytes()
	d.receive(orphan(1, string(make([]byte, 5000))))
	if d.p.Bytes() < before+5000 {
		t.Errorf("%d bytes, %d before", d.p.Bytes(), before)
	}
	d.p.Allow(4000)
	d.p.Fetched(d.now, 0, false, nil)
	none[DoFetch](d)
	a := want[DoLetters](d)
	d.p.Lettered(d.now, 0, a.Batch)
	if d.p.Bytes() >= 5000 {
		t.Errorf("%d bytes after the letters", d.p.Bytes())
	}
	want[DoFetch](d)
}

// Whatever the event, an owner whose lease may have run out does nothing more.
func TestEventsAfterTheLease(t *testing.T) {
	for name, event := range map[string]func(d *driven){
		"reconnected": func(d *driven) {
			d.stream.First = 3 // it would flush what is held first
			d.p.Reconnected(d.now, d.stream)
		},
		"stop":           func(d *driven) { d.p.Stop(d.now) },
		"stream checked": func(d *driven) { d.p.StreamChecked(d.now, d.stream) },
		"connected":      func(d *driven) { d.p.Connected(d.now, true) },
		"acked":          func(d *driven) { d.p.Acked(d.now, 0, 1, nil) },
		"received":       func(d *driven) { d.receive(fragment(3, "a", "c")) },
	} {
		t.Run(name, func(t *testing.T) {
			d := drive(t, func(o *Options) { o.Batch.MaxAge = driveLease * 2 }).own()
			d.receive(fragment(1, "a", "a"), fragment(2, "b", "b"))
			d.pass(driveLease)
			event(d)
			none[DoFlush](d)
			none[DoAck](d)
			d.dropped(DoubtLease)
		})
	}
}

// A lease is given back once, also when a stop is under way and the stream turns
// out to be another one.
func TestReleaseOnce(t *testing.T) {
	d := drive(t).own()
	d.receive(fragment(1, "a", "a"))
	d.p.Stop(d.now)
	d.p.stop(d.now, DoubtIdentity, errNobody)
	want[DoRelease](d)
	none[DoRelease](d)
}

// Behind another connection the stream may be one without its tail, and the word
// of the reconnect may come late: what a turn reads, asks and is told comes over
// one connection (trap 8).
func TestAnotherConnection(t *testing.T) {
	t.Run("message", func(t *testing.T) {
		d := drive(t).own()
		r := fragment(1, "a", "<a/>")
		r.Connection = 1
		d.receive(r)
		d.dropped(DoubtReconnect)
	})
	t.Run("look", func(t *testing.T) {
		d := drive(t).own()
		d.p.Fetched(d.now, 0, true, nil)
		d.stream.Connection = 1
		d.p.Looked(d.now, want[DoLook](d).Turn, Look{StreamFacts: d.stream}, nil)
		d.dropped(DoubtReconnect)
	})
	t.Run("second inspection", func(t *testing.T) {
		d := drive(t).claim()
		d.p.Inspected(d.now, want[DoInspect](d).Turn, d.inspect(), nil)
		d.p.Opened(d.now, want[DoOpen](d).Turn, nil)
		d.stream.Connection = 1
		d.p.Inspected(d.now, want[DoInspect](d).Turn, d.inspect(), nil)
		d.dropped(DoubtReconnect)
	})
}
