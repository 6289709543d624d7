package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// publication is one run of `lobsink pub` that something happens to.
type publication struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

func startPub(t testing.TB, args ...string) *publication {
	t.Helper()
	p := &publication{t: t, cmd: exec.Command(lobsink, append([]string{"pub"}, args...)...)}
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *publication) wait() (stderr string, code int) {
	p.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.cmd.Wait()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		p.cmd.Process.Kill()
		<-done
		p.t.Fatalf("lobsink pub did not end:\n%s", &p.stderr)
	}
	return p.stderr.String(), p.cmd.ProcessState.ExitCode()
}

// report writes a file of so many rows and returns its path and text.
func report(t testing.TB, rows int) (path, text string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("<?xml version=\"1.0\"?>\r\n<report>")
	for i := range rows {
		fmt.Fprintf(&b, "<row n=\"%d\">%d é😀</row>\n", i, i*i)
	}
	b.WriteString("</report>\n")
	path = filepath.Join(t.TempDir(), "report.xml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, b.String()
}

// TestPubRestart: the server restarts again and again in the middle of a
// publication. It ends well, or says how to go on; either way the document is the
// file, every piece once and in its place.
func TestPubRestart(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	must(t, "setup", "--nats", b.url(), "--store", sqliteDatabase(t).url)
	js := b.connect()
	path, text := report(t, 30_000)
	for _, flight := range []string{"1", "100"} {
		key := "in-flight-" + flight
		args := []string{"--nats", b.url(), "--key", key, "--id", "run", "--in-flight", flight, path}
		p := startPub(t, args...)
		for range 3 {
			from := lastSequence(t, js)
			eventually(t, time.Minute, func() error {
				if lastSequence(t, js) < from+500 && !finished(t, js, key) {
					return fmt.Errorf("nothing is published")
				}
				return nil
			})
			b.stop()
			b.start()
		}
		stderr, code := p.wait()
		for again := 0; code == 69 && again < 5; again++ {
			if !strings.Contains(stderr, "--id run") {
				t.Fatalf("exit 69 does not say how to go on: %s", stderr)
			}
			stderr, code = startPub(t, args...).wait()
		}
		got := readTruth(t, js, streamName).text[key]
		switch {
		case code == 0 && got != text:
			t.Errorf("%s: %s", key, difference(got, text))
		case code == 1 && flight != "1" && strings.Contains(stderr, "broken in the stream"):
			t.Logf("%s: %s", key, stderr)
		case code != 0:
			t.Errorf("%s: exit %d, %s", key, code, stderr)
		}
	}
}

// finished reports that the stream has the final fragment of a key.
func finished(t testing.TB, js jetstream.JetStream, key string) bool {
	s, err := js.Stream(t.Context(), streamName)
	if err != nil {
		return false
	}
	m, err := s.GetLastMsgForSubject(t.Context(), "fragments."+key)
	return err == nil && m.Header.Get("Lobsink-Final") == "true"
}

// TestPubKilled: a publication that was killed goes on under the same name, and
// publishes nothing twice.
func TestPubKilled(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	must(t, "setup", "--nats", b.url(), "--store", sqliteDatabase(t).url)
	js := b.connect()
	path, text := report(t, 20_000)
	args := []string{"--nats", b.url(), "--key", "report", "--id", "night", path}
	for range 3 {
		from := lastSequence(t, js)
		p := startPub(t, args...)
		eventually(t, time.Minute, func() error {
			if lastSequence(t, js) < from+500 {
				return fmt.Errorf("nothing is published")
			}
			return nil
		})
		p.cmd.Process.Kill()
		p.wait()
	}
	if stderr, code := startPub(t, args...).wait(); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if got := readTruth(t, js, streamName).text["report"]; got != text {
		t.Error(difference(got, text))
	}
}

// TestPub: a text node above what the server takes is cut at the borders of
// characters; a document in two parts is one; a file is its text, to the byte.
func TestPub(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		b := startBroker(t)
		must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
		startSink(t, "--nats", b.url(), "--store", db.url, "--max-age", "50ms")
		dir := t.TempDir()
		huge := "<a>x" + strings.Repeat("😀é漢", 2<<20) + "</a>" // 18 MiB, the server takes 8
		write := func(name, text string) {
			t.Helper()
			path := filepath.Join(dir, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("huge.xml", huge)
		write("folder/a.xml", "<a>\r\n<b/><b/></a>")
		write("folder/below/b.xml", "<b/>")
		write("empty.xml", "")
		write("part.xml", "<part><x/></part>\n")
		for _, args := range [][]string{
			{"./huge.xml"}, {"folder", "empty.xml"}, {"--depth", "0", "--key", "whole", "huge.xml"},
			{"--key", "parts", "--final=false", "part.xml"}, {"--key", "parts", "part.xml"},
		} {
			out, errs, code := callIn(t, dir, append([]string{"pub", "--nats", b.url()}, args...)...)
			if code != 0 || errs != "" {
				t.Fatalf("lobsink pub %v: exit %d, %s%s", args, code, out, errs)
			}
		}
		want := map[string]string{
			"huge.xml": huge, "whole": huge, "folder/a.xml": "<a>\r\n<b/><b/></a>", "folder/below/b.xml": "<b/>", "empty.xml": "",
			"parts": "<part><x/></part>\n<part><x/></part>\n",
		}
		db.stored(t, readTruth(t, b.connect(), streamName), time.Minute)
		got := db.texts(t)
		for key, text := range want {
			if got[key] != text {
				t.Errorf("%s: %s", key, difference(got[key], text))
			}
			if d := db.show(t, key); d.State != "complete" || d.Holes > 0 {
				t.Errorf("%+v", d)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d documents, want %d", len(got), len(want))
		}
		if dead := letters(t, b); len(dead) > 0 {
			t.Errorf("dead letters: %+v", dead)
		}
	})
}

// TestPubRefused: what lobsink will refuse is published, with a warning that
// names the file and what is wrong; a file that cannot be published is found
// before anything is.
func TestPubRefused(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	must(t, "setup", "--nats", b.url(), "--store", sqliteDatabase(t).url)
	js := b.connect()
	dir := t.TempDir()
	bad := filepath.Join(dir, "latin1.xml")
	if err := os.WriteFile(bad, []byte("<a><b>\xe9</b><b>\xe9</b></a>"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := call(t, "pub", "--nats", b.url(), "--key", "latin1", "-o", "json", bad)
	if code != 0 || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "latin1.xml") || !strings.Contains(errs, "dead letters") || !strings.Contains(errs, "0xE9") {
		t.Errorf("exit %d, stderr %q", code, errs)
	}
	var p published
	if decode(t, out, &p); p.Documents != 1 || p.Fragments != 3 || p.FirstSequence == nil || *p.FirstSequence != 1 || *p.LastSequence != 3 {
		t.Errorf("%s", out)
	}
	long := filepath.Join(dir, strings.Repeat("long/", 60), "name.xml")
	if err := os.MkdirAll(filepath.Dir(long), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(long, []byte("<a/>"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := call(t, "pub", "--nats", b.url(), bad, long); code != 64 || !strings.Contains(errs, "--key") {
		t.Errorf("a path that is too long for a key: exit %d, %q", code, errs)
	}
	if n := lastSequence(t, js); n != 3 {
		t.Errorf("%d messages in the stream, want 3", n)
	}
}
