package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/sqlite"
)

// holdLock is the first argument that makes this test binary the other process
// of TestLock.
const holdLock = "hold-lock"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == holdLock {
		os.Exit(lockAndHang(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

// emptyDatabase is the content of a file that Setup made. Making one for each of
// the many tests takes longer than most of them.
var emptyDatabase = sync.OnceValues(func() ([]byte, error) {
	folder, err := os.MkdirTemp("", "lobsink")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "lobsink.db")
	if _, _, err := sqlite.Setup(context.Background(), sqlite.Options{Path: path}); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// newFile returns the options of a new file with tables in it, whose name is not
// easy to put into a URI.
func newFile(t testing.TB) sqlite.Options {
	t.Helper()
	content, err := emptyDatabase()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	o := sqlite.Options{Path: filepath.Join(folder, "100%?#.db")}
	if err := os.WriteFile(o.Path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return o
}

func open(t testing.TB, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func openReader(t testing.TB, o sqlite.Options) *sqlite.Reader {
	t.Helper()
	r, err := sqlite.OpenReader(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func openOperator(t testing.TB, o sqlite.Options) *sqlite.Operator {
	t.Helper()
	op, err := sqlite.OpenOperator(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { op.Close() })
	return op
}

// behind opens a file as any other program does.
func behind(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", sqlite.URI(path, "_txlock=immediate"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func mustExec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// sabotage changes the first letter that is stored of a document.
func sabotage(path string) func(testing.TB, string) {
	return func(t testing.TB, key string) {
		db := behind(t, path)
		res, err := db.ExecContext(t.Context(), `
			update lobsink_chunks set body = char(unicode(body) + 1) || substr(body, 2)
			 where n = 1 and document = (select id from lobsink_documents where doc_key = ?)`, key)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			t.Fatalf("changed %d rows, %v", n, err)
		}
	}
}

// TestContract runs the suite with several processes, and once more as the only
// one.
func TestContract(t *testing.T) {
	t.Run("shared", func(t *testing.T) {
		lobtest.Test(t, func(t *testing.T) lobtest.Fixture {
			o := newFile(t)
			return lobtest.Fixture{
				Store: open(t, o), Reader: openReader(t, o), Sabotage: sabotage(o.Path),
				Second:   func(t testing.TB) lobwriter.Store { return open(t, o) },
				Operator: func(t testing.TB) lobwriter.Operator { return openOperator(t, o) }, Checkpoints: true,
			}
		})
	})
	t.Run("exclusive", func(t *testing.T) {
		lobtest.Test(t, func(t *testing.T) lobtest.Fixture {
			o := newFile(t)
			o.Exclusive = true
			return lobtest.Fixture{
				Store: open(t, o), Reader: openReader(t, o), Sabotage: sabotage(o.Path),
				Hold:     hold(o.Path),
				Operator: func(t testing.TB) lobwriter.Operator { return openOperator(t, o) }, Checkpoints: true,
			}
		})
	})
}

// hold keeps the write lock of a file, as a flush under way does.
func hold(path string) func(testing.TB, int) func() {
	return func(t testing.TB, _ int) func() {
		tx, err := behind(t, path).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return func() { tx.Rollback() }
	}
}
