package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// sink is one running lobsink.
type sink struct {
	t      testing.TB
	binary string
	dir    string // its working folder; "": the tests' own
	args   []string
	cmd    *exec.Cmd
	done   chan struct{} // closed when it has ended
	log    *tail         // of all its processes
	addr   string        // where it serves metrics and health; see address
}

// startSink starts `lobsink run`.
func startSink(t testing.TB, args ...string) *sink {
	t.Helper()
	return startBinary(t, lobsink, "", args...)
}

// startSinkIn starts `lobsink run` in a folder.
func startSinkIn(t testing.TB, dir string, args ...string) *sink {
	t.Helper()
	return startBinary(t, lobsink, dir, args...)
}

func startBinary(t testing.TB, binary, dir string, args ...string) *sink {
	t.Helper()
	s := &sink{t: t, binary: binary, dir: dir, args: append([]string{"run", "--http", "127.0.0.1:0", "--log-format", "json"}, args...), log: &tail{}}
	s.start()
	t.Cleanup(func() {
		s.signal(syscall.SIGCONT)
		s.kill()
		if s.log.contains("DATA RACE") || s.log.contains("panic:") {
			t.Error("a data race or a panic in lobsink")
		}
		if t.Failed() {
			t.Logf("the end of lobsink's log:\n%s", s.log)
		}
	})
	return s
}

func (s *sink) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.binary, s.args...)
	s.cmd.Dir = s.dir
	s.cmd.Stderr = s.log
	s.addr = ""
	fmt.Fprintln(s.log, startLine)
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

// startLine stands in the log before what each process writes.
const startLine = "--- lobsink starts"

// address is the URL of metrics and health, from the log of the process.
func (s *sink) address() string {
	s.t.Helper()
	if s.addr != "" {
		return s.addr
	}
	eventually(s.t, 30*time.Second, func() error {
		for _, line := range s.log.lines() {
			var record struct{ Msg, URL string }
			if json.Unmarshal([]byte(line), &record) == nil && record.Msg == "serving metrics and health" {
				s.addr = record.URL
			}
		}
		if s.addr == "" && !s.running() {
			s.t.Fatalf("it ended with exit code %d", s.cmd.ProcessState.ExitCode())
		}
		if s.addr == "" {
			return fmt.Errorf("it has not said where it serves metrics and health")
		}
		return nil
	})
	return s.addr
}

// get asks for a page of metrics and health.
func (s *sink) get(path string) (status int, body string, err error) {
	s.t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	answer, err := client.Get(s.address() + path)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// ready waits until it is ready.
func (s *sink) ready() { s.t.Helper(); s.readiness(http.StatusOK, "ready") }

// unready waits until it is not ready and names the reason; it lives all the
// same.
func (s *sink) unready(reason string) {
	s.t.Helper()
	s.readiness(http.StatusServiceUnavailable, reason)
	if status, body, err := s.get("/livez"); status != http.StatusOK {
		s.t.Errorf("/livez: %d %s %v, want 200", status, body, err)
	}
}

func (s *sink) readiness(want int, text string) {
	s.t.Helper()
	eventually(s.t, time.Minute, func() error {
		status, body, err := s.get("/readyz")
		if status == want && strings.Contains(body, text) {
			return nil
		}
		if !s.running() {
			s.t.Fatalf("it ended with exit code %d", s.cmd.ProcessState.ExitCode())
		}
		return fmt.Errorf("/readyz: %d %q %v; want %d and %q", status, body, err, want, text)
	})
}

// says waits until the log has a text.
func (s *sink) says(text string) {
	s.t.Helper()
	eventually(s.t, time.Minute, func() error {
		if !s.log.contains(text) {
			return fmt.Errorf("its log does not say %q", text)
		}
		return nil
	})
}

// metric returns the sum of all series of a metric.
func (s *sink) metric(name string) float64 {
	s.t.Helper()
	sum, err := s.scrape(name)
	if err != nil {
		s.t.Fatal(err)
	}
	return sum
}

// scrape is metric for a process that may be about to end.
func (s *sink) scrape(name string) (sum float64, err error) {
	lines, err := s.series()
	for _, line := range lines {
		series, value, _ := strings.Cut(line, " ")
		if series == name || strings.HasPrefix(series, name+"{") {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, err
}

// series returns the lines of /metrics that are values.
func (s *sink) series() (lines []string, err error) {
	_, body, err := s.get("/metrics")
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines, err
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

// lines returns what the process that was started last has written.
func (l *tail) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := string(l.buf)
	return strings.Split(text[max(0, strings.LastIndex(text, startLine)):], "\n")
}

func (l *tail) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.buf, []byte(s))
}

// call runs a command of lobsink to its end.
func call(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return callIn(t, "", args...)
}

func callIn(t testing.TB, dir string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, lobsink, args...)
	cmd.Dir = dir
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
