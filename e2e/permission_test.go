package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// documented returns a block of code of a page of the documentation.
func documented(t testing.TB, page, language string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "\n```"+language+"\n")
	block, _, ended := strings.Cut(block, "\n```\n")
	if !found || !ended {
		t.Fatalf("%s has no block in %s", page, language)
	}
	return block
}

// startPermitted starts a NATS server with a configuration, and returns its
// address.
func startPermitted(t *testing.T, config string) string {
	t.Helper()
	for _, name := range []string{"MEMBER", "PRODUCER", "OPERATOR"} {
		t.Setenv(name+"_PASSWORD", "secret")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Port, opts.JetStream, opts.StoreDir, opts.NoSigs, opts.NoLog = "127.0.0.1", freePort(t), true, dir, true, true
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(20 * time.Second) {
		t.Fatal("nats-server not ready")
	}
	return fmt.Sprintf("127.0.0.1:%d", opts.Port)
}

// TestPermissions: with just the permissions of NATS that the documentation gives,
// everything runs, dead letters and operators' questions too.
func TestPermissions(t *testing.T) {
	addr := startPermitted(t, documented(t, "security.md", "nats"))
	as := func(user string) string { return fmt.Sprintf("nats://%s:secret@%s", user, addr) }
	db := postgresDatabase(t)
	must(t, "setup", "--nats", as("operator"), "--store", db.url, "--partitions", "2")
	s := startSink(t, "--nats", as("member"), "--store", db.url, "--max-age", "20ms", "--max-fragment-bytes", "1000")
	s.ready()
	xml := filepath.Join(t.TempDir(), "report.xml")
	text := "<report>" + strings.Repeat("<line>ä</line>", 50) + "</report>"
	if err := os.WriteFile(xml, []byte(text+strings.Repeat(" ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "pub", "--key", "a", "--nats", as("producer"), xml)
	eventually(t, time.Minute, func() error {
		if out, errs, _ := call(t, "doc", "show", "a", "--store", db.url); !strings.Contains(out, "incomplete") {
			return fmt.Errorf("%s%s", out, errs)
		}
		return nil
	})
	if out := must(t, "dlq", "ls", "--nats", as("operator")); !strings.Contains(out, "too-large") {
		t.Errorf("dead letters: %q", out)
	}
	if out := must(t, "status", "--nats", as("operator")); !strings.Contains(out, "owned") {
		t.Errorf("status: %q", out)
	}
	must(t, "flush", "--nats", as("operator"))
	must(t, "pause", "--nats", as("operator"))
	must(t, "resume", "--nats", as("operator"))
	must(t, "partitions", "show", "--nats", as("operator"), "--store", db.url)
	for name, log := range map[string]bool{"permission": s.log.contains("ermissions Violation"), "reconnect": s.log.contains("claiming the partition again")} {
		if log {
			t.Errorf("%s: see lobsink's log", name)
		}
	}
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}

	// One without gets a clear error.
	_, errs, code := call(t, "setup", "--nats", as("producer"), "--store", db.url, "--stream", "OTHER")
	if code != 78 || !strings.Contains(errs, "docs/security.md") {
		t.Errorf("setup without permissions: exit %d, %s", code, errs)
	}
	_, errs, code = call(t, "dlq", "ls", "--nats", strings.Replace(as("member"), "secret", "wrong", 1))
	if code != 78 || !strings.Contains(errs, "refuses who we are") {
		t.Errorf("a wrong password: exit %d, %s", code, errs)
	}
}
