package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// maxRepeats bounds the memory that is spent on telling records apart. When
// there are more different ones, all are forgotten, and some written early.
const maxRepeats = 1000

// volatile reports whether an attribute differs between two records that
// otherwise say the same: which try it was, and how long until the next.
func volatile(a slog.Attr) bool { return a.Key == "attempt" || a.Key == "wait" }

// Unrepeated passes on to next what is new. A warning or an error that was passed
// on less than every ago is only counted; the next one that is passed on says in
// the attribute repeated how many were not. Two records are the same if level,
// message and all attributes but attempt and wait are.
func Unrepeated(next slog.Handler, every time.Duration) slog.Handler {
	return &unrepeated{Handler: next, seen: &seen{every: every, last: map[string]repeat{}}}
}

type unrepeated struct {
	slog.Handler
	seen *seen
	// with is what WithAttrs and WithGroup have added, as text.
	with string
}

// seen is shared by a handler and all that are derived from it.
type seen struct {
	every time.Duration
	mu    sync.Mutex
	last  map[string]repeat
}

type repeat struct {
	at      time.Time
	omitted int
}

func (u *unrepeated) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return u.Handler.Handle(ctx, r)
	}
	omitted, pass := u.seen.note(u.identity(r), r.Time)
	if !pass {
		return nil
	}
	if omitted > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("repeated", omitted))
	}
	return u.Handler.Handle(ctx, r)
}

func (u *unrepeated) identity(r slog.Record) string {
	var b strings.Builder
	b.WriteString(r.Level.String() + "\x00" + r.Message + u.with)
	r.Attrs(func(a slog.Attr) bool {
		if !volatile(a) {
			b.WriteString("\x00" + a.String())
		}
		return true
	})
	return b.String()
}

// note counts a record and says whether it passes, and how many like it did not
// since the last one that did.
func (s *seen) note(identity string, now time.Time) (omitted int, pass bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.last[identity]
	if ok && now.Sub(last.at) < s.every {
		last.omitted++
		s.last[identity] = last
		return 0, false
	}
	if len(s.last) >= maxRepeats {
		clear(s.last)
	}
	s.last[identity] = repeat{at: now}
	return last.omitted, true
}

func (u *unrepeated) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := u.with
	for _, a := range attrs {
		with += "\x00" + a.String()
	}
	return &unrepeated{Handler: u.Handler.WithAttrs(attrs), seen: u.seen, with: with}
}

func (u *unrepeated) WithGroup(name string) slog.Handler {
	return &unrepeated{Handler: u.Handler.WithGroup(name), seen: u.seen, with: u.with + "\x00" + name + "."}
}
