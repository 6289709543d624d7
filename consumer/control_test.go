package consumer

import (
	"testing"
	"time"
)

// TestPause: a paused partition flushes what it holds and reads nothing more,
// also when it is claimed again, until it is resumed.
func TestPause(t *testing.T) {
	d := drive(t, func(o *Options) { o.Batch.MaxAge = time.Hour }).own()
	d.receive(fragment(1, "a", "x"))
	d.p.Pause(d.now, true)
	want[DoHalt](d)
	d.commit()
	d.p.Fetched(d.now, 0, false, nil)
	none[DoFetch](d)
	d.pass(2 * time.Second)
	none[DoFetch](d)
	d.p.Pause(d.now, false)
	want[DoFetch](d)
}

// TestHurry: what is held is flushed at once, what comes later waits as before.
func TestHurry(t *testing.T) {
	d := drive(t, func(o *Options) { o.Batch.MaxAge = time.Hour }).own()
	d.receive(fragment(1, "a", "x"))
	none[DoFlush](d)
	d.p.Hurry(d.now)
	d.commit()
	d.receive(fragment(2, "a", "y"))
	none[DoFlush](d)
}
