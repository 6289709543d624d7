package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// refuseText makes the database refuse every text with BOOM in it, until allow is
// called.
func (d *database) refuseText(t testing.TB) (allow func()) {
	t.Helper()
	if d.pg != nil {
		d.change(t, `alter table lobsink_chunks add constraint no_boom check (body not like '%BOOM%')`)
		return func() { d.change(t, `alter table lobsink_chunks drop constraint no_boom`) }
	}
	d.change(t, `
		create trigger no_boom before insert on lobsink_chunks when new.body like '%BOOM%'
		begin select raise(abort, 'no BOOM here'); end`)
	return func() { d.change(t, `drop trigger no_boom`) }
}

// requeued is the JSON of dlq requeue.
type requeued struct {
	Generation, Fragments, Holes, Late, Bytes int
	State                                     string
	LeftOut                                   []letter `json:"left_out"`
	Removed                                   int      `json:"dead_letters_removed"`
}

// repaired is a broker, a database, and a lobsink that has refused some of what was
// published.
type repaired struct {
	t    *testing.T
	b    *broker
	db   *database
	js   jetstream.JetStream
	sink *sink
	want map[string]string
}

func newRepaired(t *testing.T, db *database, partitions string) *repaired {
	t.Helper()
	r := &repaired{t: t, b: startBroker(t), db: db, want: map[string]string{}}
	must(t, "setup", "--nats", r.b.url(), "--store", db.url, "--partitions", partitions)
	r.js = r.b.connect()
	r.sink = startSink(t, "--nats", r.b.url(), "--store", db.url, "--lease", "1s", "--max-age", "50ms", "--max-fragment-bytes", "64KiB")
	return r
}

func (r *repaired) publish(key, text string, header ...string) uint64 {
	r.t.Helper()
	return publish(r.t, r.js, "fragments."+key, text, header...)
}

// stored waits until a document has so many fragments, and then for its state.
func (r *repaired) stored(key string, fragments int, state string) {
	r.t.Helper()
	eventually(r.t, time.Minute, func() error {
		out, _, code := call(r.t, "doc", "show", key, "-o", "json", "--store", r.db.url)
		var d document
		if code == 0 {
			decode(r.t, out, &d)
		}
		if d.Fragments != fragments || d.State != state {
			return fmt.Errorf("document %s: %+v, want %d fragments and state %s", key, d, fragments, state)
		}
		return nil
	})
}

func (r *repaired) args(args ...string) []string {
	return append(args, "--nats", r.b.url(), "--store", r.db.url)
}

// requeue builds a document again, which must succeed.
func (r *repaired) requeue(key string, args ...string) (v requeued) {
	r.t.Helper()
	decode(r.t, must(r.t, r.args(append([]string{"dlq", "requeue", key, "-o", "json"}, args...)...)...), &v)
	return v
}

// refuses checks that a requeue changes nothing.
func (r *repaired) refuses(says, key string, args ...string) {
	r.t.Helper()
	before := r.db.show(r.t, key)
	out, errs, code := call(r.t, r.args(append([]string{"dlq", "requeue", key}, args...)...)...)
	if code != 2 || !strings.Contains(errs, says) || out != "" {
		r.t.Errorf("requeue %s %v: exit code %d, %s%s; want 2 and %q", key, args, code, out, errs, says)
	}
	if after := r.db.show(r.t, key); fmt.Sprintf("%+v", after.State)+after.CRC32C != before.State+before.CRC32C {
		r.t.Errorf("document %+v, was %+v", after, before)
	}
}

// TestRequeue: refused fragments get into their documents, in order, or are left
// out or replaced, and the document says so (O23, O25, O61).
func TestRequeue(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := newRepaired(t, db, db.partitions())
		final := []string{"Lobsink-Final", "true"}
		// The database refuses a text, and everything of that document after it.
		allow := db.refuseText(t)
		r.publish("refused", "<a>")
		r.stored("refused", 1, "open")
		r.publish("refused", "<BOOM/>")
		r.stored("refused", 2, "quarantined")
		r.publish("refused", "")
		r.publish("refused", "<after/>")
		r.publish("refused", "</a>", final...)
		r.stored("refused", 5, "quarantined")
		r.refuses("refuses its text", "refused")
		allow()
		if v := r.requeue("refused", "--dry-run"); v.State != "complete" || v.Removed != 0 || v.Generation != 2 {
			t.Errorf("dry run: %+v", v)
		}
		if v := r.requeue("refused"); v.State != "complete" || v.Fragments != 5 || v.Holes != 0 || v.Removed != 3 {
			t.Errorf("requeued: %+v", v)
		}
		r.want["refused"] = "<a><BOOM/><after/></a>"

		// A limit that is raised.
		large := strings.Repeat("x", 64<<10+1)
		r.publish("large", "<a>")
		r.publish("large", large)
		r.publish("large", "</a>", final...)
		r.stored("large", 3, "incomplete")
		r.refuses("refused again: message", "large", "--max-fragment-bytes", "64KiB")
		r.requeue("large")
		r.want["large"] = "<a>" + large + "</a>"

		// What stays refused is decided about.
		r.publish("latin1", "<a>")
		bad := r.publish("latin1", "\xe9")
		worse := r.publish("latin1", "\x00")
		r.publish("latin1", "</a>", final...)
		r.stored("latin1", 4, "incomplete")
		r.refuses("invalid-utf8", "latin1")
		file := filepath.Join(t.TempDir(), "fixed.xml")
		if err := os.WriteFile(file, []byte("é\r\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		replaced, omitted := fmt.Sprintf("%d=%s", bad, file), fmt.Sprint(worse)
		r.refuses("nul", "latin1", "--replace", replaced)
		r.refuses("no fragment of it", "latin1", "--replace", replaced, "--without", omitted, "--without", fmt.Sprint(worse+1000))
		v := r.requeue("latin1", "--replace", replaced, "--without", omitted)
		if v.State != "incomplete" || v.Holes != 1 || len(v.LeftOut) != 1 || v.LeftOut[0].Sequence != worse || v.LeftOut[0].Code != "omitted" {
			t.Errorf("requeued: %+v", v)
		}
		r.want["latin1"] = "<a>é\r\n</a>"
		if d := db.show(t, "latin1"); d.Reason == nil || !strings.Contains(*d.Reason, "omitted") {
			t.Errorf("the omission is not recorded: %+v", d)
		}
		// A replay comes to the same text.
		must(t, r.args("replay", "--key", "latin1")...)

		// What came too late still does.
		r.publish("late", "<a/>", final...)
		r.publish("late", "<too-late/>")
		r.stored("late", 2, "complete")
		r.refuses("late", "late")
		r.want["late"] = "<a/>"

		if _, errs, code := call(t, r.args("dlq", "requeue", "nobody")...); code != 1 || !strings.Contains(errs, "no dead letter of document") {
			t.Errorf("requeue of nothing: exit code %d, %s", code, errs)
		}
		left := letters(t, r.b)
		if len(left) != 3 || left[bad].Code != "invalid-utf8" || left[worse].Code != "nul" {
			t.Errorf("dead letters left: %+v", left)
		}
		r.end()
	})
}

// end drains and compares.
func (r *repaired) end() {
	r.t.Helper()
	if code := r.sink.terminate(); code != 0 {
		r.t.Errorf("exit code %d after SIGTERM", code)
	}
	r.db.exact(r.t, truth{text: r.want})
	must(r.t, "doc", "verify", "--all", "--store", r.db.url)
	r.db.tidy(r.t)
}

// TestRequeueFromLetters: the stream has discarded a quarantined document, which is
// built from what is stored and the dead letters.
func TestRequeueFromLetters(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := newRepaired(t, db, "1") // none is idle when the stream loses its messages
		allow := db.refuseText(t)
		publishDocument := func(key string) {
			r.publish(key, "<"+key+">")
			r.publish(key, "\xff")
			r.publish(key, "é")
			r.stored(key, 3, "open")
			r.publish(key, "<BOOM/>")
			r.stored(key, 4, "quarantined")
			r.publish(key, "<after n='"+key+"'/>", "Lobsink-Index", "5")
		}
		publishDocument("whole")
		publishDocument("poor")
		whole := r.publish("whole", "</whole>", "Lobsink-Final", "true")
		r.stored("whole", 6, "quarantined")
		r.stored("poor", 5, "quarantined")
		s, err := r.js.Stream(t.Context(), streamName)
		if err != nil {
			t.Fatal(err)
		}
		// A hole in the midst of a text has no place without the stream.
		r.publish("holed", "<a>")
		r.publish("holed", "\xff")
		r.publish("holed", "</a>", "Lobsink-Final", "true")
		r.stored("holed", 3, "incomplete")
		allow()
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		var bad []string
		for seq, l := range letters(t, r.b) {
			if *l.Key != "holed" && l.Code == "invalid-utf8" {
				bad = append(bad, fmt.Sprint(seq))
			}
		}
		if len(bad) != 2 {
			t.Fatalf("holes %v", bad)
		}
		r.refuses("invalid-utf8", "whole")
		v := r.requeue("whole", "--without", fmt.Sprint(whole-9))
		if v.State != "incomplete" || v.Fragments != 6 || v.Holes != 1 || v.Removed != 3 {
			t.Errorf("requeued: %+v", v)
		}
		r.want["whole"] = "<whole>é<BOOM/><after n='whole'/></whole>"
		r.refuses("not where in the text", "holed", "--without", fmt.Sprint(whole+2))
		r.want["holed"] = "<a></a>"
		// A letter that is gone is not left out without a word.
		poor := whole - 1
		must(t, "dlq", "purge", "--key", "poor", "--code", "quarantined", "--nats", r.b.url())
		r.refuses("the dead letters have 2", "poor", "--without", fmt.Sprint(poor-3))
		v = r.requeue("poor", "--without", fmt.Sprint(poor-3), "--without", fmt.Sprint(poor))
		if v.Holes != 2 || v.State != "open" {
			t.Errorf("requeued: %+v", v)
		}
		r.want["poor"] = "<poor>é<BOOM/>"
		// The owner goes on from there.
		r.publish("poor", "</poor>", "Lobsink-Final", "true")
		r.want["poor"] += "</poor>"
		r.stored("poor", 6, "incomplete")
		r.end()
	})
}

// TestRequeueKill: kill -9 in the middle of a requeue of a large document that gets
// more fragments all the time.
func TestRequeueKill(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := newRepaired(t, db, db.partitions())
		allow := db.refuseText(t)
		var text strings.Builder
		n := 0
		publish := func(text0 string, header ...string) {
			n++
			text.WriteString(text0)
			r.publish("big", text0, header...)
		}
		for i := range 300 {
			publish(fmt.Sprintf("<n i='%d'>%s</n>", i, strings.Repeat("é", 10_000)))
		}
		publish("<BOOM/>")
		r.stored("big", n, "quarantined")
		allow()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		more := make(chan struct{})
		go func() {
			defer close(more)
			for i := 0; ctx.Err() == nil; i++ {
				publish(fmt.Sprintf("<more i='%d'/>", i))
				time.Sleep(10 * time.Millisecond)
			}
		}()
		requeue := r.args("dlq", "requeue", "big")
		for i := range repairKills() {
			killed(t, time.Duration(100+150*i)*time.Millisecond, requeue...)
		}
		if _, errs, code := call(t, requeue...); code != 0 && !strings.Contains(errs, "no dead letter of document") {
			t.Errorf("exit code %d: %s", code, errs)
		}
		cancel()
		<-more
		publish("</end>", "Lobsink-Final", "true")
		eventually(t, time.Minute, func() error {
			if d := db.show(t, "big"); d.Fragments != n {
				return fmt.Errorf("%+v, want %d fragments", d, n)
			}
			return nil
		})
		// What was refused between the last look and the swap is still there.
		if d := db.show(t, "big"); d.State != "complete" {
			t.Errorf("document %+v", d)
		}
		// One that was being refused at the moment of the swap may be in both.
		if len(letters(t, r.b)) > 0 {
			must(t, requeue...)
		}
		if left := letters(t, r.b); len(left) > 0 {
			t.Errorf("%d dead letters of fragments that are in the document", len(left))
		}
		r.want["big"] = text.String()
		r.end()
	})
}
