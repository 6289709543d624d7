//go:build cgo

package realtest

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/godror/godror"
	"github.com/godror/godror/dsn"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/oracle"
)

// prefix is what the names of the tests' objects begin with.
const prefix = "lobsink_test_"

// target is the database: USER@CONNECT, of a user who may create tables, views and
// procedures, and execute DBMS_LOB and UTL_RAW. The password is in
// LOBSINK_ORACLE_PASSWORD.
var target oracle.Options

func TestMain(m *testing.M) {
	flag.Parse()
	url := strings.TrimPrefix(os.Getenv("LOBSINK_TEST_ORACLE"), "oracle:")
	if url == "" {
		fmt.Println("skipped: LOBSINK_TEST_ORACLE names no database")
		os.Exit(0)
	}
	user, connect, found := strings.Cut(url, "@")
	if !found {
		fmt.Fprintln(os.Stderr, "LOBSINK_TEST_ORACLE must be USER@CONNECT, with the password in LOBSINK_ORACLE_PASSWORD")
		os.Exit(1)
	}
	password := os.Getenv("LOBSINK_ORACLE_PASSWORD")
	target = oracle.Options{
		User: user, Connect: connect, Prefix: prefix, Name: "realtest", Version: "test",
		Password: func(context.Context) (string, error) { return password, nil },
	}
	if user == "" {
		target.Password = nil
	}
	code := 1
	if err := install(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	if err := admin(func(ctx context.Context, a *oracle.Admin) error { return a.Remove(ctx) }); err != nil {
		fmt.Fprintln(os.Stderr, "the tables", prefix, "are left behind:", err)
		code = 1
	}
	os.Exit(code)
}

// install makes the tables anew.
func install() error {
	return admin(func(ctx context.Context, a *oracle.Admin) error {
		if err := a.Remove(ctx); err != nil {
			return err
		}
		_, _, err := a.Setup(ctx)
		return err
	})
}

// admin runs do with a session for administrators.
func admin(do func(context.Context, *oracle.Admin) error) (err error) {
	ctx := context.Background()
	a, err := oracle.OpenAdmin(ctx, target)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := a.Close(); err == nil {
			err = closeErr
		}
	}()
	return do(ctx, a)
}

// raw opens a session of the test's own, beside lobsink.
func raw(t testing.TB) *sql.DB {
	t.Helper()
	var p dsn.ConnectionParams
	p.Username, p.ConnectString = target.User, target.Connect
	if target.Password != nil {
		password, err := target.Password(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.Password = dsn.NewPassword(password)
	}
	p.Timezone = time.UTC
	p.StandaloneConnection.Bool, p.StandaloneConnection.Valid = true, true
	db := sql.OpenDB(godror.NewConnector(p))
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

// statement runs SQL behind lobsink's back. {} stands for the prefix.
func statement(t testing.TB, text string, args ...any) {
	t.Helper()
	if _, err := raw(t).ExecContext(t.Context(), strings.ReplaceAll(text, "{}", prefix), args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// empty makes the tables as they were after the installation.
func empty(t testing.TB) {
	t.Helper()
	for _, name := range []string{"repairs", "documents", "members", "leases", "fences"} {
		statement(t, "DELETE FROM {}"+name)
	}
	statement(t, "UPDATE {}binding SET life = 0, stream = NULL, created = NULL, partitions = NULL")
}

// fixture is an empty set of tables, with a store and a reader.
func fixture(t testing.TB) (*oracle.Store, *oracle.Reader) {
	t.Helper()
	empty(t)
	return open(t), openReader(t)
}

func open(t testing.TB) *oracle.Store {
	t.Helper()
	s, err := oracle.Open(context.Background(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func openReader(t testing.TB) *oracle.Reader {
	t.Helper()
	r, err := oracle.OpenReader(context.Background(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// hold locks a fence row as a flush under way does.
func hold(t testing.TB, partition int) (release func()) {
	t.Helper()
	tx, err := raw(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("BEGIN FOR f IN (SELECT 1 FROM "+prefix+"fences WHERE partition_no = :p_partition FOR UPDATE) LOOP NULL; END LOOP; END;", sql.Named("p_partition", int64(partition))); err != nil {
		t.Fatal(err)
	}
	return func() { tx.Rollback() }
}

// document checks a document, by read_body and by the view that other clients have.
func document(t testing.TB, r *oracle.Reader, key, want string) {
	t.Helper()
	lobtest.CheckDocument(t, r, lobwriter.UTF16, key, want)
	var got string
	if err := raw(t).QueryRowContext(t.Context(), "SELECT text FROM "+prefix+"texts WHERE doc_key = :p_key", sql.Named("p_key", key)).Scan(&got); err != nil {
		t.Errorf("%q by the view: %v", key, err)
	} else if got != want {
		t.Errorf("%q by the view: %d bytes, want %d", key, len(got), len(want))
	}
}
