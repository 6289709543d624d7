package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestStartWithoutNATS: no NATS at the start; lobsink waits, says so, and begins
// by itself (O24, O45).
func TestStartWithoutNATS(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		r := newRun(t, db, 10, 200, 0)
		r.publish()
		<-r.done
		r.broker.stop()
		r.sink = r.consume()
		r.sink.says("NATS cannot be reached")
		r.sink.unready("NATS does not answer")
		r.broker.start()
		r.sink.ready()
		r.check()
	})
}

// TestStartWithoutDatabase: no PostgreSQL at the start (O24).
func TestStartWithoutDatabase(t *testing.T) {
	t.Parallel()
	db := postgresDatabase(t)
	r := newRun(t, db, 10, 200, 0)
	r.publish()
	<-r.done
	db.pg.StopImmediate()
	r.sink = r.consume()
	r.sink.says("waiting for the database")
	r.sink.unready("database")
	db.pg.Restart()
	r.sink.ready()
	r.check()
}

// TestStartWithLockedFile: another program holds the write lock of the SQLite
// file at the start and lets it go.
func TestStartWithLockedFile(t *testing.T) {
	t.Parallel()
	db := sqliteDatabase(t)
	r := newRun(t, db, 10, 200, 0)
	r.publish()
	<-r.done
	free := lockFile(t, db)
	r.sink = r.consume()
	r.sink.address()
	time.Sleep(2 * time.Second) // longer than flush_timeout
	if !r.sink.running() {
		t.Fatal("it ended because another program had the file locked")
	}
	free()
	r.sink.ready()
	r.check()
}

// TestLockedFile: another program holds the write lock of the SQLite file for
// longer than a lease, while lobsink runs.
func TestLockedFile(t *testing.T) {
	t.Parallel()
	db := sqliteDatabase(t)
	r := startRun(t, db, 20, 2000, time.Millisecond)
	for range 2 {
		r.sink.ready()
		r.wait(200*time.Millisecond, 500*time.Millisecond)
		free := lockFile(t, db)
		r.wait(1500*time.Millisecond, 2500*time.Millisecond)
		free()
	}
	r.check()
}

// lockFile takes the write lock of a SQLite file; the function returned lets it
// go.
func lockFile(t *testing.T, d *database) (free func()) {
	t.Helper()
	db := openSQL(t, "sqlite", "file:"+d.path+"?_pragma=busy_timeout(10000)")
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	exec := func(query string) {
		t.Helper()
		if _, err := db.Exec(query); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", query, err))
		}
	}
	exec("begin immediate")
	return func() { t.Helper(); exec("rollback") }
}

// TestKilledSessions: an administrator ends all sessions of the database, idle
// ones and busy ones (O24, O66).
func TestKilledSessions(t *testing.T) {
	t.Parallel()
	db := postgresDatabase(t)
	r := startRun(t, db, 20, 3000, time.Millisecond)
	admin := openSQL(t, "pgx", db.pg.URL("postgres"))
	defer admin.Close()
	for range kills() {
		r.sink.ready()
		r.wait(50*time.Millisecond, 300*time.Millisecond)
		// Between two lives there may be none.
		eventually(t, 20*time.Second, func() error {
			var ended int
			err := admin.QueryRow("select count(pg_terminate_backend(pid)) from pg_stat_activity where datname like 'test%'").Scan(&ended)
			if err == nil && ended == 0 {
				err = errors.New("there is no session to end")
			}
			return err
		})
	}
	r.check()
}
