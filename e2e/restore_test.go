package e2e

import (
	"testing"
	"time"

	"github.com/lobsink/lobsink/internal/pgtest"
)

// TestRestore: PostgreSQL is restored from a base backup that was taken in
// mid-stream, while lobsink is stopped, and while it is running. All documents heal
// from the stream, with no command given.
func TestRestore(t *testing.T) {
	t.Parallel()
	for name, running := range map[string]bool{"lobsink is stopped": false, "lobsink is running": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pg := pgtest.Start(t, pgtest.Replication())
			r := startRun(t, postgresOn(t, pg), 20, 5000, time.Millisecond)
			r.wait(time.Second, 2*time.Second)
			backup := pg.BaseBackup(t)
			r.wait(time.Second, 2*time.Second)
			if !running {
				if code := r.sink.terminate(); code != 0 {
					t.Errorf("exit code %d", code)
				}
			}
			pg.StopImmediate()
			pg.RestoreFrom(backup)
			pg.Restart()
			if !running {
				r.wait(0, time.Second)
				r.sink.start()
			}
			r.check()
			must(t, "doc", "verify", "--all", "--stream", "--nats", r.nats, "--store", r.store)
		})
	}
}
