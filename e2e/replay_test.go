package e2e

import (
	"database/sql"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// repairKills is how often a command that repairs is killed.
func repairKills() int {
	if *long {
		return 20
	}
	return 3
}

// change writes to the database behind lobsink's back.
func (d *database) change(t testing.TB, query string) (changed int64) {
	t.Helper()
	var db *sql.DB
	if d.pg != nil {
		db = d.open(t)
	} else {
		db = openSQL(t, "sqlite", "file:"+d.path+"?_pragma=busy_timeout(20000)")
	}
	defer db.Close()
	res, err := db.ExecContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	changed, err = res.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// number reads one number of the database.
func (d *database) number(t testing.TB, query string) (n int64) {
	t.Helper()
	db := d.open(t)
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// tidy fails the test if there are chunks that belong to no document, or to a
// generation that is not the document's.
func (d *database) tidy(t testing.TB) {
	t.Helper()
	if n := d.number(t, `
		select count(*) from lobsink_chunks c
		 where not exists (select 1 from lobsink_documents d where d.id = c.document and d.generation = c.generation)`); n != 0 {
		t.Errorf("%d chunks were left behind", n)
	}
}

// killed runs a command and kills it after a while; it reports whether it was
// killed before its end.
func killed(t testing.TB, after time.Duration, args ...string) bool {
	t.Helper()
	cmd := exec.Command(lobsink, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { cmd.Process.Kill() })
	defer timer.Stop()
	return cmd.Wait() != nil && cmd.ProcessState.ExitCode() == -1
}

// damage changes the first letter of the text of some documents, and takes the
// first chunk away from others.
func (d *database) damage(t testing.TB) {
	t.Helper()
	// A flush may come in between, so each statement chooses by itself.
	changed := d.change(t, `
		update lobsink_chunks set body = 'X' || substr(body, 2)
		 where n = 1 and document in (select id from lobsink_documents where doc_key like 'doc-%0')`)
	lost := d.change(t, `
		delete from lobsink_chunks where n = 1 and document in (select id from lobsink_documents where doc_key like 'doc-%1')`)
	if changed == 0 || lost == 0 {
		t.Fatalf("changed %d documents, took a chunk from %d", changed, lost)
	}
}

// TestReplay: documents are damaged and built again beside a running lobsink that
// goes on storing them. A replay that is killed leaves nothing behind.
func TestReplay(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := startRun(t, db, 50, 6000, time.Millisecond)
		replay := []string{"replay", "--nats", r.nats, "--store", r.store, "--all"}
		eventually(t, time.Minute, func() error {
			if n := db.number(t, "select count(*) from lobsink_documents"); n < 50 {
				return fmt.Errorf("%d documents", n)
			}
			return nil
		})
		db.damage(t)
		for range repairKills() {
			killed(t, time.Duration(r.rng.Int64N(int64(700*time.Millisecond)))+50*time.Millisecond, replay...)
		}
		out := must(t, replay...)
		if !strings.Contains(out, "documents loaded           50\n") || !strings.Contains(out, "documents rejected         0\n") {
			t.Errorf("the replay says:\n%s", out)
		}
		r.check()
		must(t, "doc", "verify", "--all", "--store", db.url)
		db.tidy(t)
		// Alone, without a running lobsink.
		db.damage(t)
		if _, _, code := call(t, "doc", "verify", "--all", "--store", db.url); code != 1 {
			t.Errorf("verify of damaged documents: exit code %d", code)
		}
		must(t, replay...)
		db.exact(t, readTruth(t, r.broker.connect(), streamName))
		db.tidy(t)
	})
}

// TestReplaySelects: by key, by sequence and by time; a dry run changes nothing.
func TestReplaySelects(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		b := startBroker(t)
		must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
		js := b.connect()
		s := startSink(t, "--nats", b.url(), "--store", db.url, "--max-age", "50ms")
		seqs := map[string]uint64{}
		for _, key := range []string{"a", "b", "c", "d"} {
			publish(t, js, "fragments."+key, "<"+key+">")
		}
		middle := time.Now().UTC().Format(time.RFC3339Nano)
		for _, key := range []string{"b", "c", "d"} {
			seqs[key] = publish(t, js, "fragments."+key, "</"+key+">", "Lobsink-Final", "true")
		}
		want := readTruth(t, js, streamName)
		db.stored(t, want, time.Minute)
		generations := func() string {
			var all strings.Builder
			for _, key := range []string{"a", "b", "c", "d"} {
				fmt.Fprintf(&all, "%d", db.number(t, "select generation from lobsink_documents where doc_key = '"+key+"'"))
			}
			return all.String()
		}
		replay := func(args ...string) string {
			t.Helper()
			return must(t, append([]string{"replay", "--nats", b.url(), "--store", db.url}, args...)...)
		}
		for _, step := range []struct {
			after string
			args  []string
		}{
			{"1111", []string{"--all", "--dry-run"}},
			{"2121", []string{"--key", "a", "--key", "c"}},
			{"2221", []string{"--from-seq", fmt.Sprint(seqs["b"]), "--to", fmt.Sprint(seqs["b"])}},
			{"2232", []string{"--from-seq", fmt.Sprint(seqs["c"])}},
			{"2343", []string{"--since", middle}},
			{"3454", []string{"--all"}},
		} {
			replay(step.args...)
			if got := generations(); got != step.after {
				t.Fatalf("after %v the generations are %s, want %s", step.args, got, step.after)
			}
		}
		s.terminate()
		db.exact(t, want)
		db.tidy(t)
	})
}

// TestReplayRefuses: what the stream no longer has is not left out; the document
// stays as it is, and the exit code says so.
func TestReplayRefuses(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		b := startBroker(t)
		must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
		js := b.connect()
		sink := startSink(t, "--nats", b.url(), "--store", db.url, "--max-age", "50ms")
		seqs := map[string][]uint64{}
		for n := range 3 {
			for _, key := range []string{"begin", "middle", "end", "all", "whole"} {
				seqs[key] = append(seqs[key], publish(t, js, "fragments."+key, fmt.Sprintf("<%s n=%d/>", key, n)))
			}
		}
		want := readTruth(t, js, streamName)
		db.stored(t, want, time.Minute)
		s, err := js.Stream(t.Context(), streamName)
		if err != nil {
			t.Fatal(err)
		}
		gone := []uint64{seqs["begin"][0], seqs["middle"][1], seqs["end"][2]}
		for _, seq := range append(gone, seqs["all"]...) {
			if err := s.DeleteMsg(t.Context(), seq); err != nil {
				t.Fatal(err)
			}
		}
		out, errs, code := call(t, "replay", "--all", "--nats", b.url(), "--store", db.url)
		if code != 2 || !strings.Contains(out, "documents rejected         4\n") || !strings.Contains(out, "documents loaded           1\n") {
			t.Errorf("exit code %d:\n%s", code, out)
		}
		for key, why := range map[string]string{
			"begin":  fmt.Sprintf("it began at sequence %d, the first that is there is %d", seqs["begin"][0], seqs["begin"][1]),
			"middle": "only 2 of its 3 fragments",
			"end":    "no longer has its end",
			"all":    "none of its fragments",
		} {
			if !strings.Contains(errs, "rejected: "+key+": ") || !strings.Contains(errs, why) {
				t.Errorf("it does not say of %s that %q: %s", key, why, errs)
			}
		}
		if _, errs, code := call(t, "replay", "--key", "nobody", "--nats", b.url(), "--store", db.url); code != 2 || !strings.Contains(errs, "no such document") {
			t.Errorf("a document that there is not: exit code %d, %s", code, errs)
		}
		sink.terminate()
		db.exact(t, want)
		db.tidy(t)
	})
}
