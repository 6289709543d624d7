package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// standing is a partition as `lobsink checkpoint show` prints it.
type standing struct {
	Partition, Life, Epoch, Pending int
	Checkpoint                      uint64
	Member, Obstacle                *string
}

func standings(t testing.TB, args []string) (all []standing) {
	t.Helper()
	out, errs, code := call(t, append([]string{"checkpoint", "show", "-o", "json"}, args...)...)
	var list struct{ Items []standing }
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 && code != 2 {
		t.Fatalf("checkpoint show: exit code %d, %v: %s%s", code, err, out, errs)
	}
	return list.Items
}

// audited returns the commands in the audit stream that ended well.
func audited(t testing.TB, b *broker) (commands []string) {
	t.Helper()
	js := b.connect()
	s, err := js.Stream(t.Context(), streamName+"_AUDIT")
	if err != nil {
		t.Fatal(err)
	}
	begun := map[string]bool{}
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			ID, Stage, Command, Result string
			Arguments                  []string
		}
		decode(t, string(m.Data), &r)
		switch {
		case r.Stage == "begin":
			begun[r.ID] = true
		case begun[r.ID] && r.Result == "ok":
			commands = append(commands, strings.Join(append([]string{r.Command}, r.Arguments...), " "))
		}
	}
	return commands
}

// TestCheckpointBack: checkpoints are set back again and again under a running
// lobsink, which reads again what it knows already.
func TestCheckpointBack(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := startRun(t, db, 30, 5000, time.Millisecond)
		args := []string{"--nats", r.nats, "--store", db.url}
		r.sink.ready()
		for n := range 4 {
			r.wait(300*time.Millisecond, 900*time.Millisecond)
			for _, s := range standings(t, args) {
				if s.Checkpoint == 0 || s.Partition%2 != n%2 && db.pg != nil {
					continue
				}
				to := s.Checkpoint / uint64(n+1)
				if n == 3 {
					to = 0
				}
				must(t, append([]string{"checkpoint", "set", fmt.Sprint(s.Partition), fmt.Sprint(to), "--yes"}, args...)...)
			}
		}
		r.check()
		if len(audited(t, r.broker)) == 0 {
			t.Error("nothing is in the audit stream")
		}
	})
}

// TestCheckpointForward: messages are skipped by decision, and their documents say
// so; a replay gets them all the same.
func TestCheckpointForward(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := newRepaired(t, db, "1")
		first := r.publish("k", "<a>")
		r.publish("other", "<o/>")
		r.stored("k", 1, "open")
		r.sink.terminate()
		r.publish("k", "<skipped/>")
		skipped := r.publish("late", "<first/>")
		if _, errs, code := call(t, r.args("checkpoint", "set", "0", fmt.Sprint(skipped))...); code != 64 || !strings.Contains(errs, "2 messages of 2 documents will be skipped: 1 open document become incomplete, and 1") {
			t.Errorf("without --yes: exit code %d, %s", code, errs)
		}
		must(t, r.args("checkpoint", "set", "0", fmt.Sprint(skipped), "--dry-run")...)
		for _, wrong := range [][]string{{"0", fmt.Sprint(skipped + 1)}, {"7", "0"}, {"x", "0"}} {
			if _, _, code := call(t, r.args(append([]string{"checkpoint", "set", "--yes"}, wrong...)...)...); code != 1 && code != 64 {
				t.Errorf("set %v: exit code %d", wrong, code)
			}
		}
		must(t, r.args("checkpoint", "set", "0", fmt.Sprint(skipped), "--yes")...)
		r.sink.start()
		r.publish("k", "</a>", "Lobsink-Final", "true")
		r.publish("late", "<second/>")
		r.stored("k", 2, "incomplete")
		r.stored("late", 1, "open")
		if d := db.show(t, "k"); d.Reason == nil || !strings.HasPrefix(*d.Reason, "gap: messages") || *d.FirstSequence != first {
			t.Errorf("document %+v", d)
		}
		if s := r.db.show(t, "other"); s.State != "open" {
			t.Errorf("a document that nothing was skipped of: %+v", s)
		}
		must(t, r.args("replay", "--key", "k")...)
		r.stored("k", 3, "complete")
		r.want["k"], r.want["other"], r.want["late"] = "<a><skipped/></a>", "<o/>", "<second/>"
		r.end()
		if got := strings.Join(audited(t, r.b), "\n"); !strings.Contains(got, fmt.Sprintf("checkpoint set 0 %d --yes=true", skipped)) || !strings.Contains(got, "replay --key=k") {
			t.Errorf("audit stream:\n%s", got)
		}
	})
}

// TestAdoptGap: the stream has discarded what was never read. The partition stops,
// and goes on by decision; open documents say that something may be missing.
func TestAdoptGap(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := newRepaired(t, db, db.partitions())
		keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for _, key := range keys {
			r.publish(key, "<"+key+">")
			r.want[key] = "<" + key + ">"
		}
		r.publish("whole", "<w/>", "Lobsink-Final", "true")
		r.want["whole"] = "<w/>"
		db.stored(t, readTruth(t, r.js, streamName), time.Minute)
		r.sink.terminate()
		for _, key := range keys {
			r.publish(key, "<lost/>")
		}
		s, err := r.js.Stream(t.Context(), streamName)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.sink.start()
		r.sink.says("may hold unread fragments")
		if _, errs, code := call(t, r.args("checkpoint", "show")...); code != 2 || !strings.Contains(errs, "lobsink checkpoint adopt") {
			t.Errorf("show: exit code %d, %s", code, errs)
		}
		r.sink.kill()
		must(t, r.args("checkpoint", "adopt", "--yes")...)
		r.sink.start()
		for _, key := range keys {
			r.publish(key, "</"+key+">", "Lobsink-Final", "true")
			r.want[key] += "</" + key + ">"
		}
		for _, key := range keys {
			r.stored(key, 2, "incomplete")
		}
		r.stored("whole", 1, "complete")
		if out := must(t, r.args("checkpoint", "adopt", "--yes")...); !strings.Contains(out, "nothing was changed") {
			t.Errorf("adopt again: %s", out)
		}
		r.end()
	})
}

// TestAdoptNewLife: the stream is deleted and made again, under a lobsink that is
// stopped or running. Open documents go on, or begin again.
func TestAdoptNewLife(t *testing.T) {
	for _, documents := range []string{"continue", "restart"} {
		t.Run(documents, func(t *testing.T) {
			databases(t, func(t *testing.T, db *database) {
				r := newRepaired(t, db, db.partitions())
				r.publish("open", "<a>")
				r.publish("whole", "<w/>", "Lobsink-Final", "true")
				r.publish("holed", "<h>")
				r.publish("holed", "\xff")
				r.stored("open", 1, "open")
				r.stored("whole", 1, "complete")
				r.stored("holed", 2, "open")
				r.sink.terminate()
				if err := r.js.DeleteStream(t.Context(), streamName); err != nil {
					t.Fatal(err)
				}
				must(t, r.args("setup", "--partitions", db.partitions())...)
				r.publish("open", "<b>")
				r.publish("new", "<n/>")
				for _, refused := range [][]string{{"replay", "--all"}, {"checkpoint", "set", "0", "0", "--yes"}, {"checkpoint", "adopt", "--yes"}} {
					if _, errs, code := call(t, r.args(refused...)...); code == 0 {
						t.Errorf("%v on another stream: exit code 0, %s", refused, errs)
					}
				}
				must(t, r.args("checkpoint", "adopt", "--documents", documents, "--yes")...)
				r.sink.start()
				r.publish("open", "</a>", "Lobsink-Final", "true")
				r.publish("whole", "<late/>")
				r.publish("holed", "</h>", "Lobsink-Final", "true")
				r.want["whole"], r.want["new"] = "<w/>", "<n/>"
				if documents == "continue" {
					r.want["open"], r.want["holed"] = "<a><b></a>", "<h></h>"
					r.stored("open", 3, "complete")
					r.stored("holed", 3, "incomplete")
				} else {
					r.want["open"], r.want["holed"] = "<b></a>", "</h>"
					r.stored("open", 2, "complete")
					r.stored("holed", 1, "complete")
				}
				r.stored("new", 1, "open")
				r.stored("whole", 2, "complete")
				for _, s := range standings(t, []string{"--nats", r.b.url(), "--store", db.url}) {
					if s.Life != 2 || s.Obstacle != nil {
						t.Errorf("%+v", s)
					}
				}
				r.end()
			})
		})
	}
}

// TestCheckpointPartitions: stream and database get another number of partitions,
// and every document goes on in its new one; a replay finds what was stored before.
func TestCheckpointPartitions(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := newRepaired(t, db, db.partitions())
		publish := func(state string) {
			for i := range 20 {
				key := fmt.Sprintf("doc-%d", i)
				text := fmt.Sprintf("<%s n='%d'/>", state, i)
				r.publish(key, text)
				r.want[key] += text
			}
		}
		stored := func() { t.Helper(); db.stored(t, readTruth(t, r.js, streamName), time.Minute) }
		publish("first")
		stored()
		if _, errs, code := call(t, r.args("checkpoint", "partitions", "7", "--yes")...); code == 0 {
			t.Errorf("beside a running lobsink: exit code 0, %s", errs)
		}
		if code := r.sink.terminate(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		publish("unread")
		if _, errs, code := call(t, r.args("checkpoint", "partitions", "7", "--yes")...); code != 1 || !strings.Contains(errs, "is not stored yet") {
			t.Errorf("not drained: exit code %d, %s", code, errs)
		}
		r.sink.start()
		stored()
		for _, n := range []string{"7", "2", "1", "5"} {
			if code := r.sink.terminate(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			must(t, r.args("checkpoint", "partitions", n, "--yes")...)
			publish("of-" + n)
			r.sink.start()
			stored()
			if got := standings(t, []string{"--nats", r.b.url(), "--store", db.url}); fmt.Sprint(len(got)) != n {
				t.Errorf("%d partitions, want %s", len(got), n)
			}
		}
		must(t, r.args("replay", "--all")...)
		must(t, r.args("doc", "verify", "--all", "--stream")...)
		r.end()
	})
}

// TestAdoptRunning: a lobsink that is running all the time goes on by itself with
// the new life of the stream, once it looks again.
func TestAdoptRunning(t *testing.T) {
	t.Parallel()
	db := sqliteDatabase(t)
	r := newRepaired(t, db, "1")
	r.publish("open", "<a>")
	r.stored("open", 1, "open")
	if err := r.js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	must(t, r.args("setup")...)
	r.publish("open", "</a>", "Lobsink-Final", "true")
	r.sink.says("is not the one this database was fed from")
	must(t, r.args("checkpoint", "adopt", "--documents", "continue", "--yes")...)
	r.want["open"] = "<a></a>"
	eventually(t, 3*time.Minute, func() error {
		if d := db.show(t, "open"); d.State != "complete" {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
	// Dead letters are of the new life.
	bad := r.publish("refused", "\xff")
	r.stored("refused", 1, "open")
	if l := letters(t, r.b)[bad]; l.Life != 2 {
		t.Errorf("dead letter %+v", l)
	}
	r.want["refused"] = ""
	r.end()
}
