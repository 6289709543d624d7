package embednats

import (
	"fmt"
	"log/slog"
	"sync"
)

// logger hands the server's log on, and keeps the first fatal message: the
// server's own logger would end the process there.
type logger struct {
	log *slog.Logger

	mu    sync.Mutex
	first string
}

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
	if l.log != nil {
		l.log.Error("nats-server: " + fmt.Sprintf(format, v...))
	}
}

func (l *logger) Warnf(format string, v ...any) {
	if l.log != nil {
		l.log.Warn("nats-server: " + fmt.Sprintf(format, v...))
	}
}

func (l *logger) Noticef(format string, v ...any) {
	if l.log != nil {
		l.log.Debug("nats-server: " + fmt.Sprintf(format, v...))
	}
}

func (l *logger) Debugf(string, ...any) {}
func (l *logger) Tracef(string, ...any) {}
