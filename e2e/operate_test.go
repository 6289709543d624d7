package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// TestOperate: flush stores what waits, pause leaves in the stream what comes, and
// resume goes on; status shows it.
func TestOperate(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		b := startBroker(t)
		must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
		s := startSink(t, "--nats", b.url(), "--store", db.url, "--max-age", "1h")
		s.ready()
		js := b.connect()
		text := ""
		add := func(n int) {
			t.Helper()
			piece := fmt.Sprintf("<r n=\"%d\"/>", n)
			publish(t, js, "fragments.ORDER-1", piece)
			text += piece
		}
		ask := func(words ...string) string {
			t.Helper()
			out, errs, code := call(t, append(words, "--nats", b.url())...)
			if code != 0 {
				t.Fatalf("%v: exit %d: %s", words, code, errs)
			}
			return out
		}
		flushed := func() {
			t.Helper()
			eventually(t, time.Minute, func() error {
				ask("flush")
				got, errs, _ := call(t, "doc", "cat", "ORDER-1", "--store", db.url)
				if got != text {
					return fmt.Errorf("%s%s", difference(got, text), errs)
				}
				return nil
			})
		}
		add(1)
		flushed()
		stored := text

		ask("pause")
		add(2)
		ask("flush")
		time.Sleep(500 * time.Millisecond) // nothing must happen
		if got := ask("doc", "cat", "ORDER-1", "--store", db.url); got != stored {
			t.Errorf("stored while paused: %s", difference(got, stored))
		}
		var status struct {
			Items []struct {
				Ready      bool
				Partitions []struct{ Owned, Paused bool }
			}
		}
		if err := json.Unmarshal([]byte(ask("status", "-o", "json")), &status); err != nil {
			t.Fatal(err)
		}
		if len(status.Items) != 1 || !status.Items[0].Ready || len(status.Items[0].Partitions) == 0 {
			t.Fatalf("status: %+v", status)
		}
		for i, p := range status.Items[0].Partitions {
			if !p.Owned || !p.Paused {
				t.Errorf("partition %d: %+v, want it owned and paused", i, p)
			}
		}

		ask("resume")
		flushed()
		if code := s.terminate(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
		if _, errs, code := call(t, "status", "--nats", b.url()); code != 1 {
			t.Errorf("status of nobody: exit %d, %s", code, errs)
		}
	})
}
