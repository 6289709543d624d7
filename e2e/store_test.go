package e2e

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/lobsink/lobsink/internal/pgtest"
)

// database is a store under test, read behind lobsink's back: through the view
// that any client of the database has.
type database struct {
	name string
	url  string // for --store
	open func(t testing.TB) *sql.DB
	path string         // of the file; "" for PostgreSQL
	pg   *pgtest.Server // nil for SQLite
}

func sqliteDatabase(t testing.TB) *database {
	return sqliteFile(filepath.Join(t.TempDir(), "lobsink.db"))
}

func sqliteFile(path string) *database {
	return &database{name: "sqlite", url: "sqlite:" + path, path: path, open: func(t testing.TB) *sql.DB {
		return openSQL(t, "sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(5000)")
	}}
}

func postgresDatabase(t testing.TB) *database { return postgresOn(t, pgtest.Start(t)) }

func postgresOn(t testing.TB, pg *pgtest.Server) *database {
	url := pg.CreateDatabase(t)
	return &database{name: "postgres", url: url, pg: pg, open: func(t testing.TB) *sql.DB {
		return openSQL(t, "pgx", url)
	}}
}

// partitions is for --partitions: several where members could share them.
func (d *database) partitions() string {
	if d.pg != nil {
		return "4"
	}
	return "1"
}

func openSQL(t testing.TB, driver, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// databases runs a test on both stores, and beside other tests: most of them
// wait most of the time.
func databases(t *testing.T, test func(t *testing.T, db *database)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, sqliteDatabase(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, postgresDatabase(t))
	})
}

// marks reads how far every document has come.
func (d *database) marks(t testing.TB) (map[string]uint64, error) {
	db := d.open(t)
	defer db.Close()
	rows, err := db.Query("select doc_key, seq from lobsink_documents")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]uint64{}
	for rows.Next() {
		var key string
		var seq int64
		if err := rows.Scan(&key, &seq); err != nil {
			return nil, err
		}
		out[key] = uint64(seq)
	}
	return out, rows.Err()
}

// texts reads every document through the view.
func (d *database) texts(t testing.TB) map[string]string {
	t.Helper()
	db := d.open(t)
	defer db.Close()
	rows, err := db.Query("select doc_key, text from lobsink_texts")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var key string
		var text sql.NullString
		if err := rows.Scan(&key, &text); err != nil {
			t.Fatal(err)
		}
		out[key] = text.String
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// stored waits until the database holds everything that the stream holds.
func (d *database) stored(t testing.TB, want truth, within time.Duration) {
	t.Helper()
	eventually(t, within, func() error {
		marks, err := d.marks(t)
		if err != nil {
			return err
		}
		behind := 0
		example := ""
		for key, seq := range want.last {
			if marks[key] < seq {
				behind++
				example = fmt.Sprintf("%s is at %d of %d", key, marks[key], seq)
			}
		}
		if behind > 0 {
			return fmt.Errorf("%d of %d documents are behind, for example %s", behind, len(want.last), example)
		}
		return nil
	})
}

// exact compares every document, byte for byte.
func (d *database) exact(t testing.TB, want truth) {
	t.Helper()
	got := d.texts(t)
	wrong := 0
	for key, text := range want.text {
		if got[key] != text {
			wrong++
			if wrong <= 3 {
				t.Errorf("document %s: %s", key, difference(got[key], text))
			}
		}
	}
	if wrong > 3 {
		t.Errorf("and %d more documents differ", wrong-3)
	}
	for key := range got {
		if _, ok := want.text[key]; !ok {
			t.Errorf("document %s is in the database only", key)
		}
	}
}

func difference(got, want string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	show := func(s string) string { return fmt.Sprintf("%.60q", s[min(i, len(s)):]) }
	return fmt.Sprintf("%d bytes, want %d; first difference at %d: %s, want %s", len(got), len(want), i, show(got), show(want))
}

// none fails if any acknowledged publish is not in the stream.
func allPublished(t testing.TB, p *producer, want truth) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var missing []string
	for id, payload := range p.acked {
		if want.ids[id] != payload {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		t.Errorf("acknowledged but not in the stream: %d, for example %s", len(missing), strings.Join(missing[:min(3, len(missing))], " "))
	}
}
