package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// smallDisk is a file system of a few megabytes.
type smallDisk struct {
	t   testing.TB
	dir string
}

// mountSmallDisk mounts one. Without the right to mount the test is skipped.
func mountSmallDisk(t testing.TB, size string) *smallDisk {
	t.Helper()
	d := &smallDisk{t: t, dir: t.TempDir()}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "lobsink-test", d.dir).CombinedOutput(); err != nil {
		t.Skipf("a full disk needs the right to mount one: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", d.dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return d
}

// grow makes room.
func (d *smallDisk) grow(size string) {
	d.t.Helper()
	if out, err := exec.Command("mount", "-o", "remount,size="+size, d.dir).CombinedOutput(); err != nil {
		d.t.Fatalf("remount: %v: %s", err, out)
	}
}

// TestDiskFull: the disk of the SQLite file fills up. lobsink says so and what to
// do, is not ready, and goes on by itself when there is room; nothing is lost.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	disk := mountSmallDisk(t, "2m")
	db := sqliteFile(filepath.Join(disk.dir, "lobsink.db"))
	r := newRun(t, db, 20, 12000, 0)
	r.sink = r.consume()
	r.sink.ready()
	r.publish()
	r.sink.says("SQLITE_FULL")
	r.sink.says("make room on the disk")
	r.sink.unready("database")
	if out, errs, code := call(t, "doc", "ls", "--store", db.url); code != 0 {
		t.Errorf("doc ls while the disk is full: exit %d, %s%s", code, out, errs)
	}
	disk.grow("64m")
	r.sink.ready()
	r.check()
}

// TestStartWithFullDisk: the disk of the SQLite file is full at the start.
func TestStartWithFullDisk(t *testing.T) {
	t.Parallel()
	disk := mountSmallDisk(t, "2m")
	db := sqliteFile(filepath.Join(disk.dir, "lobsink.db"))
	r := newRun(t, db, 5, 100, 0)
	r.publish()
	<-r.done
	fill(t, filepath.Join(disk.dir, "other"))
	r.sink = r.consume()
	r.sink.says("make room on the disk")
	r.sink.unready("database")
	disk.grow("64m")
	r.sink.ready()
	r.check()
}

// fill writes a file until the disk is full.
func fill(t testing.TB, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 512); ; {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}

// TestStoreFull: the store of NATS is full. Publishers are refused, and so are
// the dead letters: what is in the stream is stored all the same, dead letters
// wait for room, and nothing is lost (O47).
func TestStoreFull(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		b := startSmallBroker(t, 1<<20)
		must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
		js := b.connect()
		fillStream(t, js)
		s := startSink(t, "--nats", b.url(), "--store", db.url, "--lease", "1s", "--max-age", "20ms")
		want := readTruth(t, js, streamName)
		db.stored(t, want, time.Minute)
		s.ready()
		makeRoom(t, js)
		publish(t, js, "fragments.bad", "\xff")
		publish(t, js, "fragments.more", "<more/>")
		eventually(t, time.Minute, func() error {
			marks, err := db.marks(t)
			if err == nil && (marks["more"] == 0 || marks["bad"] == 0) {
				err = fmt.Errorf("what was published after there was room is not stored")
			}
			return err
		})
		if code := s.terminate(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
		want.text["more"], want.text["bad"] = "<more/>", ""
		db.exact(t, want)
	})
}

// TestDeadLettersFull: there is no room for a dead letter. The document waits,
// the checkpoint too, and nothing is lost.
func TestDeadLettersFull(t *testing.T) {
	t.Parallel()
	b, db := startBroker(t), sqliteDatabase(t)
	must(t, "setup", "--nats", b.url(), "--store", db.url)
	js := b.connect()
	dead, err := js.Stream(t.Context(), streamName+"_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	limited := dead.CachedInfo().Config
	limited.MaxMsgs, limited.Discard = 2, jetstream.DiscardNew
	if _, err := js.UpdateStream(t.Context(), limited); err != nil {
		t.Fatal(err)
	}
	s := startSink(t, "--nats", b.url(), "--store", db.url, "--lease", "1s", "--max-age", "20ms")
	s.ready()
	for range 5 {
		publish(t, js, "fragments.bad", "\xff")
	}
	good := publish(t, js, "fragments.good", "<good/>")
	s.says("dead letter")
	eventually(t, time.Minute, func() error {
		if marks, err := db.marks(t); err != nil || marks["good"] != good {
			return fmt.Errorf("the good document is at %d of %d, %v", marks["good"], good, err)
		}
		return nil
	})
	s.kill() // and once more after a crash
	s.start()
	s.says("dead letter")
	limited.MaxMsgs = -1
	if _, err := js.UpdateStream(t.Context(), limited); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if marks, err := db.marks(t); err != nil || marks["bad"] != good-1 {
			return fmt.Errorf("the bad document is at %d of %d, %v", marks["bad"], good-1, err)
		}
		return nil
	})
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	if got := letters(t, b); len(got) != 5 {
		t.Errorf("%d dead letters, want 5", len(got))
	}
	if d := db.show(t, "bad"); d.Holes != 5 || d.Fragments != 5 {
		t.Errorf("%+v, want 5 holes", d)
	}
}

// fillStream publishes until the server refuses.
func fillStream(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	noise := make([]byte, 8<<10)
	for i := 0; i < 10_000; i++ {
		for j := range noise {
			noise[j] = byte('a' + rand.IntN(26))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := js.Publish(ctx, fmt.Sprintf("fragments.full-%d", i%7), noise)
		cancel()
		if err == nil {
			continue
		}
		if i == 0 || !strings.Contains(err.Error(), "resource") && !strings.Contains(err.Error(), "maximum") {
			t.Fatalf("message %d was refused without a clear reason: %v", i, err)
		}
		t.Logf("message %d: %v", i, err)
		return
	}
	t.Fatal("the store was never full")
}

// makeRoom deletes what is stored already.
func makeRoom(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	s, err := js.Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
}
