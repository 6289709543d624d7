package postgres_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/schema"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/postgres"
)

// Tables of each earlier version, with a document in them, are brought to this
// one: the document is there and grows on.
func TestMigrateWithDocuments(t *testing.T) {
	files, err := fs.Glob(deploy.PostgreSQL(), "*.sql")
	if err != nil || len(files) < 2 {
		t.Fatalf("migrations %v, %v", files, err)
	}
	for have := 1; have < len(files); have++ {
		t.Run(fmt.Sprintf("from version %d", have), func(t *testing.T) {
			o := postgres.Options{URL: shared.CreateDatabase(t)}
			apply(t, o, files[:have])
			query(t, o, `
				insert into lobsink_documents (doc_key, partition, generation, state, life, seq, first_seq, fragments, holes, late, bytes, units, chunks, crc, reason, created_at, updated_at)
				values ('k', 1, 1, 1, 1, 7, 3, 2, 0, 0, 5, 4, 2, `+fmt.Sprint(lobwriter.Checksum(0, []byte("<a>é")))+`, '', 1, 2)`)
			query(t, o, `
				insert into lobsink_chunks (document, generation, n, body)
				select id, 1, n, body from lobsink_documents, (values (1, '<a>'), (2, 'é')) as c (n, body)`)
			if _, err := postgres.Open(t.Context(), o); lobwriter.KindOf(err) != lobwriter.Fatal || !strings.Contains(err.Error(), "lobsink setup") {
				t.Errorf("before: %v", err)
			}
			if from, to, err := postgres.Setup(t.Context(), o); err != nil || from != int64(have) || to != int64(len(files)) {
				t.Fatalf("set up from %d to %d: %v", from, to, err)
			}
			own := claim(t, open(t, o), 1)
			rows, err := own.Store.Rows(t.Context(), 1, []string{"k"})
			if err != nil {
				t.Fatal(err)
			}
			own.Rows["k"] = rows[0]
			own.Flush(t, own.Append("k", lobtest.Final(8, "</a>")))
			d := lobtest.CheckDocument(t, openReader(t, o), lobwriter.Runes, "k", "<a>é</a>")
			if d.Fragments != 3 || d.First != 3 || d.CreatedAt != 1 {
				t.Errorf("document %+v", d)
			}
		})
	}
}

// apply applies some of the migrations.
func apply(t *testing.T, o postgres.Options, files []string) {
	t.Helper()
	some := fstest.MapFS{}
	for _, name := range files {
		text, err := fs.ReadFile(deploy.PostgreSQL(), name)
		if err != nil {
			t.Fatal(err)
		}
		some[name] = &fstest.MapFile{Data: text}
	}
	cfg := connection(t, o).Config()
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	if _, _, err := schema.Apply(t.Context(), db, schema.PostgreSQL, some, schema.Prefix); err != nil {
		t.Fatal(err)
	}
}

// Setup again changes nothing, whoever does it and however many.
func TestSetupAgain(t *testing.T) {
	o := database(t, shared)
	own := claim(t, open(t, o), 0)
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a/>")))
	done := make(chan error)
	for range 4 {
		go func() {
			from, to, err := postgres.Setup(context.Background(), o)
			if err == nil && from != to {
				err = fmt.Errorf("set up from %d to %d", from, to)
			}
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	lobtest.CheckDocument(t, openReader(t, o), lobwriter.Runes, "k", "<a/>")
}

// Sets of tables with two prefixes in one database know nothing of each other, and
// one that is removed leaves nothing behind.
func TestPrefix(t *testing.T) {
	o := database(t, shared)
	objects := func() (n int) {
		if err := connection(t, o).QueryRow(t.Context(), `
			select (select count(*) from pg_class where relname like 'lobsink%')
			     + (select count(*) from pg_proc where proname like 'lobsink%')
			     + (select count(*) from pg_type where typname like '%lobsink%')`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := objects()
	demo := o
	demo.Prefix = "lobsink_demo_"
	if _, _, err := postgres.Setup(t.Context(), demo); err != nil {
		t.Fatal(err)
	}
	for i, o := range []postgres.Options{o, demo} {
		own := claim(t, open(t, o), 0)
		own.Flush(t, own.Append("k", lobtest.Text(1, fmt.Sprint(i))))
	}
	lobtest.CheckDocument(t, openReader(t, demo), lobwriter.Runes, "k", "1")
	for range 2 {
		if err := postgres.Remove(t.Context(), demo); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := postgres.Open(t.Context(), demo); lobwriter.KindOf(err) != lobwriter.Fatal {
		t.Errorf("removed, but: %v", err)
	}
	if after := objects(); after != before {
		t.Errorf("%d objects, before %d", after, before)
	}
	lobtest.CheckDocument(t, openReader(t, o), lobwriter.Runes, "k", "0")
}

// grants are those of deploy/postgres/00001_documents.sql.
const grants = `
	grant select on lobsink_schema, lobsink_binding, lobsink_texts to member;
	grant update on lobsink_binding to member;
	grant select, insert, update on lobsink_fences, lobsink_leases, lobsink_members, lobsink_documents, lobsink_chunks to member;
	grant delete on lobsink_leases, lobsink_members to member;
	grant usage on sequence lobsink_documents_id_seq to member`

// A user with no more than these privileges runs lobsink, and one who may only
// select reads.
func TestPrivileges(t *testing.T) {
	o := database(t, shared)
	query(t, o, `create role member login; create role guest login; grant select on all tables in schema public to guest`)
	query(t, o, grants)
	as := func(user string) postgres.Options {
		o := o
		o.URL = strings.Replace(o.URL, "postgres@", user+"@", 1)
		return o
	}
	guest := openReader(t, as("guest"))
	o = as("member")
	own := claim(t, open(t, o), 0)
	if _, err := own.Store.Attend(t.Context(), lobwriter.Member{ID: "aa"}, lobtest.Lease); err != nil {
		t.Error(err)
	}
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a>")))
	own.Flush(t, own.Append("k", lobtest.Text(2, "</a>")), own.Append("bad", lobtest.Text(3, "\x00")))
	lobtest.CheckDocument(t, openReader(t, o), lobwriter.Runes, "k", "<a></a>")
	lobtest.CheckDocument(t, guest, lobwriter.Runes, "k", "<a></a>")
	if f, err := guest.Fence(t.Context(), 0); err != nil || f.Flush != 2 {
		t.Errorf("fence %+v, %v", f, err)
	}
	if _, err := own.Store.Renew(t.Context(), own.Claim, lobtest.Lease); err != nil {
		t.Error(err)
	}
	if err := own.Store.Release(t.Context(), own.Claim); err != nil {
		t.Error(err)
	}
	if err := own.Store.Leave(t.Context(), "aa"); err != nil {
		t.Error(err)
	}
}

// The view has whole documents, also empty ones; text is compressed with lz4 where
// the server can.
func TestView(t *testing.T) {
	o := database(t, shared)
	own := claim(t, open(t, o), 0)
	long := strings.Repeat("<a>𝄞é€</a>", 10_000)
	own.Flush(t, own.Append("long", lobtest.Text(1, long)), own.Append("empty", lobtest.Final(2, "")))
	own.Flush(t, own.Append("long", lobtest.Final(3, "end")))
	c := connection(t, o)
	for key, want := range map[string]string{"long": long + "end", "empty": ""} {
		var state, text string
		var bytes int
		if err := c.QueryRow(t.Context(), `select state, bytes, text from lobsink_texts where doc_key = $1`, key).Scan(&state, &bytes, &text); err != nil {
			t.Fatal(err)
		}
		if state != "complete" || bytes != len(want) || text != want {
			t.Errorf("%s: state %s, %d bytes, text of %d", key, state, bytes, len(text))
		}
	}
	var known bool
	if err := c.QueryRow(t.Context(), `select 'lz4' = any (enumvals) from pg_settings where name = 'default_toast_compression'`).Scan(&known); err != nil {
		t.Fatal(err)
	}
	var method *string
	if err := c.QueryRow(t.Context(), `select pg_column_compression(body) from lobsink_chunks order by length(body) desc limit 1`).Scan(&method); err != nil {
		t.Fatal(err)
	}
	if known && (method == nil || *method != "lz4") {
		t.Errorf("compressed with %v", method)
	}
}
