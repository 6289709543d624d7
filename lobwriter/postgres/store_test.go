package postgres_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/lobsink/lobsink/internal/pgtest"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/postgres"
)

// shared is the server of tests that do not stop it.
var shared *pgtest.Server

func TestMain(m *testing.M) {
	s, err := pgtest.New(pgtest.NoSync())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shared = s
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		s.Close()
		os.Exit(code)
	}), goleak.IgnoreCurrent())
}

// database makes a set-up, empty database.
func database(t testing.TB, s *pgtest.Server) postgres.Options {
	t.Helper()
	o := postgres.Options{URL: s.CreateDatabase(t)}
	if from, to, err := postgres.Setup(context.Background(), o); err != nil || from != 0 || to == 0 {
		t.Fatalf("set up from %d to %d: %v", from, to, err)
	}
	return o
}

func open(t testing.TB, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func openReader(t testing.TB, o postgres.Options) *postgres.Reader {
	t.Helper()
	r, err := postgres.OpenReader(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func openOperator(t testing.TB, o postgres.Options) *postgres.Operator {
	t.Helper()
	op, err := postgres.OpenOperator(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { op.Close() })
	return op
}

// query runs statements behind lobsink's back.
func query(t testing.TB, o postgres.Options, sql string, args ...any) {
	t.Helper()
	c, err := pgx.Connect(context.Background(), o.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(context.Background(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// TestContract runs the suite in one database: each rule has tables with a prefix
// of its own. The database sorts as people do, which keys must not.
func TestContract(t *testing.T) {
	url := shared.CreateDatabase(t, "locale_provider icu icu_locale 'en' locale 'C'")
	sets := 0
	lobtest.Test(t, func(t *testing.T) lobtest.Fixture {
		sets++
		o := postgres.Options{URL: url, Prefix: fmt.Sprintf("set_%d_", sets)}
		if _, _, err := postgres.Setup(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return lobtest.Fixture{
			Store:    open(t, o),
			Reader:   openReader(t, o),
			Second:   func(t testing.TB) lobwriter.Store { return open(t, o) },
			Operator: func(t testing.TB) lobwriter.Operator { return openOperator(t, o) }, Checkpoints: true,
			Hold: func(t testing.TB, partition int) func() { return hold(t, o, partition) },
			Sabotage: func(t testing.TB, key string) {
				query(t, o, strings.ReplaceAll(`update lobsink_chunks set body = 'x' || substr(body, 2)
					where document = (select id from lobsink_documents where doc_key = $1)`, "lobsink_", o.Prefix), key)
			},
		}
	})
}

// hold locks a fence row as a flush under way does.
func hold(t testing.TB, o postgres.Options, partition int) func() {
	t.Helper()
	tx, err := connection(t, o).Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	fences := cmp.Or(o.Prefix, "lobsink_") + "fences"
	if _, err := tx.Exec(context.Background(), `select from `+fences+` where partition = $1 for update`, partition); err != nil {
		t.Fatal(err)
	}
	return func() { tx.Rollback(context.Background()) }
}

var stream = lobwriter.Stream{Name: "FRAGMENTS", Created: 1, Partitions: 4}

// claim binds the store and claims a partition.
func claim(t testing.TB, s lobwriter.Store, partition int) *lobtest.Owner {
	t.Helper()
	if _, err := s.Bind(context.Background(), stream); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(context.Background(), lobwriter.ClaimRequest{
		Partition: partition, MemberID: "00000000000000aa", ClaimID: "00000000000000cc", Lease: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &lobtest.Owner{Store: s, Claim: c, Rows: map[string]lobwriter.Row{}}
}
