package embednats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// pollRoom is how often a full disk is tried, and a start that failed is
	// repeated.
	pollRoom = time.Second
	// restartAfter is the shortest time between two starts: a disk with room
	// for a moment must not make the server start all the time.
	restartAfter = 5 * time.Second
	// room is how much the disk has to take before the server starts again:
	// with less, its own files would fill it at once.
	room = 1 << 20
)

// keep starts the server again after it has stopped storing: nats-server takes
// nothing more after a write error, also when there is room again. What it had
// acknowledged is on the disk.
func (s *Server) keep(ctx context.Context, failed <-chan error) {
	started := time.Now()
	for {
		select {
		case err := <-failed:
			s.note(err)
		case <-ctx.Done():
			return
		}
		s.log.Error("publishers are refused: " + s.Err().Error())
		for s.Err() != nil {
			select {
			case <-time.After(max(pollRoom, restartAfter-time.Since(started))):
			case <-ctx.Done():
				return
			}
			if err := tryWrite(s.dir, room); err != nil {
				s.note(err)
				continue
			}
			srv := s.current()
			srv.Shutdown()
			srv.WaitForShutdown()
			started = time.Now()
			again, err := s.launch(ctx)
			if s.note(err); err == nil {
				failed = again
				s.log.Info("the embedded NATS server has started again", "dir", s.dir)
			}
		}
	}
}

// Err says why the server stores nothing, and what to do; nil: it stores.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writing
}

func (s *Server) note(err error) {
	if err != nil {
		err = fmt.Errorf("the embedded NATS server stores nothing: %w; it starts again when its disk takes data: make room in %s", err, s.dir)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = err
}

// tryWrite writes n bytes to a file in dir and removes it.
func tryWrite(dir string, n int) (err error) {
	name := filepath.Join(dir, "lobsink.trial")
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(name)) }()
	if _, err := f.Write(make([]byte, n)); err != nil {
		return err
	}
	return f.Sync()
}
