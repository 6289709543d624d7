//go:build cgo

package oracle_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/oracle"
	"github.com/lobsink/lobsink/lobwriter/oracle/standin"
)

// clientDir is where the stand-in for Oracle's client library is. The first one
// that the driver loads counts for the whole process.
var clientDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "lobsink-oracle")
	if err == nil {
		err = standin.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	clientDir = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// database starts a stand-in with an empty set of tables.
func database(t testing.TB) (*standin.Server, oracle.Options) {
	t.Helper()
	db, err := standin.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	db.Install("lobsink_")
	return db, options(db)
}

// db is a stand-in with a store and a reader on it.
type db struct {
	*standin.Server
	schema *standin.Schema
	o      oracle.Options
	store  *oracle.Store
	reader *oracle.Reader
}

func start(t testing.TB) *db {
	t.Helper()
	s, o := database(t)
	return &db{Server: s, schema: s.Schema("lobsink_"), o: o, store: open(t, o), reader: openReader(t, o)}
}

func options(db *standin.Server) oracle.Options {
	return oracle.Options{
		User: "lobsink", Password: func(context.Context) (string, error) { return "secret", nil },
		Connect: db.Connect("DOCS"), ClientDir: clientDir, Name: "test", Version: "v0.0.0",
	}
}

func open(t testing.TB, o oracle.Options) *oracle.Store {
	t.Helper()
	s, err := oracle.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func openReader(t testing.TB, o oracle.Options) *oracle.Reader {
	t.Helper()
	r, err := oracle.OpenReader(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// TestContract runs the suite against the stand-in: each rule has tables with a
// prefix of its own.
func TestContract(t *testing.T) {
	db, base := database(t)
	var sets atomic.Int64
	lobtest.Test(t, func(t *testing.T) lobtest.Fixture {
		o := base
		o.Prefix = fmt.Sprintf("set_%d_", sets.Add(1))
		schema := db.Install(o.Prefix)
		return lobtest.Fixture{
			Store:    open(t, o),
			Reader:   openReader(t, o),
			Second:   func(t testing.TB) lobwriter.Store { return open(t, o) },
			Hold:     func(_ testing.TB, partition int) func() { return schema.Hold(partition) },
			Operator: func(t testing.TB) lobwriter.Operator { return openOperator(t, o) },
		}
	})
}

func openOperator(t testing.TB, o oracle.Options) *oracle.Operator {
	t.Helper()
	op, err := oracle.OpenOperator(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { op.Close() })
	return op
}

// TestDamage: text that is not what its row says is an error, with everything that
// could be read. (The suite has stores whose readers leave it to their caller.)
func TestDamage(t *testing.T) {
	db, o := database(t)
	own := lobtest.NewOwner(t, open(t, o), 1)
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a>text</a>")), own.Append("l", lobtest.Text(2, "<a>text</a>")))
	db.Schema("lobsink_").Damage("k")
	r := openReader(t, o)
	var text []byte
	d, err := r.Read(t.Context(), "k", func(p []byte) error {
		text = append(text, p...)
		return nil
	})
	if !errors.Is(err, lobwriter.ErrDamaged) || len(text) != 11 || d.Row != own.Rows["k"] {
		t.Errorf("%v, text %q, row %+v", err, text, d.Row)
	}
	lobtest.CheckDocument(t, r, lobwriter.UTF16, "l", "<a>text</a>")
}

// oracleOpen is oracle.Open, of a store that may not open.
func oracleOpen(t testing.TB, o oracle.Options) (*oracle.Store, error) {
	t.Helper()
	s, err := oracle.Open(context.Background(), o)
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}
