package consumer

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/lobwriter"
)

// deadLetters lists what is in the dead-letter stream.
func (r *rig) deadLetters() []Record {
	r.t.Helper()
	var all []Record
	err := NewDeadLetters(r.js, r.spec.Name).List(r.t.Context(), Filter{}, func(rec Record) error {
		all = append(all, rec)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

func final() nats.Header { return nats.Header{HeaderFinal: {"true"}} }

// TestHoles: what breaks a rule is in the dead letters whole, its document says
// so, and what comes after it is stored (O23, O25, O57, O61).
func TestHoles(t *testing.T) {
	r := newRig(t, 2)
	r.cfg.MaxFragment = 100
	r.start()
	r.publish("k", []byte("<a>"), nil)
	bad := map[uint64][]byte{}
	for _, data := range []string{"x\x00y", "caf\xe9", strings.Repeat("z", 101)} {
		bad[r.publish("k", []byte(data), nats.Header{"Custom": {"kept"}})] = []byte(data)
	}
	bad[r.publish("k", []byte("header"), nats.Header{HeaderIndex: {"minus one"}})] = []byte("header")
	r.publish("neighbour", []byte("fine"), final())
	last := r.publish("k", []byte("</a>"), final())
	r.stored("k", last)
	r.stored("neighbour", last-1)
	r.halt()

	text, d, _ := r.text("k")
	if text != "<a></a>" || d.State != lobwriter.Incomplete || d.Holes != 4 || d.Fragments != 6 || d.Reason == "" {
		t.Errorf("got %q, %+v", text, d.Row)
	}
	if text, d, _ := r.text("neighbour"); text != "fine" || d.State != lobwriter.Complete {
		t.Errorf("neighbour: %q, %s", text, d.State)
	}
	letters := r.deadLetters()
	if len(letters) != len(bad) {
		t.Fatalf("%d dead letters, want %d", len(letters), len(bad))
	}
	for _, l := range letters {
		data, err := NewDeadLetters(r.js, r.spec.Name).Payload(t.Context(), l)
		if err != nil || string(data) != string(bad[l.Sequence]) {
			t.Errorf("sequence %d: %q, %v; want %q", l.Sequence, data, err, bad[l.Sequence])
		}
		if l.Key == nil || *l.Key != "k" || l.Code == "" || l.Generation != 1 {
			t.Errorf("record %+v", l)
		}
		if l.Code == CodeNUL && l.Headers["Custom"][0] != "kept" {
			t.Errorf("headers of the original are gone: %v", l.Headers)
		}
	}
	r.acked()
}

// TestOrphans: a message without a readable key belongs to no document; the
// checkpoint passes it once its dead letter is confirmed (O63, trap 10).
func TestOrphans(t *testing.T) {
	for _, partitions := range []int{1, 4} {
		r := newRig(t, partitions)
		tokens := []string{"a%2Db", "%61", "a%2fb", "caf\u00e9", "a%", "%00", "%FF", strings.Repeat("k", 256)}
		for _, token := range tokens {
			if _, err := r.js.Publish(t.Context(), "fragments."+token, []byte("lost?")); err != nil {
				t.Fatalf("%q: %v", token, err)
			}
		}
		last := r.publish("a-b", []byte("good"), nil)
		r.start()
		r.stored("a-b", last)
		r.eventually("dead letters", func() bool { return len(r.deadLetters()) == len(tokens) })
		r.halt()
		for _, l := range r.deadLetters() {
			if l.Code != CodeBadKey || l.Key != nil || l.Generation != 0 || l.Bytes != 5 {
				t.Errorf("record %+v", l)
			}
		}
		r.acked()
	}
}

// TestLate: what comes after completion goes to the dead letters and is
// counted; a document stays what it was, also when both are in one delivery.
func TestLate(t *testing.T) {
	r := newRig(t, 1)
	r.publish("k", []byte("all"), final())
	late := r.publish("k", []byte("late"), nil)
	r.publish("k", nil, nil)
	last := r.publish("k", []byte("later"), final())
	r.start()
	r.stored("k", last)
	r.halt()
	text, d, _ := r.text("k")
	if text != "all" || d.State != lobwriter.Complete || d.Late != 3 {
		t.Errorf("got %q, %+v", text, d.Row)
	}
	letters := r.deadLetters()
	if len(letters) != 2 || letters[0].Sequence != late || letters[0].Code != CodeLate || letters[1].Sequence != last {
		t.Errorf("letters %+v", letters)
	}
	r.acked()
}

// TestEmpty: an empty fragment is recorded and adds nothing (O11); one that is
// nothing but headers may be final.
func TestEmpty(t *testing.T) {
	r := newRig(t, 1)
	r.start()
	first := r.publish("k", nil, nil)
	r.stored("k", first)
	if text, d, _ := r.text("k"); text != "" || d.Fragments != 1 || d.State != lobwriter.Open {
		t.Errorf("after an empty fragment: %q, %+v", text, d.Row)
	}
	r.publish("k", []byte("<a/>"), nil)
	last := r.publish("k", nil, final())
	r.stored("k", last)
	r.halt()
	if text, d, _ := r.text("k"); text != "<a/>" || d.Fragments != 3 || d.State != lobwriter.Complete {
		t.Errorf("in the end: %q, %+v", text, d.Row)
	}
	r.acked()
}

// TestFullDeadStream: a dead-letter stream that takes nothing holds the
// checkpoint and loses nothing; other documents go on.
func TestFullDeadStream(t *testing.T) {
	r := newRig(t, 1)
	dead, err := r.js.Stream(t.Context(), DeadStream(r.spec.Name))
	if err != nil {
		t.Fatal(err)
	}
	cfg := dead.CachedInfo().Config
	cfg.MaxMsgs = 1
	if _, err := r.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r.start()
	bad := r.publish("k", []byte("\xff"), nil)
	other := r.publish("other", []byte("goes on"), nil)
	r.stored("other", other)
	if f, err := r.store.Fence(t.Context(), 0); err != nil || f.Checkpoint.Seq >= bad {
		t.Errorf("checkpoint %d passed a fragment that is nowhere (%v)", f.Checkpoint.Seq, err)
	}
	cfg.MaxMsgs = -1
	if _, err := r.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r.stored("k", bad)
	r.halt()
	if l := r.deadLetters(); len(l) != 1 || l[0].Sequence != bad {
		t.Errorf("letters %+v", l)
	}
	r.acked()
}

// TestDuplicates: the same message ID stored twice by the stream, beyond its
// window, is two fragments; within the window it is one (O21).
func TestDuplicates(t *testing.T) {
	r := newRig(t, 1)
	s, err := r.js.Stream(t.Context(), r.spec.Name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Duplicates = 100 * 1e6
	if _, err := r.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	id := nats.Header{jetstream.MsgIDHeader: {"same"}}
	first := r.publish("k", []byte("x"), id)
	if again := r.publish("k", []byte("x"), id); again != first {
		t.Fatalf("within the window the stream stored %d again as %d", first, again)
	}
	r.eventually("the window to pass", func() bool { return r.publish("k", []byte("x"), id) != first })
	r.start()
	last := r.publish("k", []byte("!"), nil)
	r.stored("k", last)
	r.halt()
	if text, _, _ := r.text("k"); text != "xx!" {
		t.Errorf("got %q, want both that the stream stored", text)
	}
}
