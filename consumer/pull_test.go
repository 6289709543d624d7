package consumer

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestForgedStatus: a message without payload whose headers look like an answer
// of the server is a fragment like any other; it stops nothing.
func TestForgedStatus(t *testing.T) {
	r := newRig(t, 1)
	r.start()
	var want strings.Builder
	var last uint64
	for _, status := range []string{"404", "408", "409", "503", "100", "400"} {
		r.publish("k", nil, nats.Header{"Status": {status}, "Description": {"Consumer Deleted"}})
		want.WriteString(status)
		last = r.publish("k", []byte(status), nil)
		r.stored("k", last)
	}
	r.halt()
	if got, d, _ := r.text("k"); got != want.String() || d.Fragments != 12 {
		t.Errorf("got %q, %d fragments", got, d.Fragments)
	}
	if f, err := r.store.Fence(t.Context(), 0); err != nil || f.Epoch != 1 {
		t.Errorf("epoch %d after headers only: the partition was claimed again (%v)", f.Epoch, err)
	}
	r.acked()
}

func TestParseReply(t *testing.T) {
	for _, c := range []struct {
		reply string
		want  replied
		ok    bool
	}{
		{"$JS.ACK.S.C.1.22.3.1234.5", replied{1, 22, 3, 1234}, true},
		{"$JS.ACK._.hash.S.C.2.22.3.1234.5", replied{2, 22, 3, 1234}, true},
		{"$JS.ACK.hub.hash.S.C.2.22.3.1234.5.random", replied{2, 22, 3, 1234}, true},
		{"$JS.ACK.S.C.1.22.3", replied{}, false},
		{"$JS.ACK.S.C.1.x.3.4.5", replied{}, false},
		{"_INBOX.abc", replied{}, false},
		{"", replied{}, false},
	} {
		got, err := parseReply(c.reply)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: %+v, %v", c.reply, got, err)
		}
	}
}
