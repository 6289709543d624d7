package main

import (
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"
)

func TestTakeovers(t *testing.T) {
	w := takeovers{log: slog.New(slog.DiscardHandler)}
	began := time.Unix(0, 0)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	w.saw(at(0), map[int]int64{0: 1, 1: 4}, []claim{{0, 1}, {1, 4}})
	w.lost(at(1), []claim{{0, 1}, {1, 4}, {1, 3}}) // the last one is an old claim
	w.saw(at(2), map[int]int64{0: 1, 1: 4}, []claim{{0, 1}, {1, 4}})
	if took, waiting := w.result(); len(took) != 0 || waiting != 2 {
		t.Fatalf("%v and %d waiting before anybody has claimed", took, waiting)
	}
	w.saw(at(3), map[int]int64{0: 1, 1: 5}, []claim{{0, 1}, {1, 5}})
	w.saw(at(4), map[int]int64{0: 2, 1: 5}, []claim{{0, 2}, {1, 5}})
	if took, waiting := w.result(); !slices.Equal(took, []time.Duration{2 * time.Second, 3 * time.Second}) || waiting != 0 {
		t.Errorf("%v and %d waiting, want 2 s, 3 s and none", took, waiting)
	}
}

// TestClaimsInLog: a log comes in pieces.
func TestClaimsInLog(t *testing.T) {
	log, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c := &claims{log: log, wrote: make(chan struct{}), made: map[claim]bool{}}
	text := `{"time":"x","level":"INFO","msg":"partition claimed","partition":3,"epoch":7,"checkpoint":0}` + "\n" +
		"no JSON\n" + `{"msg":"something else","partition":1,"epoch":2}` + "\n" + `{"msg":"partition claimed","partition":1,"epoch":2}`
	for _, b := range []byte(text) {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	all := []claim{{3, 7}, {1, 2}, {3, 8}}
	if own := c.of(all); !slices.Equal(own, []claim{{3, 7}}) {
		t.Errorf("%v before the end of the last line", own)
	}
	c.Write([]byte("\n"))
	if own := c.of(all); !slices.Equal(own, []claim{{3, 7}, {1, 2}}) {
		t.Errorf("%v, want both", own)
	}
	if kept, err := os.ReadFile(log.Name()); err != nil || string(kept) != text+"\n" {
		t.Errorf("the log is %q, %v", kept, err)
	}
}
