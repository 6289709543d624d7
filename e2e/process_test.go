package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// sink is one running lobsink.
type sink struct {
	t    testing.TB
	args []string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	log  *tail
}

// startSink starts `lobsink run`.
func startSink(t testing.TB, args ...string) *sink {
	s := &sink{t: t, args: append([]string{"run", "--http", "127.0.0.1:0", "--log-format", "json"}, args...), log: &tail{}}
	s.start()
	t.Cleanup(func() {
		s.signal(syscall.SIGCONT)
		s.kill()
		if t.Failed() {
			t.Logf("the end of lobsink's log:\n%s", s.log)
		}
	})
	return s
}

func (s *sink) start() {
	s.t.Helper()
	s.cmd = exec.Command(lobsink, s.args...)
	s.cmd.Stderr = s.log
	// It must not outlive the tests, whatever becomes of them.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	cmd, done := s.cmd, make(chan struct{})
	s.done = done
	go func() {
		cmd.Wait()
		close(done)
	}()
}

func (s *sink) signal(sig os.Signal) { s.cmd.Process.Signal(sig) }

// kill ends it at once, as kill -9 does.
func (s *sink) kill() {
	s.signal(syscall.SIGKILL)
	<-s.done
}

// terminate asks for a clean end and returns the exit code.
func (s *sink) terminate() int {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(time.Minute):
		s.t.Fatal("lobsink did not end within a minute of SIGTERM")
	}
	return s.cmd.ProcessState.ExitCode()
}

// running reports whether the process is alive.
func (s *sink) running() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if n := len(l.buf) - 256<<10; n > 0 {
		l.buf = append([]byte(nil), l.buf[n:]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.SplitAfter(string(l.buf), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "")
}

func (l *tail) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.buf, []byte(s))
}

// call runs a command of lobsink to its end.
func call(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, lobsink, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("lobsink %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs a command that has to succeed and returns its stdout.
func must(t testing.TB, args ...string) string {
	t.Helper()
	out, errs, code := call(t, args...)
	if code != 0 {
		t.Fatalf("lobsink %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// eventually polls until ok, or fails with what it says last.
func eventually(t testing.TB, within time.Duration, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(fmt.Errorf("not within %s: %w", within, err))
		}
		time.Sleep(50 * time.Millisecond)
	}
}
