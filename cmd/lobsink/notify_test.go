package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/telemetry"
	"github.com/lobsink/lobsink/lobwriter"
)

// manager is a service manager that listens.
type manager struct {
	mu   sync.Mutex
	said []string
}

// newManager listens where $NOTIFY_SOCKET says. The watchdog is as long as given.
func newManager(t *testing.T, watchdog time.Duration) *manager {
	t.Helper()
	// A socket's path is short: t.TempDir's may be too long.
	dir, err := os.MkdirTemp("", "notify")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	addr := &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"}
	l, err := net.ListenUnixgram("unixgram", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", addr.Name)
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt(watchdog.Microseconds(), 10))
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	m := &manager{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := l.Read(buf)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.said = append(m.said, string(buf[:n]))
			m.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return m
}

// count returns how often something was said.
func (m *manager) count(text string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.said {
		if strings.HasPrefix(s, text) {
			n++
		}
	}
	return n
}

func (m *manager) hears(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); m.count(text) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			m.mu.Lock()
			defer m.mu.Unlock()
			t.Fatalf("%q was not said: %q", text, m.said)
		}
	}
}

// TestNotify: the watchdog is fed as long as somebody is alive, and no longer.
func TestNotify(t *testing.T) {
	m := newManager(t, 60*time.Millisecond)
	var mu sync.Mutex
	var hangs error
	checks := []telemetry.Check{{Name: "nats", Err: errors.New("no answer\nREADY=1")}}
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	stop := notifySystemd(ctx, slog.New(slog.NewTextHandler(&log, nil)),
		func() []telemetry.Check { return checks },
		func() error {
			mu.Lock()
			defer mu.Unlock()
			return hangs
		})
	m.hears(t, "READY=1")
	m.hears(t, "STATUS=not ready: nats: no answer")
	m.hears(t, "WATCHDOG=1")
	mu.Lock()
	hangs = errors.New("partition 3 hangs")
	mu.Unlock()
	// One may be under way; then there are none.
	time.Sleep(30 * time.Millisecond)
	fed := m.count("WATCHDOG=1")
	time.Sleep(200 * time.Millisecond)
	if n := m.count("WATCHDOG=1"); n > fed+1 {
		t.Errorf("the watchdog was fed %d times more", n-fed)
	}
	cancel()
	m.hears(t, "STOPPING=1")
	stop()
	if n := strings.Count(log.String(), "partition 3 hangs"); n != 1 {
		t.Errorf("the reason is in the log %d times, want once: %s", n, log.String())
	}
	if m.count("READY=1") != 1 || slices.ContainsFunc(m.said, func(s string) bool { return strings.Contains(s, "\n") }) {
		t.Errorf("an error became an assignment: %q", m.said)
	}
}

// TestNotifyNobody: without a service manager nothing is started.
func TestNotifyNobody(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	notifySystemd(t.Context(), slog.New(slog.DiscardHandler), nil, nil)()
}

// freePort returns an address of this machine that nobody listens at.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestRunNotifies: what a service manager hears of a whole run.
func TestRunNotifies(t *testing.T) {
	m := newManager(t, 3*time.Second)
	port := freePort(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	var errs bytes.Buffer
	go func() {
		ended <- run(ctx, []string{"run", "--data-dir", t.TempDir(), "--http", "127.0.0.1:0", "--nats-listen", port}, nil, &bytes.Buffer{}, &errs)
	}()
	m.hears(t, "READY=1")
	m.hears(t, "STATUS=ready")
	m.hears(t, "WATCHDOG=1")
	cancel()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	m.hears(t, "STOPPING=1")
}

// beating is a store whose calls a test can hold up or fail.
type beating struct {
	lobwriter.Store
	err  error
	held chan struct{} // nil: calls return at once
}

func (b *beating) answer() error {
	if b.held != nil {
		<-b.held
	}
	return b.err
}

func (b *beating) Claim(context.Context, lobwriter.ClaimRequest) (lobwriter.Claim, error) {
	return lobwriter.Claim{}, b.answer()
}

func (b *beating) Renew(context.Context, lobwriter.Claim, time.Duration) (lobwriter.Fence, error) {
	return lobwriter.Fence{}, b.answer()
}

func (b *beating) Release(context.Context, lobwriter.Claim) error { return b.answer() }

func (b *beating) Flush(context.Context, *lobwriter.Flush) (lobwriter.Receipt, error) {
	return lobwriter.Receipt{}, b.answer()
}

// TestPulse: what counts as hanging, and what does not.
func TestPulse(t *testing.T) {
	const partition = 3
	claim := lobwriter.Claim{Partition: partition}
	held := &lobwriter.Error{Kind: lobwriter.Held, Op: "claim", Err: errors.New("held")}
	claimed := func(t *testing.T, p *pulse) {
		if _, err := p.Claim(t.Context(), lobwriter.ClaimRequest{Partition: partition}); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name  string
		then  func(t *testing.T, p *pulse, b *beating)
		hangs bool
	}{
		{"claimed, then silence", func(*testing.T, *pulse, *beating) {}, true},
		{"renewed for long, then silence", func(t *testing.T, p *pulse, _ *beating) {
			for range 10 {
				time.Sleep(minSilence / 4)
				p.Renew(t.Context(), claim, time.Second)
			}
		}, true},
		{"flushes alone are no sign of life", func(t *testing.T, p *pulse, _ *beating) {
			time.Sleep(minSilence / 2)
			p.Flush(t.Context(), &lobwriter.Flush{Partition: partition})
		}, true},
		{"released", func(t *testing.T, p *pulse, _ *beating) { p.Release(t.Context(), claim) }, false},
		{"somebody else's", func(t *testing.T, p *pulse, b *beating) {
			b.err = held
			p.Claim(t.Context(), lobwriter.ClaimRequest{Partition: partition})
		}, false},
		{"a database that is away", func(t *testing.T, p *pulse, b *beating) {
			b.err = errors.New("connection refused")
			for range 100 {
				time.Sleep(5 * time.Second)
				p.Renew(t.Context(), claim, time.Second)
			}
			b.err = held
			p.Claim(t.Context(), lobwriter.ClaimRequest{Partition: partition})
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &beating{}
				p := newPulse(b, time.Second)
				claimed(t, p)
				test.then(t, p, b)
				if err := p.err(true); err != nil {
					t.Errorf("too early: %v", err)
				}
				time.Sleep(minSilence + time.Second)
				if err := p.err(true); (err != nil) != test.hangs {
					t.Errorf("%v, want an error: %v", err, test.hangs)
				}
				if err := p.err(false); err != nil {
					t.Errorf("without NATS a partition may rest: %v", err)
				}
			})
		})
	}
}

// TestPulseOfADriver: a call that ignores its deadline is found, with and without
// NATS.
func TestPulseOfADriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &beating{held: make(chan struct{})}
		p := newPulse(b, time.Second)
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Flush(t.Context(), &lobwriter.Flush{Partition: 1})
		}()
		synctest.Wait()
		time.Sleep(minSilence + time.Second)
		if err := p.err(false); err == nil || !strings.Contains(err.Error(), "flush") {
			t.Errorf("%v, want that a flush hangs", err)
		}
		close(b.held)
		<-done
		if err := p.err(true); err != nil {
			t.Error(err)
		}
	})
}

// TestReadyWithPulse: what hangs makes lobsink not ready, also where no service
// manager watches it.
func TestReadyWithPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &beating{held: make(chan struct{})}
		r := &readiness{stop: t.Context(), status: consumer.NewStatus()}
		progress := func() error {
			for _, c := range r.checks() {
				if c.Name == "progress" {
					return c.Err
				}
			}
			return errors.New("no such check")
		}
		if err := progress(); err != nil {
			t.Errorf("before the start: %v", err)
		}
		p := newPulse(b, time.Second)
		r.pulse.Store(p)
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Flush(t.Context(), &lobwriter.Flush{Partition: 1})
		}()
		synctest.Wait()
		time.Sleep(minSilence + time.Second)
		if err := progress(); err == nil {
			t.Error("a flush hangs, and it is ready")
		}
		close(b.held)
		<-done
		if err := progress(); err != nil {
			t.Errorf("after its end: %v", err)
		}
	})
}
