package consumer

import (
	"strings"
	"testing"
)

// smallMessages limits the size of the stream's messages, and with it the least
// memory that a consumer needs.
func (r *rig) smallMessages(size int32) {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), r.spec.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgSize = size
	if _, err := r.js.UpdateStream(r.t.Context(), cfg); err != nil {
		r.t.Fatal(err)
	}
}

// TestLeastMemory: with as little memory as Run accepts, messages as large as
// the stream takes get through.
func TestLeastMemory(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	r := newRig(t, 2)
	r.smallMessages(size)
	r.cfg.Memory = 2*2*(size+messageOverhead) - 1
	r.start()
	if err := r.ends(10e9); err == nil || !strings.Contains(err.Error(), "raise memory") {
		t.Errorf("%v with too little memory", err)
	}
	r.cfg.Memory++
	r.start()
	for i := range 40 {
		r.publish(strings.Repeat("k", 1+i%4), []byte(strings.Repeat("x", size-100)), nil)
	}
	r.exact()
	r.halt()
	r.acked()
}

// TestBorrowedMemory: one busy partition of eight uses what the others do not
// need.
func TestBorrowedMemory(t *testing.T) {
	t.Parallel()
	b := newBudget(160, 8)
	for i := range 8 {
		b.allowance(i, 0, true)
	}
	if got := b.allowance(3, 90, true); got != 90 {
		t.Errorf("the only busy partition may use %d, want its 10 and all of the shared 80", got)
	}
	if got := b.allowance(4, 0, true); got != 10 {
		t.Errorf("another may use %d, want its guaranteed 10", got)
	}
	if got := b.allowance(3, 90, false); got != 10 {
		t.Errorf("with failing flushes it may use %d, want 10", got)
	}
	b.release(3)
	if got := b.allowance(4, 0, true); got != 90 {
		t.Errorf("after the release another may use %d, want 90", got)
	}
}

// TestRaisedMessageSize: an operator raises the stream's largest message while
// lobsink runs with a budget for smaller ones. They are read all the same.
func TestRaisedMessageSize(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.smallMessages(256 << 10)
	r.cfg.Memory = 4 << 20
	r.start()
	r.stored("k", r.publish("k", []byte("<a>"), nil))
	r.smallMessages(-1)
	for range 2 {
		r.publish("k", []byte(strings.Repeat("x", 6<<20)), nil)
		r.publish("k", []byte("</a>"), nil)
	}
	r.exact()
	r.halt()
	if n := r.epoch(); n != 1 {
		t.Errorf("claimed %d times, want once", n)
	}
	r.acked()
}
