package oracle

import (
	"errors"
	"testing"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// TestGate: after an error of credentials one logon is tried in five minutes.
func TestGate(t *testing.T) {
	wrong := &lobwriter.Error{Kind: lobwriter.Credentials, Op: "connect", Err: errors.New("ORA-01017")}
	g, now := NewGate(), time.Now()
	tried := 0
	for range 16 * 60 { // a try each second, for a little more than 15 minutes
		err := g.enter(now)
		if err == nil {
			tried++
			g.leave(now, wrong)
		} else if lobwriter.KindOf(err) != lobwriter.Credentials {
			t.Fatalf("closed with %v", err)
		}
		now = now.Add(time.Second)
	}
	if tried != 4 {
		t.Errorf("%d logons were tried", tried)
	}
	now = now.Add(5 * time.Minute)
	if err := g.enter(now); err != nil {
		t.Fatal(err)
	}
	if err := g.enter(now); err == nil {
		t.Error("two probes at once")
	}
	g.leave(now, &lobwriter.Error{Kind: lobwriter.Transient, Op: "connect", Err: errors.New("ORA-12541")})
	if err := g.enter(now); err == nil {
		t.Error("a listener that is gone opens the gate")
	}
	now = now.Add(5 * time.Minute)
	if err := g.enter(now); err != nil {
		t.Fatal(err)
	}
	g.leave(now, nil)
	for range 3 {
		if err := g.enter(now); err != nil {
			t.Error("it stays closed after a logon")
		}
	}
}
