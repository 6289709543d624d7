package sqlite_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/schema"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/sqlite"
)

// upTo returns the migrations up to a version: those of an older program.
func upTo(t testing.TB, version int64) fs.FS {
	t.Helper()
	older := fstest.MapFS{}
	err := fs.WalkDir(deploy.SQLite(), ".", func(name string, d fs.DirEntry, err error) error {
		var n int64
		if _, scan := fmt.Sscanf(name, "%d_", &n); err != nil || d.IsDir() || scan != nil || n > version {
			return err
		}
		text, err := fs.ReadFile(deploy.SQLite(), name)
		older[name] = &fstest.MapFile{Data: text}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return older
}

// TestMigration sets up a database of each earlier version, with documents in it
// from testdata, and goes on with it.
func TestMigration(t *testing.T) {
	versions, err := filepath.Glob("testdata/version*.sql")
	if err != nil || len(versions) == 0 {
		t.Fatalf("no versions, %v", err)
	}
	for i, name := range versions {
		t.Run(filepath.Base(name), func(t *testing.T) {
			version := int64(i + 1)
			o := sqlite.Options{Path: filepath.Join(t.TempDir(), "lobsink.db")}
			db := behind(t, o.Path)
			if _, to, err := schema.Apply(t.Context(), db, schema.SQLite, upTo(t, version), schema.Prefix); err != nil || to != version {
				t.Fatalf("made version %d, %v", to, err)
			}
			text, err := os.ReadFile(fmt.Sprintf("testdata/version%d.sql", version))
			if err != nil {
				t.Fatal(err)
			}
			mustExec(t, db, string(text))

			from, to, err := sqlite.Setup(t.Context(), o)
			if err != nil || from != version || to != int64(len(versions)) {
				t.Fatalf("from version %d to %d, %v", from, to, err)
			}
			r := openReader(t, o)
			for key, text := range map[string]string{
				"whole": "<a>é€😊</a>", "open": "<a/>", "empty": "", "holed": "<a/>", "rebuilt é": "<a/>",
			} {
				checkDocument(t, r, key, text)
			}
			b, err := r.Binding(t.Context())
			want := lobwriter.Binding{DatabaseID: "0badcafe", Life: 1, Stream: lobwriter.Stream{
				Name: "FRAGMENTS", Created: 1_700_000_000_000_000_000, Partitions: 4,
			}}
			if err != nil || b != want {
				t.Errorf("bound to %+v, %v", b, err)
			}

			s := open(t, o)
			own := lobtest.NewOwner(t, s, 1)
			if f := own.Claim.Fence; f.Epoch != 6 || f.Checkpoint != lobtest.At(12) || f.Highest != lobtest.At(14) {
				t.Errorf("claimed %+v", f)
			}
			for _, key := range []string{"open", "rebuilt é"} {
				rows, err := s.Rows(t.Context(), 1, []string{key})
				if err != nil {
					t.Fatal(err)
				}
				own.Rows[key] = rows[0]
				own.Flush(t, own.Append(key, lobtest.Final(20, "<b/>")))
				checkDocument(t, r, key, "<a/><b/>")
			}
		})
	}
}

func TestSetupTwiceAndTogether(t *testing.T) {
	o := sqlite.Options{Path: filepath.Join(t.TempDir(), "new", "folder", "lobsink.db")}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, to, err := sqlite.Setup(t.Context(), o); err != nil || to == 0 {
				t.Errorf("set up version %d, %v", to, err)
			}
		})
	}
	wg.Wait()
	from, to, err := sqlite.Setup(t.Context(), o)
	if err != nil || from != to {
		t.Errorf("once more from version %d to %d, %v", from, to, err)
	}
	var page, journal string
	db := open(t, o).Writer()
	if err := errors.Join(
		db.QueryRowContext(t.Context(), "pragma page_size").Scan(&page),
		db.QueryRowContext(t.Context(), "pragma journal_mode").Scan(&journal)); err != nil {
		t.Fatal(err)
	}
	if page != "8192" || journal != "wal" {
		t.Errorf("page size %s, journal mode %s", page, journal)
	}
}

// Two sets of tables in one file know nothing of each other, and one is removed
// without the other.
func TestPrefix(t *testing.T) {
	o := newFile(t)
	demo := o
	demo.Prefix = "lobsink_demo_"
	if _, _, err := sqlite.Setup(t.Context(), demo); err != nil {
		t.Fatal(err)
	}
	own, ownDemo := lobtest.NewOwner(t, open(t, o), 1), lobtest.NewOwner(t, open(t, demo), 1)
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a/>")))
	ownDemo.Flush(t, ownDemo.Append("k", lobtest.Text(1, "<demo/>")))
	checkDocument(t, openReader(t, o), "k", "<a/>")
	checkDocument(t, openReader(t, demo), "k", "<demo/>")

	for range 2 { // what is removed may be removed again
		if err := sqlite.Remove(t.Context(), demo); err != nil {
			t.Fatal(err)
		}
	}
	checkDocument(t, openReader(t, o), "k", "<a/>")
	var left int
	if err := behind(t, o.Path).QueryRowContext(t.Context(), "select count(*) from sqlite_schema where name like 'lobsink_demo%'").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d objects of the removed set are left, %v", left, err)
	}
	_, err := sqlite.Open(t.Context(), demo)
	fatal(t, err, "run: lobsink setup")
}

// fatal fails the test unless an error is Fatal and says a text.
func fatal(t testing.TB, err error, text string) {
	t.Helper()
	if lobwriter.KindOf(err) != lobwriter.Fatal || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("error %v, want one of kind fatal that says %q", err, text)
	}
}

// What is not lobsink's database is refused with what to do, and stays as it is.
func TestForeignFile(t *testing.T) {
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	other := filepath.Join(folder, "other.db")
	db := behind(t, other)
	mustExec(t, db, "create table t (x)")
	newer := newFile(t).Path
	mustExec(t, behind(t, newer), "insert into lobsink_schema (version_id, is_applied) values (1000, true)")
	half := newFile(t).Path
	mustExec(t, behind(t, half), "drop table lobsink_fences")

	for _, tt := range []struct {
		name, path, says string
	}{
		{"no file", filepath.Join(folder, "none.db"), "run: lobsink setup --store sqlite:" + folder},
		{"no folder", filepath.Join(folder, "none", "none.db"), "run: lobsink setup --store sqlite:" + folder},
		{"a folder", folder, "is no file"},
		{"below a file", filepath.Join(file("file", ""), "x.db"), "name a file in a folder"},
		{"an empty file", file("empty", ""), "run: lobsink setup"},
		{"no database", file("text", strings.Repeat("not a database\n", 1000)), "no SQLite database"},
		{"of another program", other, "run: lobsink setup"},
		{"newer", newer, "version 1000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, _ := os.ReadFile(tt.path)
			o := sqlite.Options{Path: tt.path}
			_, err := sqlite.Open(t.Context(), o)
			fatal(t, err, tt.says)
			_, err = sqlite.OpenReader(t.Context(), o)
			fatal(t, err, tt.says)
			if after, _ := os.ReadFile(tt.path); string(after) != string(before) {
				t.Error("the file has changed")
			}
		})
	}
	for _, path := range []string{folder, filepath.Join(folder, "text"), newer} {
		_, _, err := sqlite.Setup(t.Context(), sqlite.Options{Path: path})
		fatal(t, err, "")
	}
	o := sqlite.Options{Path: half}
	_, err := open(t, o).Claim(t.Context(), lobwriter.ClaimRequest{ClaimID: "00000000000000cc", MemberID: "00000000000000aa", Lease: time.Hour})
	if lobwriter.KindOf(err) != lobwriter.Invalid { // not bound yet: no partition 0
		t.Errorf("error %v", err)
	}
	_, err = openReader(t, o).Fence(t.Context(), 1)
	fatal(t, err, "no such table")
}

// A reader sees the file as it is: it makes none, and changes none.
func TestReaderChangesNothing(t *testing.T) {
	o := newFile(t)
	s := open(t, o)
	own := lobtest.NewOwner(t, s, 1)
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a/>")))
	s.Close()
	state := func() string {
		var b strings.Builder
		entries, err := os.ReadDir(filepath.Dir(o.Path))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(filepath.Dir(o.Path), e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(e.Name(), "-shm") {
				text = nil // where readers say that they read
			}
			fmt.Fprintf(&b, "%s: %x\n", e.Name(), text)
		}
		return b.String()
	}
	before := state()
	r := openReader(t, o)
	checkDocument(t, r, "k", "<a/>")
	r.Close()
	if state() != before {
		t.Error("the folder has changed")
	}
}

// Another file that takes the name of the database, such as a backup, is
// noticed: what is committed to the old one is confirmed to nobody.
func TestReplacedFile(t *testing.T) {
	o := newFile(t)
	s := open(t, o)
	own := lobtest.NewOwner(t, s, 1)
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a/>")))
	backup := filepath.Join(t.TempDir(), "backup.db")
	mustExec(t, behind(t, o.Path), "vacuum into ?", backup)
	own.Flush(t, own.Append("k", lobtest.Text(2, "<b/>")))

	away := o.Path + ".away"
	if err := os.Rename(o.Path, away); err != nil {
		t.Fatal(err)
	}
	f := own.NewFlush(own.Append("k", lobtest.Text(3, "<c/>")))
	_, err := s.Flush(t.Context(), f)
	if err == nil || lobwriter.KindOf(err) != lobwriter.Transient {
		t.Errorf("while the name is gone: %v", err)
	}
	if err := os.Rename(backup, o.Path); err != nil {
		t.Fatal(err)
	}
	_, err = s.Flush(t.Context(), f)
	fatal(t, err, "another file has taken the place")
	_, err = s.Renew(t.Context(), own.Claim, time.Hour)
	fatal(t, err, "another file has taken the place")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"-wal", "-shm"} { // as the error says
		if err := os.Remove(o.Path + name); err != nil {
			t.Fatal(err)
		}
	}
	again := open(t, o)
	checkDocument(t, openReader(t, o), "k", "<a/>")
	if f, err := again.Fence(t.Context(), 1); err != nil || f.Checkpoint != lobtest.At(1) {
		t.Errorf("the backup stands at %+v, %v", f, err)
	}
}

// A relative name is a file, whatever it looks like.
func TestRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, path := range []string{"lobsink.db", ":memory:", ".//new//lobsink.db"} {
		o := sqlite.Options{Path: path}
		if _, _, err := sqlite.Setup(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		own := lobtest.NewOwner(t, open(t, o), 1)
		own.Flush(t, own.Append("k", lobtest.Text(1, "<a/>")))
		checkDocument(t, openReader(t, o), "k", "<a/>")
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
