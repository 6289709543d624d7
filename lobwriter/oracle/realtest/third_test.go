//go:build cgo

package realtest

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// statistics are those of the report that started lobsink, and what a flush must
// not have.
var statistics = []string{
	"consistent gets", "db block gets", "lob writes", "lob writes unaligned", "redo size", "SQL*Net roundtrips to/from client", "user commits",
}

// measured are the statistics of sessions, by name. It needs READ on V_$SESSTAT,
// V_$STATNAME and V_$SESSION.
func measured(ctx context.Context, db *sql.DB, of string) (map[string]int64, error) {
	rows, err := db.QueryContext(ctx, `SELECT n.name, SUM(s.value) FROM v$sesstat s JOIN v$statname n ON n.statistic# = s.statistic#
 JOIN v$session x ON x.sid = s.sid WHERE `+of+` AND n.name IN ('`+strings.Join(statistics, "', '")+`') GROUP BY n.name`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]int64{}
	for rows.Next() {
		var name string
		var value int64
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		all[name] = value
	}
	return all, rows.Err()
}

const (
	ofLobsink = "x.module = 'lobsink' AND x.action = 'flush' AND x.client_info LIKE 'realtest%'"
	ofMine    = "x.audsid = SYS_CONTEXT('USERENV', 'SESSIONID')"
)

// TestOneRoundTrip: what the database counts for a flush: one round trip, one commit,
// a LOB write for each chunk, no temporary LOB.
func TestOneRoundTrip(t *testing.T) {
	s, _ := fixture(t)
	watcher := raw(t)
	own := lobtest.NewOwner(t, s, 1)
	own.Flush(t, own.Append("warm", lobtest.Text(1, "up")))
	before, err := measured(t.Context(), watcher, ofLobsink)
	if err != nil {
		t.Skipf("it needs READ on V_$SESSTAT, V_$STATNAME and V_$SESSION: %v", err)
	}
	const flushes = 20
	chunks := int64(0)
	for i := range uint64(flushes) {
		var groups []lobwriter.Group
		for d := range uint64(5) {
			g := own.Append(fmt.Sprint("k", d), lobtest.Text(10+i*5+d, strings.Repeat("x", int(1+d*20_000))))
			chunks += int64(len(g.Chunks))
			groups = append(groups, g)
		}
		own.Flush(t, groups...)
	}
	after, err := measured(t.Context(), watcher, ofLobsink)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"SQL*Net roundtrips to/from client": flushes, "user commits": flushes, "lob writes": chunks} {
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	var temporary int64
	if err := watcher.QueryRowContext(t.Context(), "SELECT NVL(SUM(l.cache_lobs + l.nocache_lobs), 0) FROM v$temporary_lobs l JOIN v$session x ON x.sid = l.sid WHERE "+ofLobsink).Scan(&temporary); err == nil && temporary != 0 {
		t.Errorf("%d temporary LOBs", temporary)
	}
}

// TestReport prints the table of the report: 10,000 strings of 35 characters,
// appended one at a time and by lobsink.
func TestReport(t *testing.T) {
	const appends, text = 10_000, "<r>a string of thirty-five chars</r>"
	s, r := fixture(t)
	statement(t, "BEGIN EXECUTE IMMEDIATE 'DROP TABLE {}report'; EXCEPTION WHEN OTHERS THEN NULL; END;")
	statement(t, "CREATE TABLE {}report (body CLOB) LOB (body) STORE AS SECUREFILE (DISABLE STORAGE IN ROW CACHE LOGGING)")
	defer statement(t, "DROP TABLE {}report")
	line := func(name string, took time.Duration, before, after map[string]int64) {
		var b strings.Builder
		fmt.Fprintf(&b, "%-28s %8.2f s", name, took.Seconds())
		for _, stat := range slices.Sorted(maps.Keys(after)) {
			fmt.Fprintf(&b, "  %s %d", stat, after[stat]-before[stat])
		}
		t.Log(b.String())
	}
	for name, call := range map[string]string{
		"DBMS_LOB.APPEND per string":      "DBMS_LOB.APPEND(b, TO_CLOB(t))",
		"DBMS_LOB.WRITEAPPEND per string": "DBMS_LOB.WRITEAPPEND(b, LENGTH(t), t)",
	} {
		db := raw(t)
		before, _ := measured(t.Context(), db, ofMine) // without the privileges there are times only
		start := time.Now()
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf(`DECLARE b CLOB; t VARCHAR2(100) := '%s';
BEGIN
  INSERT INTO %sreport VALUES (EMPTY_CLOB()) RETURNING body INTO b;
  FOR i IN 1 .. %d LOOP %s; END LOOP;
  COMMIT;
END;`, text, prefix, appends, call)); err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		after, _ := measured(t.Context(), db, ofMine)
		line(name, took, before, after)
	}
	own := lobtest.NewOwner(t, s, 1)
	own.Flush(t, own.Append("warm", lobtest.Text(1, "up")))
	members := make([]batcher.Fragment, appends)
	for i := range members {
		members[i] = lobtest.Text(uint64(i+2), text)
	}
	group := own.Append("report", members...)
	watcher := raw(t)
	before, _ := measured(t.Context(), watcher, ofLobsink)
	start := time.Now()
	own.Flush(t, group)
	took := time.Since(start)
	after, _ := measured(t.Context(), watcher, ofLobsink)
	line("lobsink, one flush", took, before, after)
	document(t, r, "report", strings.Repeat(text, appends))
}
