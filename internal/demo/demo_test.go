package demo

import (
	"bytes"
	"database/sql"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/internal/publish"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/sqlite"
)

// store writes the documents of a workload into a SQLite file, each generated
// fragment as a chunk of its own, and returns the content of the file.
func store(t *testing.T, w *Workload) []byte {
	t.Helper()
	o := sqlite.Options{Path: filepath.Join(t.TempDir(), "demo.db")}
	if _, _, err := sqlite.Setup(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	owner := lobtest.NewOwner(t, s, 0)
	var groups []lobwriter.Group
	flush := func() {
		owner.Flush(t, groups...)
		groups = groups[:0]
	}
	count, held := 0, map[string]bool{}
	err = w.Each(func(f publish.Fragment) error {
		count++
		if held[f.Key] || len(groups) == s.Limits().Documents {
			flush()
			clear(held)
		}
		held[f.Key] = true
		fragment := lobtest.Text(uint64(count), string(f.Data))
		fragment.Final = f.Final
		groups = append(groups, owner.Append(f.Key, fragment))
		return nil
	})
	flush()
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if count != w.Fragments() || len(owner.Rows) != w.Documents() {
		t.Fatalf("%d fragments of %d, %d documents of %d", count, w.Fragments(), len(owner.Rows), w.Documents())
	}
	content, err := os.ReadFile(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// verdict damages a copy of a database with SQL, ? being the key of a document,
// and says what Check makes of it.
func verdict(t *testing.T, w *Workload, content []byte, key string, damage ...string) Verdict {
	t.Helper()
	path := filepath.Join(t.TempDir(), "damaged.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	const document = "(select id from lobsink_documents where doc_key = ?)"
	for _, statement := range damage {
		if _, err := db.Exec(strings.ReplaceAll(statement, "DOCUMENT", document), key); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := sqlite.OpenReader(t.Context(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	v, err := w.Check(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestCheck: each kind of damage to a database raises its counter and no other.
func TestCheck(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.xml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const real = "bundle/cldr/mai.xml"
	w := workload(t, Options{Documents: 3, Fragments: 31, Size: 80, Seed: 7, Files: []string{real, empty}, Room: 1 << 20})
	content := store(t, w)
	const (
		lose = `delete from lobsink_chunks where document = DOCUMENT and n = 4`
		// A chunk moves away, and others move up: n is unique.
		makeRoom = `update lobsink_chunks set n = -n - 1 where document = DOCUMENT and n > 4`
		fill     = `update lobsink_chunks set n = -n where document = DOCUMENT and n < 0`
		double   = `insert into lobsink_chunks (document, generation, n, body) select document, generation, 5, body from lobsink_chunks where document = DOCUMENT and n = 4`
		change   = `update lobsink_chunks set body = replace(body, substr(body, 41, 1), 'X') where document = DOCUMENT and n = 1`
		remove   = `delete from lobsink_documents where id = DOCUMENT`
		text     = `delete from lobsink_chunks where document = DOCUMENT`
	)
	report := rowKey(1)
	for _, c := range []struct {
		name, key                                  string
		damage                                     []string
		missing, duplicates, outOfOrder, differing int
	}{
		{"nothing", report, nil, 0, 0, 0, 0},
		{"lost", report, []string{lose}, 1, 0, 0, 0},
		{"doubled", report, []string{makeRoom, fill, double}, 0, 1, 0, 0},
		{"swapped", report, []string{
			`update lobsink_chunks set n = -3 where document = DOCUMENT and n = 4`,
			`update lobsink_chunks set n = 4 where document = DOCUMENT and n = 3`, fill}, 0, 0, 1, 0},
		{"changed", report, []string{change}, 1, 0, 0, 1},
		{"document lost", report, []string{text, remove}, 10, 0, 0, 0},
		{"real XML lost in part", real, []string{lose}, 0, 0, 0, 1},
		{"real XML swapped", real, []string{
			`update lobsink_chunks set n = -3 where document = DOCUMENT and n = 4`,
			`update lobsink_chunks set n = 4 where document = DOCUMENT and n = 3`, fill}, 0, 0, 0, 1},
		{"real XML changed", real, []string{change}, 0, 0, 0, 1},
		{"real XML lost", real, []string{text, remove}, 0, 0, 0, 1},
		{"empty document lost", filepath.ToSlash(empty), []string{remove}, 0, 0, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := verdict(t, w, content, c.key, c.damage...)
			if v.Missing != c.missing || v.Duplicates != c.duplicates || v.OutOfOrder != c.outOfOrder || v.Differing != c.differing {
				t.Errorf("%+v", v)
			}
			if v.Exact() != (c.damage == nil) {
				t.Errorf("exact: %t", v.Exact())
			}
			if v.Exact() && (v.Documents != w.Documents() || v.Fragments != int64(w.Fragments()) || v.Bytes == 0 || v.LOBWrites == 0) {
				t.Errorf("%+v", v)
			}
		})
	}
}

func workload(t *testing.T, o Options) *Workload {
	t.Helper()
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestSameSeed: the same options give the same fragments in the same order.
func TestSameSeed(t *testing.T) {
	list := func(seed uint64) (all []string) {
		w := workload(t, Options{Documents: 5, Fragments: 50, Size: 100, Seed: seed, Room: 1000})
		if err := w.Each(func(f publish.Fragment) error {
			all = append(all, f.Key+string(f.Data))
			if len(f.Data) != 100 {
				t.Errorf("%d bytes", len(f.Data))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	if !slices.Equal(list(1), list(1)) || slices.Equal(list(1), list(2)) {
		t.Error("the seed does not decide what is published")
	}
}

func TestValidate(t *testing.T) {
	for _, o := range []Options{
		{Documents: 0, Fragments: 1, Size: 100, Room: 1000},
		{Documents: 5, Fragments: 4, Size: 100, Room: 1000},
		{Documents: 0, Fragments: 0, Size: 100, Room: 1000},
		{Documents: -1, Fragments: 0, Size: 100, Room: 1000},
		{Documents: 1, Fragments: 1, Size: 10, Room: 1000},
		{Documents: 1, Fragments: 1, Size: 2000, Room: 1000},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// TestFiles: real files become documents under their paths; those that cannot be
// stored as they are are left out, with the reason.
func TestFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"good.xml": "\ufeff<a>\r\n<b/><b><c/>\U0001f600</b></a>", "latin1.xml": "<a>\xe9</a>", "nul.xml": "<a>\x00</a>", "notes.txt": "no XML",
		strings.Repeat("x", 255): "<a/>",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := workload(t, Options{Size: 100, Room: 1000, Files: []string{"./good.xml", "good.xml", "latin1.xml", "nul.xml", "notes.txt", strings.Repeat("x", 255)}})
	got := map[string]string{}
	err := w.Each(func(f publish.Fragment) error {
		got[f.Key] += "|" + string(f.Data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"good.xml": "|\ufeff<a>\r\n<b/><b>|<c/>\U0001f600</b></a>", "notes.txt": "|no XML", strings.Repeat("x", 255): "|<a/>",
	}
	if !maps.Equal(got, want) {
		t.Errorf("documents %q", got)
	}
	if len(w.LeftOut) != 3 || !strings.HasPrefix(w.LeftOut[0], "good.xml: there is another") ||
		!strings.Contains(w.LeftOut[1], "UTF-8") || !strings.Contains(w.LeftOut[2], "U+0000") {
		t.Errorf("left out %q", w.LeftOut)
	}
}

// TestBundle: what comes with lobsink has in it what real XML has.
func TestBundle(t *testing.T) {
	all, size := map[string]bool{}, 0
	err := eachBundled(func(_ string, data []byte) error {
		size += len(data)
		all["BOM"] = all["BOM"] || bytes.HasPrefix(data, []byte("\ufeff"))
		for _, part := range []string{"<![CDATA[", "\r\n", "<!DOCTYPE", "<!--", "<svg", "\U0001f600", "\u4e2d", "\u0627", "\u0905", "\U00011103", "&#", "\t"} {
			all[part] = all[part] || bytes.Contains(data, []byte(part))
		}
		return nil
	})
	if err != nil || size > 1<<20 {
		t.Errorf("%v, %d bytes", err, size)
	}
	for part, found := range all {
		if !found {
			t.Errorf("%q is not in it", part)
		}
	}
}
