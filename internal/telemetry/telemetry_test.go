package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/lobsink/lobsink/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "lobsink_test_total", Help: "A test."})
	c.Add(3)
	reg.MustRegister(c)
	return reg
}

func TestEndpoints(t *testing.T) {
	checks := []telemetry.Check{{Name: "nats"}, {Name: "database"}}
	var hangs error
	h := telemetry.Handler(newRegistry(), telemetry.Health{
		Alive: func() error { return hangs }, Ready: func() []telemetry.Check { return checks },
	})
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	expect := func(path string, status int, text string) {
		t.Helper()
		if got, body := get(path); got != status || body != text {
			t.Errorf("%s: %d %q, want %d %q", path, got, body, status, text)
		}
	}
	expect("/readyz", 200, "ready\n")
	expect("/readyz?verbose", 200, "[+] nats\n[+] database\nready\n")
	checks[1].Err = errors.New("no answer")
	expect("/readyz", 503, "[-] database: no answer\nnot ready\n")
	expect("/readyz?verbose", 503, "[+] nats\n[-] database: no answer\nnot ready\n")
	// A database that is away is no reason to start the process again.
	expect("/livez", 200, "ok\n")
	hangs = errors.New("a loop hangs")
	expect("/livez", 503, "a loop hangs\n")
	hangs = nil

	status, body := get("/")
	for _, path := range []string{"/metrics", "/livez", "/readyz"} {
		if !strings.Contains(body, path) || status != 200 {
			t.Errorf("the index has no %s", path)
		}
	}
	if status, body := get("/metrics"); status != 200 || !strings.Contains(body, "\nlobsink_test_total 3\n") {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := get("/nothing"); status != 404 {
		t.Errorf("/nothing: %d", status)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/livez", nil))
	if w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestServeUntilTheEnd(t *testing.T) {
	l, err := telemetry.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = telemetry.Listen(t.Context(), l.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "the port is in use") || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("a port in use: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	asked, answer := make(chan struct{}), make(chan struct{})
	go func() {
		served <- telemetry.Serve(ctx, l, telemetry.Options{Metrics: newRegistry(), Health: telemetry.Health{Ready: func() []telemetry.Check {
			close(asked)
			<-answer
			return nil
		}}})
	}()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	got := make(chan string, 1)
	go func() {
		r, err := client.Get("http://" + l.Addr().String() + "/readyz")
		if err != nil {
			got <- err.Error()
			return
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		got <- string(body)
	}()
	<-asked
	cancel() // with a request under way, which is still answered
	close(answer)
	if body := <-got; body != "ready\n" {
		t.Error(body)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := client.Get("http://" + l.Addr().String() + "/livez"); err == nil {
		t.Error("it still serves")
	}
}

func TestListenSaysWhatToDo(t *testing.T) {
	for _, addr := range []string{"256.0.0.1:1", "127.0.0.1:notaport"} {
		if l, err := telemetry.Listen(t.Context(), addr); err == nil {
			l.Close()
			t.Errorf("%s is taken", addr)
		} else if !strings.Contains(err.Error(), "--http") {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestFormats(t *testing.T) {
	for _, test := range []struct {
		format telemetry.Format
		json   bool
	}{{telemetry.Auto, true}, {telemetry.JSON, true}, {telemetry.Text, false}} {
		var b bytes.Buffer
		log := telemetry.NewLogger(&b, telemetry.LogOptions{Format: test.format, Level: slog.LevelWarn})
		log.Info("below the level")
		log.Warn("flush failed", "partition", 3, "wait", 90*time.Second)
		if n := strings.Count(b.String(), "\n"); n != 1 {
			t.Errorf("%s: %d lines: %s", test.format, n, b.String())
		}
		if !strings.Contains(b.String(), "1m30s") {
			t.Errorf("%s: a duration without a unit: %s", test.format, b.String())
		}
		if json.Valid(b.Bytes()) != test.json || strings.Contains(b.String(), "\x1b") {
			t.Errorf("%s: %q", test.format, b.String())
		}
	}
}

// TestRepeats: the same warning is written once in ten seconds, and then with how
// many there were; what differs is written.
func TestRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log := telemetry.NewLogger(&b, telemetry.LogOptions{Format: telemetry.JSON, RepeatAfter: 10 * time.Second})
		lines := func() int {
			n := strings.Count(b.String(), "\n")
			return n
		}
		first, second := log.With("partition", 0), log.With("partition", 1)
		for i := range 5 {
			first.Warn("no answer", "err", "timeout", "attempt", i, "wait", time.Duration(i))
		}
		if lines() != 1 {
			t.Errorf("%d lines, want 1: %s", lines(), b.String())
		}
		second.Warn("no answer", "err", "timeout")
		first.Warn("no answer", "err", "refused")
		first.Error("no answer", "err", "timeout")
		first.WithGroup("g").Warn("no answer", "err", "timeout")
		if lines() != 5 {
			t.Errorf("%d lines, want 5: %s", lines(), b.String())
		}
		first.Info("claimed")
		first.Info("claimed")
		if lines() != 7 {
			t.Errorf("information is left out: %s", b.String())
		}
		time.Sleep(10 * time.Second)
		b.Reset()
		first.Warn("no answer", "err", "timeout", "attempt", 6)
		first.Warn("no answer", "err", "timeout", "attempt", 7)
		if lines() != 1 || !strings.Contains(b.String(), `"repeated":4`) {
			t.Errorf("after ten seconds: %s", b.String())
		}
	})
}

// TestRepeatsAreBounded: memory does not grow with the number of different
// records.
func TestRepeatsAreBounded(t *testing.T) {
	var b bytes.Buffer
	log := telemetry.NewLogger(&b, telemetry.LogOptions{RepeatAfter: time.Hour})
	for i := range 3000 {
		log.Warn("dead letter", "seq", i)
	}
	if n := strings.Count(b.String(), "\n"); n != 3000 {
		t.Errorf("%d of 3000 different records", n)
	}
}

// TestWebConfig: users of a web configuration have to say who they are; a file that
// is none is found before anything is served.
func TestWebConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("basic_auth_userz: {}\n")
	if err := telemetry.CheckWebConfig(path); err == nil {
		t.Error("a misspelt key is taken")
	}
	write("basic_auth_users:\n  scraper: $2a$04$2aYQeVfiFRxoMfjwZpfM5eJBkLiMdYb.AnLvqnOffaRCWv1d3//I6 # secret\n")
	if err := telemetry.CheckWebConfig(path); err != nil {
		t.Fatal(err)
	}
	l, err := telemetry.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- telemetry.Serve(ctx, l, telemetry.Options{Metrics: newRegistry(), WebConfig: path}) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for password, want := range map[string]int{"": 401, "wrong": 401, "secret": 200} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			req.SetBasicAuth("scraper", password)
		}
		r, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("password %q: %d, want %d", password, r.StatusCode, want)
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
