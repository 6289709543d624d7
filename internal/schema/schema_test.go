package schema_test

import (
	"database/sql"
	"io/fs"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	_ "modernc.org/sqlite"

	"github.com/lobsink/lobsink/internal/schema"
	"github.com/lobsink/lobsink/lobwriter"
)

func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+"?_busy_timeout=10000&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

var (
	version1 = fstest.MapFS{"00001_first.sql": {Data: []byte(`-- +goose Up
create table lobsink_a (x);
create view lobsink_v as select x from lobsink_a;
-- +goose Down
drop view lobsink_v;
drop table lobsink_a;
`)}}
	version2 = fstest.MapFS{"00001_first.sql": version1["00001_first.sql"], "00002_second.sql": {Data: []byte(`-- +goose Up
alter table lobsink_a add column y;
-- +goose Down
alter table lobsink_a drop column y;
`)}}
	broken = fstest.MapFS{"00001_first.sql": version1["00001_first.sql"], "00002_second.sql": {Data: []byte(`-- +goose Up
create table lobsink_b (x);
create tabel lobsink_c (x);
-- +goose Down
`)}}
)

func apply(t *testing.T, db *sql.DB, files fs.FS, prefix string, from, to int64) {
	t.Helper()
	gotFrom, gotTo, err := schema.Apply(t.Context(), db, schema.SQLite, files, prefix)
	if err != nil || gotFrom != from || gotTo != to {
		t.Fatalf("applied from %d to %d, %v; want %d to %d", gotFrom, gotTo, err, from, to)
	}
}

func version(t *testing.T, db *sql.DB, files fs.FS, prefix string, have, want int64) {
	t.Helper()
	gotHave, gotWant, err := schema.Version(t.Context(), db, schema.SQLite, files, prefix)
	if err != nil || gotHave != have || gotWant != want {
		t.Fatalf("version %d of %d, %v; want %d of %d", gotHave, gotWant, err, have, want)
	}
}

// objects counts what a database holds.
func objects(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "select count(*) from sqlite_schema where name not like 'sqlite_%'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestApplyAndRemove(t *testing.T) {
	db := open(t)
	version(t, db, version1, schema.Prefix, 0, 1)
	if n := objects(t, db); n != 0 {
		t.Errorf("looking made %d objects", n)
	}
	apply(t, db, version1, schema.Prefix, 0, 1)
	apply(t, db, version1, schema.Prefix, 1, 1)
	version(t, db, version2, schema.Prefix, 1, 2)
	apply(t, db, version2, schema.Prefix, 1, 2)

	apply(t, db, version1, "demo_", 0, 1) // beside it
	if _, err := db.ExecContext(t.Context(), "insert into lobsink_a (x, y) values (1, 2); insert into demo_a (x) values (3)"); err != nil {
		t.Fatal(err)
	}
	var x, demo int
	if err := db.QueryRowContext(t.Context(), "select (select x from lobsink_v), (select x from demo_v)").Scan(&x, &demo); err != nil || x != 1 || demo != 3 {
		t.Errorf("the sets hold %d and %d, %v", x, demo, err)
	}
	for _, prefix := range []string{schema.Prefix, schema.Prefix, "demo_"} {
		if err := schema.Remove(t.Context(), db, schema.SQLite, version2, prefix); err != nil {
			t.Fatal(err)
		}
	}
	if n := objects(t, db); n != 0 {
		t.Errorf("%d objects are left", n)
	}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name          string
		stored, files fs.FS
		says          string // "": it fits
	}{
		{"none", nil, version1, "check the tables: there are no tables lobsink_* (run: lobsink setup --store x)"},
		{"older", version1, version2, "check the tables: the tables lobsink_* have version 1, this program needs 2 (run: lobsink setup --store x)"},
		{"the same", version2, version2, ""},
		{"newer", version2, version1, "check the tables: the tables have version 2, this program knows 1 (a newer lobsink has run `lobsink setup`: use that version of the program)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			db := open(t)
			if tt.stored != nil {
				if _, _, err := schema.Apply(t.Context(), db, schema.SQLite, tt.stored, schema.Prefix); err != nil {
					t.Fatal(err)
				}
			}
			err := schema.Check(t.Context(), db, schema.SQLite, tt.files, schema.Prefix, "lobsink setup --store x")
			if tt.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if lobwriter.KindOf(err) != lobwriter.Fatal || err.Error() != tt.says {
				t.Errorf("error %v, want %s", err, tt.says)
			}
		})
	}
}

func TestNewerIsLeftAlone(t *testing.T) {
	db := open(t)
	apply(t, db, version2, schema.Prefix, 0, 2)
	_, _, err := schema.Apply(t.Context(), db, schema.SQLite, version1, schema.Prefix)
	if lobwriter.KindOf(err) != lobwriter.Fatal {
		t.Errorf("apply: %v", err)
	}
	if err := schema.Remove(t.Context(), db, schema.SQLite, version1, schema.Prefix); lobwriter.KindOf(err) != lobwriter.Fatal {
		t.Errorf("remove: %v", err)
	}
	version(t, db, version2, schema.Prefix, 2, 2)
}

// A migration is applied as a whole or not at all.
func TestBrokenMigration(t *testing.T) {
	db := open(t)
	apply(t, db, version1, schema.Prefix, 0, 1)
	before := objects(t, db)
	if _, _, err := schema.Apply(t.Context(), db, schema.SQLite, broken, schema.Prefix); err == nil {
		t.Fatal("applied")
	}
	if n := objects(t, db); n != before {
		t.Errorf("%d objects, %d before", n, before)
	}
	version(t, db, broken, schema.Prefix, 1, 2)
	apply(t, db, version2, schema.Prefix, 1, 2)
}

func TestApplyTogether(t *testing.T) {
	db := open(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, to, err := schema.Apply(t.Context(), db, schema.SQLite, version2, schema.Prefix); err != nil || to != 2 {
				t.Errorf("applied version %d, %v", to, err)
			}
		})
	}
	wg.Wait()
	version(t, db, version2, schema.Prefix, 2, 2)
}

func TestBadPrefix(t *testing.T) {
	db := open(t)
	for _, prefix := range []string{"", "_", "x", "1_", "A_", "a b_", "a;drop_", "a\n_", "abcdefghijabcdefghijabcdefghijabc_"} {
		if _, _, err := schema.Apply(t.Context(), db, schema.SQLite, version1, prefix); lobwriter.KindOf(err) != lobwriter.Fatal {
			t.Errorf("%q: %v", prefix, err)
		}
	}
	if n := objects(t, db); n != 0 {
		t.Errorf("%d objects were made", n)
	}
}
