package oracle

import (
	"sync"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// probeEvery is how long nobody logs on after the database has refused who we
// are. Each try counts as a failed login, and enough of them lock the account.
const probeEvery = 5 * time.Minute

// Gate is passed before each logon. After an error of credentials it is closed:
// for five minutes every logon fails with that same error, without being tried;
// then one is let through. One gate serves a whole process.
type Gate struct {
	mu sync.Mutex
	// refused is why it is closed; nil: it is open.
	refused error
	probe   time.Time // when the next logon may be tried
}

// NewGate returns an open gate.
func NewGate() *Gate { return &Gate{} }

// enter returns nil if a logon may be tried.
func (g *Gate) enter(now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refused == nil {
		return nil
	}
	if now.Before(g.probe) {
		return g.refused
	}
	g.probe = now.Add(probeEvery) // this one is the probe
	return nil
}

// leave tells how a logon that was let through has ended.
func (g *Gate) leave(now time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.refused = nil
	case lobwriter.KindOf(err) == lobwriter.Credentials:
		g.refused, g.probe = err, now.Add(probeEvery)
	}
}
