package main

import (
	"database/sql"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/embednats"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/sqlite"
)

var rewrite = flag.Bool("rewrite", false, "write what the commands print into testdata/script")

// TestMain makes the test binary lobsink itself when a script calls it.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lobsink": main})
}

// TestScripts runs testdata/script: commands as a shell would run them, with their
// exit codes and what they print. Each script has in its folder documents.db, a
// database with documents, and damaged.db, the same with one letter changed. $NATS
// is a server with dead letters of the stream ORDERS.
func TestScripts(t *testing.T) {
	documents, damaged := newDocuments(t)
	url := newLetters(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *rewrite,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("NATS", url)
			for name, content := range map[string][]byte{"documents.db": documents, "damaged.db": damaged} {
				if err := os.WriteFile(filepath.Join(env.WorkDir, name), content, 0o600); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"code": exitCodeOf, "mask": mask},
	})
}

// exitCodeOf is the command `code N lobsink ...`: the exit code must be N.
func exitCodeOf(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// mask is the command `mask FROM TO FILE`: stdout or stderr of the last command,
// with FROM replaced, becomes FILE.
func mask(ts *testscript.TestScript, _ bool, args []string) {
	text := strings.ReplaceAll(ts.ReadFile(args[0]), args[1], args[2])
	ts.Check(os.WriteFile(ts.MkAbs(args[3]), []byte(text), 0o600))
}

// fixtureTime is when all documents of the fixture were written.
const fixtureTime = 1_767_366_245_000_000_000 // 2026-01-02T15:04:05Z

// newDocuments returns two database files with the same documents, written
// through the store. In the second one a letter is changed behind its back.
func newDocuments(t *testing.T) (documents, damaged []byte) {
	path := filepath.Join(t.TempDir(), "documents.db")
	o := sqlite.Options{Path: path, ChunkBytes: 16, Now: func() int64 { return fixtureTime }}
	if _, _, err := sqlite.Setup(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	owner := lobtest.NewOwner(t, store, 0)
	owner.Flush(t,
		owner.Append("ORDER-1", lobtest.Text(1, "<order><line>Pr\u00e4zision & \u0001</line>"), lobtest.Final(2, "</order>\r\n")),
		owner.Append("ORDER-2", lobtest.Text(3, "<order>"), lobtest.Hole(4), lobtest.Final(5, "</order>")),
		owner.Append("ORDER-3", lobtest.Text(6, "<order>"), lobtest.Text(7, strings.Repeat("<x/>", 100))),
		owner.Append("it's\n-'quoted'", lobtest.Final(8, "")))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	documents = readFile(t, path)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("update lobsink_chunks set body = replace(body, '<order>', '<Order>') where document = (select id from lobsink_documents where doc_key = 'ORDER-3')"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return documents, readFile(t, path)
}

func readFile(t *testing.T, path string) []byte {
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// newLetters starts a server, publishes dead letters, and returns its URL.
func newLetters(t *testing.T) string {
	srv, err := embednats.Start(t.Context(), embednats.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", MaxPayload: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := consumer.CreateDeadStream(t.Context(), js, "ORDERS", 1); err != nil {
		t.Fatal(err)
	}
	letters := consumer.NewDeadLetters(js, "ORDERS")
	for _, l := range []consumer.Letter{
		{Seq: 4, Generation: 1, Key: "ORDER-2", Data: []byte("<line>\xff</line>"), Header: nats.Header{"Lobsink-Index": {"2"}},
			Reason: batcher.Reason{Code: consumer.CodeInvalidUTF8, Text: "byte 6 is not UTF-8"}},
		{Seq: 9, Data: []byte("<x/>"), Reason: batcher.Reason{Code: consumer.CodeBadKey, Text: "the key's token is not canonical"}},
		{Seq: 11, Generation: 1, Key: "ORDER-1", Data: []byte(strings.Repeat("<late/>\n", 20_000)),
			Reason: batcher.Reason{Code: consumer.CodeLate, Text: "the document is complete"}},
	} {
		l.Stream, l.DatabaseID, l.Life, l.Time = "ORDERS", "0badcafe", 1, fixtureTime+int64(l.Seq)*int64(time.Second)
		l.Subject = "orders.key"
		if err := letters.Publish(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	return srv.ClientURL()
}

// TestFixture: the damaged file differs in one document only.
func TestFixture(t *testing.T) {
	documents, damaged := newDocuments(t)
	for name, content := range map[string][]byte{"whole": documents, "damaged": damaged} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := sqlite.OpenReader(t.Context(), sqlite.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		more, err := eachDocument(t.Context(), r, lobwriter.Query{}, func(d lobwriter.Document) error {
			text, err := readText(t.Context(), r, d.Key, new(strings.Builder))
			if wrong := text.fault() != nil; wrong != (name == "damaged" && d.Key == "ORDER-3") {
				t.Errorf("%s: fault of %s: %v", name, d.Key, text.fault())
			}
			return err
		})
		if err != nil || more {
			t.Error(more, err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
