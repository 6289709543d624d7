package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestPurge: complete documents are deleted again and again beside a running
// lobsink that is killed now and then. None comes back, whole or in part.
func TestPurge(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := startRun(t, db, 60, 3000, time.Millisecond)
		purge := []string{"doc", "purge", "--complete", "--older-than", "0s", "--nats", r.nats, "--store", db.url}
		kept := []string{"doc", "purge", "--complete", "--older-than", "24h", "--nats", r.nats, "--store", db.url}
		for publishing, n := true, 0; publishing; n++ {
			select {
			case <-r.done:
				publishing = false
			case <-time.After(200 * time.Millisecond):
			}
			must(t, purge...)
			if n%8 == 7 && n/8 < repairKills() {
				r.sink.kill()
				r.sink.start()
			}
		}
		if out := must(t, kept...); !strings.HasPrefix(out, "deleted 0 documents") {
			t.Errorf("what is new is deleted: %s", out)
		}
		eventually(t, time.Minute, func() error {
			must(t, purge...)
			if n := db.number(t, "select count(*) from lobsink_documents"); n > 0 {
				return fmt.Errorf("%d documents are left", n)
			}
			return nil
		})
		js := r.broker.connect()
		floored(t, js, time.Minute)
		r.sink.kill()
		r.sink.start()
		r.sink.ready()
		publish(t, js, "fragments.new", "<a/>", "Lobsink-Final", "true")
		publish(t, js, "fragments.doc-0", "<a/>") // a new document of an old name
		eventually(t, time.Minute, func() error {
			if n := db.number(t, "select count(*) from lobsink_documents"); n != 2 {
				return fmt.Errorf("%d documents", n)
			}
			return nil
		})
		if n := db.number(t, "select count(*) from lobsink_chunks"); n != 2 {
			t.Errorf("%d chunks, want 2", n)
		}
		// As long as the stream has a document it can be had again.
		must(t, "replay", "--key", "doc-1", "--nats", r.nats, "--store", db.url)
		want := readTruth(t, js, streamName)
		if got := db.texts(t); got["doc-1"] != want.text["doc-1"] || got["doc-0"] != "<a/>" || got["new"] != "<a/>" || len(got) != 3 {
			t.Errorf("documents %d, the one built again: %s", len(got), difference(got["doc-1"], want.text["doc-1"]))
		}
		if code := r.sink.terminate(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
	})
}
