package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
)

// progress tells how far a long command is, and slows it down.
type progress struct {
	w     io.Writer
	what  string // such as "rebuilt"
	unit  string // such as "documents"
	total int    // documents; 0: not known
	rate  int64  // bytes a second; 0: no limit

	start, told time.Time
	documents   int
	bytes       int64
}

// progressEvery is how often a long command tells how far it is.
const progressEvery = 10 * time.Second

func newProgress(w io.Writer, what string, total int) *progress {
	now := time.Now()
	return &progress{w: w, what: what, unit: "documents", total: total, start: now, told: now}
}

// document notes that another document is done.
func (p *progress) document() {
	p.documents++
	if now := time.Now(); now.Sub(p.told) >= progressEvery {
		p.told = now
		fmt.Fprintln(p.w, p.line(now))
	}
}

func (p *progress) line(now time.Time) string {
	text := p.what + " " + humanize.Comma(int64(p.documents))
	if p.total > 0 {
		text += " of " + humanize.Comma(int64(p.total))
	}
	text += " " + p.unit + ", " + humanize.IBytes(uint64(p.bytes))
	if left := p.total - p.documents; left > 0 && p.documents > 0 {
		each := now.Sub(p.start) / time.Duration(p.documents)
		text += ", about " + (time.Duration(left) * each).Round(time.Second).String() + " left"
	}
	return text
}

// pace notes that bytes have been written or read, and waits as long as the rate
// asks for.
func (p *progress) pace(ctx context.Context, bytes int) error {
	p.bytes += int64(bytes)
	if p.rate <= 0 {
		return nil
	}
	due := p.start.Add(time.Duration(float64(p.bytes) / float64(p.rate) * float64(time.Second)))
	wait := time.Until(due)
	if wait <= 0 {
		return nil
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
