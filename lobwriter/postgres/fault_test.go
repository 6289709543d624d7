package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lobsink/lobsink/internal/pgtest"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/postgres"
)

// connection opens a connection of the test's own.
func connection(t testing.TB, o postgres.Options) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), o.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// retrying repeats as a consumer does, for at most half a minute.
func retrying(t *testing.T, s lobwriter.Store) (lobwriter.Store, context.Context) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return lobwriter.Retry(s, lobwriter.RetryOptions{AttemptTimeout: 5 * time.Second, Most: 200 * time.Millisecond}), ctx
}

// TestKilledConnections/O24: all sessions are ended by an operator while nothing
// happens; the next flush goes through, once.
func TestKilledConnections(t *testing.T) {
	t.Run("O24", func(t *testing.T) {
		o := database(t, shared)
		s := open(t, o)
		own := claim(t, s, 0)
		r, ctx := retrying(t, s)
		for n := range uint64(5) {
			query(t, o, `select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()`)
			f := own.NewFlush(own.Append("k", lobtest.Text(n+1, fmt.Sprintf("<%d/>", n))))
			receipt, err := r.Flush(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
			own.Settle(f, receipt)
		}
		lobtest.CheckDocument(t, openReader(t, o), lobwriter.Runes, "k", "<0/><1/><2/><3/><4/>")
	})
}

// TestServerCrash: the server is stopped at once and started again while flushes
// are under way; the identical flush goes through, and nothing is there twice.
func TestServerCrash(t *testing.T) {
	server := pgtest.Start(t)
	o := database(t, server)
	s := open(t, o)
	own := claim(t, s, 0)
	var ctx context.Context
	own.Store, ctx = retrying(t, s)
	crashed := make(chan struct{})
	go func() {
		defer close(crashed)
		for range 3 {
			time.Sleep(100 * time.Millisecond)
			server.StopImmediate()
			server.Restart()
		}
	}()
	var want strings.Builder
	for n := uint64(1); ; n++ {
		text := fmt.Sprintf("<%d/>", n)
		want.WriteString(text)
		receipt, err := own.Deliver(ctx, own.Append("k", lobtest.Text(n, text)))
		if err != nil {
			t.Fatal(err)
		}
		if a := receipt.Answers[0].Status; a != lobwriter.Appended && a != lobwriter.AlreadyThere {
			t.Fatalf("fragment %d: %v", n, a)
		}
		select {
		case <-crashed:
			lobtest.CheckDocument(t, openReader(t, o), lobwriter.Runes, "k", want.String())
			return
		default:
		}
	}
}

// TestOrderOfKeys/O32: two owners flush many keys in opposite orders; there is
// no deadlock, for each holds its own fence row.
func TestOrderOfKeys(t *testing.T) {
	t.Run("O32", func(t *testing.T) {
		o := database(t, shared)
		owners := []*lobtest.Owner{claim(t, open(t, o), 0), claim(t, open(t, o), 1)}
		var wg sync.WaitGroup
		for i, own := range owners {
			wg.Go(func() {
				for round := range uint64(50) {
					var groups []lobwriter.Group
					for k := range 26 {
						groups = append(groups, own.Append(fmt.Sprintf("%c%d", 'a'+k, i), lobtest.Text(round+1, "<r/>")))
					}
					if i == 1 {
						slices.Reverse(groups)
					}
					f := own.NewFlush(groups...)
					r, err := own.Store.Flush(t.Context(), f)
					if err != nil {
						t.Errorf("owner %d: %v", i, err)
						return
					}
					own.Settle(f, r)
				}
			})
		}
		wg.Wait()
	})
}

// TestPoisonAlone/O23 O26: what the database refuses is refused alone, with its
// own code; everything else of the flush commits with it.
func TestPoisonAlone(t *testing.T) {
	o := database(t, shared)
	s := open(t, o)
	own := claim(t, s, 0)
	// A rule of the shop's own, which no check of lobsink knows.
	query(t, o, `alter table lobsink_chunks add constraint house check (body not like '%poison%')`)
	var groups []lobwriter.Group
	for i := range 100 {
		text := "<fine/>"
		if i == 41 {
			text = "<poison/>"
		}
		groups = append(groups, own.Append(fmt.Sprint("k", i), lobtest.Text(uint64(i+1), text)))
	}
	f := own.NewFlush(groups...)
	r, err := s.Flush(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range r.Answers {
		want := lobwriter.Appended
		if i == 41 {
			want = lobwriter.Rejected
		}
		if a.Status != want {
			t.Errorf("group %d: %s, want %s", i, a.Status, want)
		}
	}
	if a := r.Answers[41]; a.Code != "23514" || !strings.Contains(a.Text, "house") {
		t.Errorf("code %q, text %q", a.Code, a.Text)
	}
	reader := openReader(t, o)
	lobtest.CheckDocument(t, reader, lobwriter.Runes, "k40", "<fine/>")
	if _, err := reader.Document(t.Context(), "k41"); !errors.Is(err, lobwriter.ErrNotFound) {
		t.Errorf("something of the refused document is there: %v", err)
	}
}

// TestWrongDatabase: what an operator has to change is Fatal, or Credentials,
// and says what to do; a password is never part of it.
func TestWrongDatabase(t *testing.T) {
	server := pgtest.Start(t, pgtest.HBA("host all locked all scram-sha-256"))
	good := database(t, server)
	empty := postgres.Options{URL: server.CreateDatabase(t)}
	latin := postgres.Options{URL: server.CreateDatabase(t, "encoding 'LATIN1'", "locale 'C'")}
	query(t, good, `create role locked login password 'right'`)
	query(t, good, `create role stranger login`)
	as := func(o postgres.Options, user string) postgres.Options {
		at := strings.Index(o.URL, "@")
		o.URL = "postgres://" + user + o.URL[at:]
		return o
	}
	for _, c := range []struct {
		name string
		o    postgres.Options
		kind lobwriter.Kind
		hint string
	}{
		{"no tables", empty, lobwriter.Fatal, "lobsink setup"},
		{"encoding", latin, lobwriter.Fatal, "UTF8"},
		{"password", as(good, "locked:sesame"), lobwriter.Credentials, "password"},
		{"grants", as(good, "stranger"), lobwriter.Fatal, "grant"},
		{"no database", postgres.Options{URL: server.URL("nowhere")}, lobwriter.Fatal, "does not exist"},
		{"no server", postgres.Options{URL: "postgres://127.0.0.1:1/x?connect_timeout=1"}, lobwriter.Transient, ""},
		{"no URL", postgres.Options{URL: "postgres://u:sesame@[::1/x"}, lobwriter.Fatal, "postgres://"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := postgres.Open(t.Context(), c.o)
			if err == nil {
				s.Close()
				t.Fatal("it opened")
			}
			if k := lobwriter.KindOf(err); k != c.kind || !strings.Contains(err.Error(), c.hint) {
				t.Errorf("kind %s, want %s; hint %q in %v", k, c.kind, c.hint, err)
			}
			if strings.Contains(err.Error(), "sesame") {
				t.Errorf("the password is in: %v", err)
			}
		})
	}
}
