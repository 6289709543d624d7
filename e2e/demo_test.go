package e2e

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// verdict is what `lobsink demo -o json` prints.
type verdict struct {
	Documents, Fragments, Bytes    int
	LOBWrites                      int `json:"lob_writes"`
	Missing, Duplicates, Differing int
	OutOfOrder                     int `json:"out_of_order"`
	Exact                          bool
	Seconds                        float64
}

// TestDemo: the demo on servers of one's own is exact, stands beside a real
// deployment, and leaves nothing behind.
func TestDemo(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		b := startBroker(t)
		must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
		js := b.connect()
		publish(t, js, "fragments.real", "<real/>")
		before := tables(t, db)

		demo(t, "--nats", b.url(), "--store", db.url)
		clean(t, b, db, before)

		if s, err := js.Stream(t.Context(), streamName); err != nil || s.CachedInfo().State.Msgs != 1 {
			t.Errorf("the stream of a real deployment was touched: %v", err)
		}
	})
}

// TestDemoKilled: what a demo that was killed has left is removed by the next.
func TestDemoKilled(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		b := startBroker(t)
		js := b.connect()
		args := []string{"demo", "--nats", b.url(), "--store", db.url, "--fragments", "1000000"}
		cmd := exec.Command(lobsink, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, func() error {
			s, err := js.Stream(t.Context(), "LOBSINK_DEMO")
			if err == nil && s.CachedInfo().State.Msgs < 1000 {
				err = fmt.Errorf("%d messages so far", s.CachedInfo().State.Msgs)
			}
			return err
		})
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) {
			t.Fatalf("it was not killed: %v", err)
		}
		if !slices.ContainsFunc(tables(t, db), isDemo) {
			t.Fatal("the killed demo has left no tables")
		}
		demo(t, "--nats", b.url(), "--store", db.url)
		clean(t, b, db, nil)
	})
}

// demo runs the demo, which must be exact and print one object.
func demo(t testing.TB, args ...string) (v verdict) {
	t.Helper()
	out := must(t, append([]string{"demo", "-o", "json", "--documents", "50", "--fragments", "5000"}, args...)...)
	d := json.NewDecoder(bytes.NewReader([]byte(out)))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || d.More() {
		t.Fatalf("not one object: %v in %q", err, out)
	}
	if !v.Exact || v.Missing+v.Duplicates+v.OutOfOrder+v.Differing > 0 || v.Documents <= 50 || v.Fragments <= 5000 {
		t.Errorf("%+v", v)
	}
	return v
}

// clean fails if streams or tables of a demo are left, or others are gone.
func clean(t testing.TB, b *broker, db *database, before []string) {
	t.Helper()
	for _, name := range []string{"LOBSINK_DEMO", "LOBSINK_DEMO_DEAD"} {
		if _, err := b.connect().Stream(t.Context(), name); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("stream %s: %v, want %v", name, err, jetstream.ErrStreamNotFound)
		}
	}
	if after := tables(t, db); !slices.Equal(after, before) {
		t.Errorf("left: %q, want %q", after, before)
	}
}

func isDemo(name string) bool { return strings.HasPrefix(name, "lobsink_demo_") }

// tables lists what is lobsink's in the database: tables, views, functions.
func tables(t testing.TB, d *database) []string {
	t.Helper()
	query := "select name from sqlite_master where name like 'lobsink%' order by name"
	if d.pg != nil {
		query = `select relname from pg_class where relname like 'lobsink%'
		         union all select proname from pg_proc where proname like 'lobsink%'
		         union all select typname from pg_type where typname like 'lobsink%' order by 1`
	}
	db := d.open(t)
	defer db.Close()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name sql.NullString
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name.String)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}
