package embednats

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// logger hands the server's log on, and keeps the first fatal message: the
// server's own logger would end the process there.
type logger struct {
	log *slog.Logger
	// failed gets the first message that says that nothing more is stored.
	failed chan error

	mu    sync.Mutex
	first string
}

func newLogger(log *slog.Logger) *logger { return &logger{log: log, failed: make(chan error, 1)} }

// deadly are the words of nats-server after which a stream, or all of JetStream,
// takes nothing more until the server starts again: setWriteErr in its
// server/filestore.go, handleOutOfSpace in server/jetstream.go. It has no other
// sign of them.
var deadly = []string{"Critical write error", "will be DISABLED"}

func (l *logger) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

func (l *logger) Fatalf(format string, v ...any) {
	l.mu.Lock()
	if l.first == "" {
		l.first = fmt.Sprintf(format, v...)
	}
	l.mu.Unlock()
	l.Errorf(format, v...)
}

func (l *logger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.log.Error("nats-server: " + text)
	for _, words := range deadly {
		if strings.Contains(text, words) {
			select {
			case l.failed <- errors.New(text):
			default: // one is enough
			}
		}
	}
}

func (l *logger) Warnf(format string, v ...any) {
	l.log.Warn("nats-server: " + fmt.Sprintf(format, v...))
}

func (l *logger) Noticef(format string, v ...any) {
	l.log.Debug("nats-server: " + fmt.Sprintf(format, v...))
}

func (l *logger) Debugf(string, ...any) {}
func (l *logger) Tracef(string, ...any) {}
