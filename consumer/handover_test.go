package consumer

import (
	"errors"
	"testing"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

func held() error {
	return &lobwriter.Error{Kind: lobwriter.Held, Op: "claim", Err: errors.New("somebody else holds it")}
}

// TestAssign: a partition that is not this member's to own claims nothing; one
// that was is flushed before its lease is given back.
func TestAssign(t *testing.T) {
	t.Run("never claimed", func(t *testing.T) {
		d := drive(t)
		d.p.Assign(d.now, false)
		d.p.Connected(d.now, true)
		d.p.Tick(d.pass(time.Hour).now)
		none[DoClaim](d)
		if at := d.p.Deadline(); !at.IsZero() {
			t.Errorf("it wants to do something at %v", at)
		}
		d.p.Assign(d.now, true)
		want[DoClaim](d)
	})
	t.Run("handed over after a flush", func(t *testing.T) {
		d := drive(t).own().receive(fragment(1, "a", "text"))
		d.commit()
		d.receive(fragment(2, "a", "more"))
		f := want[DoFlush](d).Flush
		d.p.Assign(d.now, false)
		none[DoRelease](d)
		d.receive(fragment(3, "a", "what comes now is read by the next owner"))
		d.answer(f)
		d.p.Acked(d.now, d.p.Turn(), 1, nil)
		d.p.Acked(d.now, d.p.Turn(), 2, nil)
		none[DoFlush](d)
		if a := want[DoRelease](d); a.Claim.Fence.Epoch != d.fence.Epoch {
			t.Errorf("released %+v", a.Claim)
		}
		d.p.Released(d.now, d.p.Turn())
		d.dropped("")
		d.p.Tick(d.pass(time.Hour).now)
		none[DoClaim](d)
		if d.p.Ended() {
			t.Error("it has ended, and might be assigned again")
		}
		d.p.Assign(d.now, true)
		want[DoClaim](d)
	})
	t.Run("assigned again while it hands over", func(t *testing.T) {
		d := drive(t).own().receive(fragment(1, "a", "text"))
		f := want[DoFlush](d).Flush
		d.p.Assign(d.now, false)
		d.p.Assign(d.now, true)
		d.answer(f)
		d.p.Acked(d.now, d.p.Turn(), 1, nil)
		want[DoRelease](d)
		d.p.Released(d.now, d.p.Turn())
		want[DoClaim](d)
	})
	t.Run("while it claims", func(t *testing.T) {
		for _, before := range []func(d *driven){
			func(d *driven) {
				d.p.Connected(d.now, true)
				a := want[DoClaim](d)
				d.p.Assign(d.now, false)
				d.p.Claimed(d.now, a.Turn, d.now, lobwriter.Claim{Fence: d.fence}, nil)
			},
			func(d *driven) { d.claim().p.Assign(d.now, false) },
			func(d *driven) {
				d.claim().p.Inspected(d.now, d.p.Turn(), d.inspect(), nil)
				d.p.Assign(d.now, false)
			},
		} {
			d := drive(t)
			before(d)
			want[DoRelease](d)
			d.p.Released(d.now, d.p.Turn())
			d.p.Tick(d.pass(time.Hour).now)
			none[DoClaim](d)
		}
	})
	t.Run("a claim that fails", func(t *testing.T) {
		d := drive(t)
		d.p.Connected(d.now, true)
		a := want[DoClaim](d)
		d.p.Assign(d.now, false)
		d.p.Claimed(d.now, a.Turn, d.now, lobwriter.Claim{}, held())
		d.p.Tick(d.pass(time.Hour).now)
		none[DoClaim](d)
		none[DoRelease](d)
	})
	t.Run("no answer to a flush", func(t *testing.T) {
		d := drive(t).own().receive(fragment(1, "a", "text"))
		want[DoFlush](d)
		d.p.Assign(d.now, false)
		d.p.Tick(d.pass(driveLease).now)
		d.dropped(DoubtLease)
		d.p.Tick(d.pass(time.Hour).now)
		none[DoClaim](d)
	})
}

// TestHandoverEnds: a partition is handed over although nobody takes
// acknowledgements, and although flushing takes too long.
func TestHandoverEnds(t *testing.T) {
	t.Run("no answer to an acknowledgement", func(t *testing.T) {
		d := drive(t).own().receive(fragment(1, "a", "text"))
		d.commit()
		want[DoAck](d)
		renewed := func() {
			d.p.Tick(d.pass(3 * time.Second).now)
			d.p.Renewed(d.now, want[DoRenew](d).Turn, d.now, d.fence, nil)
		}
		renewed() // after which it is tried once more
		d.p.Assign(d.now, false)
		d.p.Acked(d.now, d.p.Turn(), 1, errNobody)
		want[DoAck](d)
		renewed()
		d.p.Acked(d.now, d.p.Turn(), 1, errNobody)
		none[DoAck](d)
		want[DoRelease](d)
	})
	t.Run("dead letters that cannot be published", func(t *testing.T) {
		d := drive(t).own().receive(orphan(1, "nobody's"))
		d.p.Assign(d.now, false)
		for range 3 {
			d.p.Tick(d.pass(3 * time.Second).now)
			a := want[DoRenew](d)
			d.p.Renewed(d.now, a.Turn, d.now, d.fence, nil)
		}
		none[DoRelease](d)
		d.p.Tick(d.pass(time.Second).now)
		want[DoRelease](d)
		d.dropped(DoubtHandover)
		d.p.Tick(d.pass(time.Hour).now)
		none[DoClaim](d)
	})
}

// TestGivesBack: whenever a member stops, or is not to own the partition any
// more, it gives back the lease that a dropped turn left, once.
func TestGivesBack(t *testing.T) {
	doubted := func(t *testing.T) *driven {
		d := drive(t).own()
		d.p.Fetched(d.now, d.p.Turn(), false, errors.New("consumer deleted"))
		d.dropped(DoubtConsumer)
		none[DoRelease](d)
		return d
	}
	t.Run("stopped after a doubt", func(t *testing.T) {
		d := doubted(t)
		d.p.Stop(d.now)
		if a := want[DoRelease](d); a.Claim.Fence.Epoch != d.fence.Epoch || a.Claim.Fence.ClaimID != d.fence.ClaimID {
			t.Errorf("released %+v", a.Claim)
		}
		if d.p.Ended() {
			t.Error("ended before the lease was given back")
		}
		d.p.Released(d.now, d.p.Turn())
		if !d.p.Ended() {
			t.Error("not ended")
		}
	})
	t.Run("another one's after a doubt", func(t *testing.T) {
		d := doubted(t)
		d.p.Assign(d.now, false)
		want[DoRelease](d)
		d.p.Released(d.now, d.p.Turn())
		d.p.Stop(d.now)
		none[DoRelease](d)
		if !d.p.Ended() {
			t.Error("not ended")
		}
	})
	t.Run("stopped while it claims again", func(t *testing.T) {
		d := doubted(t)
		d.p.Tick(d.pass(time.Second).now)
		a := want[DoClaim](d)
		d.p.Stop(d.now)
		d.p.Claimed(d.now, a.Turn, d.now, lobwriter.Claim{}, errNobody)
		want[DoRelease](d)
		d.p.Released(d.now, d.p.Turn())
		if !d.p.Ended() {
			t.Error("not ended")
		}
	})
	t.Run("not what somebody else has taken", func(t *testing.T) {
		d := doubted(t)
		d.p.Tick(d.pass(time.Second).now)
		a := want[DoClaim](d)
		d.p.Claimed(d.now, a.Turn, d.now, lobwriter.Claim{}, held())
		d.p.Stop(d.now)
		none[DoRelease](d)
		if !d.p.Ended() {
			t.Error("not ended")
		}
	})
	t.Run("stopped while it hands over", func(t *testing.T) {
		d := drive(t).own()
		d.p.Assign(d.now, false)
		want[DoRelease](d)
		d.p.Stop(d.now)
		none[DoRelease](d)
		d.p.Released(d.now, d.p.Turn())
		if !d.p.Ended() {
			t.Error("not ended")
		}
	})
	t.Run("not one that only an operator can help", func(t *testing.T) {
		d := drive(t).claim()
		in := d.inspect()
		in.Created++
		d.p.Inspected(d.now, want[DoInspect](d).Turn, in, nil)
		want[DoRelease](d)
		d.dropped(DoubtIdentity)
		d.p.Stop(d.now)
		none[DoRelease](d)
	})
}
