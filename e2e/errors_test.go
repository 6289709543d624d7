package e2e

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/internal/pgtest"
)

var printErrors = flag.Bool("print-errors", false, "print the errors that docs/errors.md has to have")

// provoked is an error of docs/errors.md and how it comes about.
type provoked struct {
	// name is its heading.
	name string
	code int
	args []string
}

// TestErrors provokes every error of docs/errors.md: the page has the message as
// it is, but for addresses and paths, and the exit code; none is a bare error of a
// driver or a stack trace.
func TestErrors(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "errors.md"))
	if err != nil && !*printErrors {
		t.Fatal(err)
	}
	page := string(text)
	headings := strings.Count(page, "\n### ")
	cases := provokedErrors(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out, errs, code := call(t, c.args...)
			if out != "" && !strings.Contains(c.name, "check") {
				t.Errorf("on stdout: %s", out)
			}
			message := normal(errs)
			if *printErrors {
				fmt.Printf("### %s\n\nExit %d.\n\n```\n%s\n```\n\n", c.name, code, message)
				return
			}
			if code != c.code {
				t.Errorf("exit %d, want %d: %s", code, c.code, errs)
			}
			if strings.Contains(errs, "goroutine ") || strings.Contains(errs, "panic") {
				t.Errorf("a stack trace: %s", errs)
			}
			want := fmt.Sprintf("\n### %s\n\nExit %d.\n\n```\n%s\n```\n", c.name, c.code, message)
			if !strings.Contains(page, want) {
				t.Errorf("docs/errors.md does not have:%s", want)
			}
		})
	}
	if headings != len(cases) && !*printErrors {
		t.Errorf("docs/errors.md has %d errors, %d are provoked", headings, len(cases))
	}
}

// volatile is what differs from run to run, and what stands for it.
var volatile = []struct {
	found *regexp.Regexp
	stand string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+|localhost:\d+`), "HOST:PORT"},
	{regexp.MustCompile(`(/[\w.-]+)*/(\w+\.(yaml|db))`), "PATH/$2"},
	{regexp.MustCompile(`/tmp/[\w./-]+`), "PATH"},
	{regexp.MustCompile(`lobsink_test_\w+|test_\d+`), "DATABASE"},
}

// normal returns a message without what differs from run to run.
func normal(message string) string {
	for _, v := range volatile {
		message = v.found.ReplaceAllString(message, v.stand)
	}
	return strings.TrimSpace(message)
}

func provokedErrors(t *testing.T) []provoked {
	t.Helper()
	dir := t.TempDir()
	file := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	b := startBroker(t)
	js := b.connect()
	pg := pgtest.Start(t, pgtest.HBA("host all lobsink_nobody 127.0.0.1/32 scram-sha-256"))
	empty, db, newer := pg.CreateDatabase(t), pg.CreateDatabase(t), pg.CreateDatabase(t)
	must(t, "setup", "--nats", b.url(), "--store", db)
	must(t, "setup", "--nats", b.url(), "--store", newer)
	execute(t, newer, `insert into lobsink_schema (version_id, is_applied) values (9999, true)`)
	execute(t, db, `update lobsink_binding set stream = 'OTHERS', created = 1, partitions = 8, life = 1`)
	execute(t, db, `create role lobsink_nobody login password 'secret'`)
	work := jetstream.StreamConfig{Name: "WORK", Subjects: []string{"work.*"}, Retention: jetstream.WorkQueuePolicy}
	if _, err := js.CreateStream(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "WORK_DEAD", Subjects: []string{"lobsink.dead.WORK.>"}}); err != nil {
		t.Fatal(err)
	}
	sqlite := sqliteDatabase(t)
	must(t, "setup", "--nats", b.url(), "--store", sqlite.url, "--partitions", "8")
	xml := file("report.xml", "<r/>")
	free := freePort(t)
	away := fmt.Sprintf("nats://127.0.0.1:%d", free)
	run := func(args ...string) []string {
		return append([]string{"run", "--nats", b.url(), "--http", "off", "--log-level", "error"}, args...)
	}
	return []provoked{
		{"An unknown key in the configuration file", 78, []string{"doc", "ls", "-c", file("key.yaml", "store: sqlite:x.db\nmax_aeg: 1s\n")}},
		{"A value that cannot be read", 78, []string{"doc", "ls", "-c", file("value.yaml", "max_age: 2 fortnights\n")}},
		{"Settings that do not fit together", 78, []string{"run", "--lease", "5s", "--flush-timeout", "6s"}},
		{"Too little memory", 78, []string{"run", "--memory", "10MiB"}},
		{"A flag that does not exist", 64, []string{"run", "--max-agee", "1s"}},
		{"A database of an unknown kind", 64, []string{"doc", "ls", "--store", "mysql://root:secret@h/d"}},
		{"No NATS server", 69, []string{"pub", xml, "--nats", away}},
		{"NATS refuses the user", 78, []string{"pub", xml, "--nats", secretBroker(t)}},
		{"The stream does not exist", 78, []string{"pub", xml, "--nats", b.url(), "--stream", "NONE"}},
		{"A stream that lobsink cannot use", 78, run("--store", sqlite.url, "--stream", "WORK", "--root", "work")},
		{"No database server", 69, []string{"doc", "ls", "--store", fmt.Sprintf("postgres://lobsink@127.0.0.1:%d/docs", free)}},
		{"The database refuses the user", 78, []string{"doc", "ls", "--store", as(t, db, "lobsink_nobody", "wrong")}},
		{"A missing grant", 78, []string{"doc", "ls", "--store", as(t, db, "lobsink_nobody", "secret")}},
		{"A database that does not exist", 78, []string{"doc", "ls", "--store", another(t, db)}},
		{"No tables", 78, []string{"doc", "ls", "--store", empty}},
		{"Tables of a newer version", 78, []string{"doc", "ls", "--store", newer}},
		{"A database of another stream", 78, run("--store", db)},
		{"No SQLite file", 78, []string{"doc", "ls", "--store", "sqlite:" + filepath.Join(dir, "none.db")}},
		{"A file that is no database", 78, []string{"doc", "ls", "--store", "sqlite:" + file("text.db", strings.Repeat("text ", 1000))}},
		{"A port that is in use", 1, []string{"run", "--nats", b.url(), "--store", sqlite.url, "--http", fmt.Sprintf("127.0.0.1:%d", b.port)}},
		{"Somebody else serves NATS there", 1, []string{"run", "--http", "off", "--nats-listen", fmt.Sprintf("127.0.0.1:%d", b.port), "--data-dir", filepath.Join(dir, "data")}},
		{"A document that does not exist", 1, []string{"doc", "cat", "ORDER-1", "--store", sqlite.url}},
	}
}

// execute runs one statement in a database.
func execute(t testing.TB, address, statement string) {
	t.Helper()
	db := openSQL(t, "pgx", address)
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// another returns the URL of a database that is not there.
func another(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/none"
	return u.String()
}

// as returns the URL of a database for another user.
func as(t testing.TB, address, user, password string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// secretBroker starts a NATS server that asks for another password than the one in
// the URL that it returns.
func secretBroker(t *testing.T) string {
	t.Helper()
	addr := startPermitted(t, "authorization { user: lobsink, password: right }\n")
	return "nats://lobsink:wrong@" + addr
}
