// Package telemetry is how a running lobsink is seen from outside: its log, its
// metrics and its health.
package telemetry

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"github.com/mattn/go-isatty"
)

// Format is how log records are written.
type Format string

// The formats.
const (
	// Auto is Text on a terminal and JSON elsewhere.
	Auto Format = "auto"
	// Text is for people: coloured on a terminal.
	Text Format = "text"
	// JSON is one object per line, with the keys time, level and msg.
	JSON Format = "json"
)

// LogOptions are the settings of a log.
type LogOptions struct {
	Format Format
	// Level is the lowest level that is written.
	Level slog.Leveler
	// NoColor turns colours off on a terminal too; see https://no-color.org.
	NoColor bool
	// RepeatAfter is for how long a warning or an error that was written is
	// not written again, only counted; 0: all are written. See Unrepeated.
	RepeatAfter time.Duration
}

// NewLogger returns a log that writes to w. Whether that is a terminal is known
// of files only.
func NewLogger(w io.Writer, o LogOptions) *slog.Logger {
	if o.Level == nil {
		o.Level = slog.LevelInfo
	}
	terminal := isTerminal(w)
	var h slog.Handler
	if o.Format == JSON || o.Format != Text && !terminal {
		h = slog.NewJSONHandler(w, &slog.HandlerOptions{Level: o.Level, ReplaceAttr: readable})
	} else {
		h = tint.NewTextHandler(w, &tint.Options{
			Level: o.Level, TimeFormat: "15:04:05.000", NoColor: o.NoColor || !terminal,
		})
	}
	if o.RepeatAfter > 0 {
		h = Unrepeated(h, o.RepeatAfter)
	}
	return slog.New(h)
}

// readable writes durations with their unit, as in text, not as nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}
