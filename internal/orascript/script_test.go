package orascript_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/orascript"
)

func TestStatements(t *testing.T) {
	t.Parallel()
	s := orascript.Script{Text: `-- A comment.
SET DEFINE OFF
WHENEVER SQLERROR EXIT FAILURE ROLLBACK

-- Another one.
SELECT 1
  FROM dual -- inside
 WHERE 1 / 2 > 0
/

BEGIN
  make(q'[
CREATE TABLE t (a NUMBER)]');
  make(q'[CREATE TABLE u (a NUMBER)]');
END;
/
/
COMMIT
`}
	got := s.Statements()
	want := []orascript.Statement{
		{Line: 6, Text: "SELECT 1\n  FROM dual -- inside\n WHERE 1 / 2 > 0"},
		{Line: 11, Text: "BEGIN\n  make(q'[\nCREATE TABLE t (a NUMBER)]');\n  make(q'[CREATE TABLE u (a NUMBER)]');\nEND;"},
		{Line: 18, Text: "COMMIT"},
	}
	if !slices.Equal(got, want) {
		t.Fatalf("statements %v", got)
	}
	if got[0].IsPLSQL() || !got[1].IsPLSQL() {
		t.Error("a block is not told from a query")
	}
	embedded := got[1].Embedded()
	if !slices.Equal(embedded, []orascript.Statement{{Line: 13, Text: "CREATE TABLE t (a NUMBER)"}, {Line: 14, Text: "CREATE TABLE u (a NUMBER)"}}) {
		t.Errorf("embedded statements %v", embedded)
	}
}

// TestSQLPlus looks for what SQL*Plus would read otherwise than a driver.
func TestSQLPlus(t *testing.T) {
	t.Parallel()
	for _, s := range everyScript(t) {
		for _, statement := range s.Statements() {
			if !statement.IsPLSQL() && strings.HasSuffix(statement.Text, ";") {
				t.Errorf("%s:%d: plain SQL ends with a semicolon, which a driver does not take", s.Name, statement.Line)
			}
			if statement.IsPLSQL() && !strings.HasSuffix(statement.Text, ";") {
				t.Errorf("%s:%d: PL/SQL does not end with a semicolon", s.Name, statement.Line)
			}
			for line := range strings.Lines(statement.Text) {
				line = strings.TrimSpace(line)
				if !statement.IsPLSQL() && strings.HasSuffix(line, ";") {
					t.Errorf("%s:%d: SQL*Plus ends the statement at %q", s.Name, statement.Line, line)
				}
				if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "@") || strings.HasSuffix(line, " -") {
					t.Errorf("%s:%d: SQL*Plus reads %q as its own", s.Name, statement.Line, line)
				}
			}
			if len(statement.Text) > 0 && strings.Contains(statement.Text, "\t") {
				t.Errorf("%s:%d: there is a tab", s.Name, statement.Line)
			}
		}
		if s.Name != "schema" && !strings.Contains(s.Text, "WHENEVER SQLERROR EXIT FAILURE ROLLBACK\n") {
			t.Errorf("%s: an error would not end it", s.Name)
		}
	}
}

// TestMigrations: each records its own number, last, and the package is looked at.
func TestMigrations(t *testing.T) {
	t.Parallel()
	for _, s := range install(t, orascript.Options{Partitions: 1}) {
		all := s.Statements()
		record := all[len(all)-2].Text
		if !strings.HasPrefix(record, "INSERT INTO lobsink_schema ") || !strings.Contains(record, "WHERE version = "+string(rune('0'+s.Version))+")") {
			t.Errorf("%s does not record its version: %s", s.Name, record)
		}
		for i, statement := range all {
			if strings.HasPrefix(statement.Text, "CREATE OR REPLACE PACKAGE BODY") && !strings.Contains(all[i+1].Text, "FROM all_errors") {
				t.Errorf("%s does not look for errors of the package", s.Name)
			}
		}
	}
}

// TestUninstall: all that the migrations make is removed.
func TestUninstall(t *testing.T) {
	t.Parallel()
	text, err := fs.ReadFile(deploy.Oracle(), "uninstall.sql")
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for _, s := range install(t, orascript.Options{Partitions: 1}) {
		for _, statement := range s.Statements() {
			for _, part := range append(statement.Embedded(), statement) {
				words := strings.Fields(strings.ReplaceAll(part.Text, "OR REPLACE ", ""))
				if words[0] != "CREATE" || words[2] == "BODY" {
					continue
				}
				made++
				if !strings.Contains(string(text), "'DROP "+words[1]+" "+words[2]+"'") {
					t.Errorf("%s %s stays", words[1], words[2])
				}
			}
		}
	}
	if made < 9 {
		t.Errorf("only %d objects were found", made)
	}
}

// session is a database that notes what it is told.
type session struct {
	statements []string
	fail       string
}

var errRefused = errors.New("ORA-00955")

func (s *session) Exec(_ context.Context, statement string) error {
	s.statements = append(s.statements, statement)
	if s.fail != "" && strings.HasPrefix(statement, s.fail) {
		return errRefused
	}
	return nil
}

func (s *session) Version(context.Context) (int64, error) { return 0, nil }

func TestRun(t *testing.T) {
	t.Parallel()
	scripts := install(t, orascript.Options{Partitions: 1, Owner: "O"})
	db := &session{}
	if err := orascript.Run(t.Context(), db, scripts); err != nil {
		t.Fatal(err)
	}
	if n := len(db.statements); n < 12 || db.statements[0] != `ALTER SESSION SET CURRENT_SCHEMA = "O"` || db.statements[n-1] != "COMMIT" {
		t.Errorf("%d statements", n)
	}
	db = &session{fail: "CREATE OR REPLACE PACKAGE lobsink_v1"}
	err := orascript.Run(t.Context(), db, scripts)
	if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "00002_lobsink_v1.sql, line ") {
		t.Errorf("the error is %v", err)
	}
	if strings.Contains(strings.Join(db.statements, "\n"), "PACKAGE BODY") {
		t.Error("it went on after an error")
	}
}

func TestEstimate(t *testing.T) {
	t.Parallel()
	load := orascript.Load{Documents: 1_000_000, Bytes: 40_000, ChunkBytes: 32767, Open: 10 * time.Second, Flush: time.Second,
		PerSecond: 10, Retention: 15 * time.Minute, Partitions: 8}
	s := load.Estimate()
	if s.Appends != 10 || s.Sessions != 10 {
		t.Errorf("%v appends, %d sessions", s.Appends, s.Sessions)
	}
	if s.Text < 80_000_000_000 || s.Text > 90_000_000_000 {
		t.Errorf("%d bytes of text: twice the text, in whole blocks", s.Text)
	}
	load.Flush = 10 * time.Second
	if rarer := load.Estimate(); rarer.Appends != 2 || rarer.Redo >= s.Redo || rarer.Retained >= s.Retained || rarer.Text != s.Text {
		t.Errorf("fewer flushes: %+v after %+v", rarer, s)
	}
}
