package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// embeddedAddress returns a free address for an embedded server.
func embeddedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func embeddedStream(t *testing.T, addr string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect("nats://"+addr, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// TestEmbedded: `lobsink run` alone, in an empty folder, serves NATS and writes
// a SQLite file; reading commands work meanwhile; a second one waits for the end
// of the first and goes on where it stopped.
func TestEmbedded(t *testing.T) {
	addr := embeddedAddress(t)
	dir := t.TempDir()
	first := startSinkIn(t, dir, "--nats-listen", addr, "--lease", "1s", "--max-age", "20ms")
	first.ready()
	js := embeddedStream(t, addr)
	text := ""
	for i := range 100 {
		piece := fmt.Sprintf("<r n=\"%d\"/>", i)
		publish(t, js, "fragments.ORDER-1", piece)
		text += piece
	}
	db := sqliteFile(filepath.Join(dir, "lobsink-data", "lobsink.db"))
	db.stored(t, readTruth(t, js, streamName), time.Minute)
	read := func(args ...string) string {
		t.Helper()
		out, errs, code := callIn(t, dir, args...)
		if code != 0 {
			t.Fatalf("lobsink %s: exit %d, %s", strings.Join(args, " "), code, errs)
		}
		return out
	}
	if got := read("doc", "cat", "ORDER-1"); got != text {
		t.Errorf("doc cat: %s", difference(got, text))
	}
	if got := read("doc", "ls"); !strings.Contains(got, "ORDER-1") {
		t.Errorf("doc ls: %q", got)
	}
	read("dlq", "ls", "--nats", "nats://"+addr)

	second := startSinkIn(t, dir, "--nats-listen", addr, "--lease", "1s", "--max-age", "20ms")
	second.says("another lobsink runs on this database")
	publish(t, js, "fragments.ORDER-1", "<last/>", "Lobsink-Final", "true")
	text += "<last/>"
	if code := first.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	second.ready()
	db.stored(t, readTruth(t, js, streamName), time.Minute)
	if got := read("doc", "cat", "ORDER-1"); got != text {
		t.Errorf("doc cat after the second one took over: %s", difference(got, text))
	}
	second.kill()
	second.start()
	second.ready()
	db.exact(t, readTruth(t, js, streamName))
	if code := second.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

// TestEmbeddedStoreFull: the disk of the embedded server is nearly full. Publishers
// are refused with a reason, what is in the stream is stored, and when there is
// room again everything goes on (O47).
func TestEmbeddedStoreFull(t *testing.T) {
	addr := embeddedAddress(t)
	disk := mountSmallDisk(t, "4m")
	db := sqliteDatabase(t)
	s := startSink(t, "--nats-listen", addr, "--data-dir", disk.dir, "--store", db.url, "--lease", "1s", "--max-age", "20ms")
	s.ready()
	js := embeddedStream(t, addr)
	fillStream(t, js)
	full := readTruth(t, js, streamName)
	db.stored(t, full, time.Minute)
	s.ready()
	makeRoom(t, js)
	publish(t, js, "fragments.more", "<more/>")
	eventually(t, time.Minute, func() error {
		marks, err := db.marks(t)
		if err == nil && marks["more"] == 0 {
			err = fmt.Errorf("what was published after there was room is not stored")
		}
		return err
	})
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	full.text["more"] = "<more/>"
	db.exact(t, full)
}

// TestEmbeddedDiskFull: another program fills the disk of everything, streams and
// database. Publishers are refused, lobsink says so and is not ready; when there
// is room again both go on by themselves, and what was acknowledged is all there
// (O47).
func TestEmbeddedDiskFull(t *testing.T) {
	addr := embeddedAddress(t)
	disk := mountSmallDisk(t, "16m")
	s := startSink(t, "--nats-listen", addr, "--data-dir", disk.dir, "--lease", "1s", "--max-age", "20ms")
	s.ready()
	js := embeddedStream(t, addr)
	db := sqliteFile(filepath.Join(disk.dir, "lobsink.db"))
	var acknowledged []string
	try := func(text string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := js.Publish(ctx, "fragments.d", []byte(text))
		if err == nil {
			acknowledged = append(acknowledged, text)
		}
		return err
	}
	for i := range 50 {
		if err := try(fmt.Sprintf("<r n=\"%d\"/>", i)); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 {
		other := filepath.Join(disk.dir, "other")
		fill(t, other)
		var refused error
		for i := 0; i < 2000 && refused == nil; i++ {
			refused = try(fmt.Sprintf("<s n=\"%d.%d\">%s</s>", round, i, strings.Repeat("x", 2000)))
		}
		if refused == nil {
			t.Fatal("no publisher was refused although the disk is full")
		}
		s.says("publishers are refused")
		s.unready("embedded-nats")
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, func() error { return try(fmt.Sprintf("<again n=\"%d\"/>", round)) })
		s.ready()
	}
	want := readTruth(t, js, streamName)
	db.stored(t, want, time.Minute)
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	db.exact(t, want)
	rest := want.text["d"]
	for _, text := range acknowledged {
		_, after, found := strings.Cut(rest, text)
		if !found {
			t.Fatalf("acknowledged and not in the stream: %.40q", text)
		}
		rest = after
	}
}
