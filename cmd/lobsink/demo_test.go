package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lobsink/lobsink/internal/demo"
)

// result is what `lobsink demo -o json` prints.
type result struct {
	Documents, Fragments, Bytes    int
	LOBWrites                      int `json:"lob_writes"`
	Missing, Duplicates, Differing int
	OutOfOrder                     int `json:"out_of_order"`
	Exact                          bool
	Seconds                        float64
}

// runDemo runs the demo with -o json and returns the one object that it prints.
func runDemo(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), append([]string{"demo", "-o", "json"}, args...), nil, &out, &errs); code != exitOK {
		t.Fatalf("exit %d: %s%s", code, out.String(), errs.String())
	}
	r := onlyObject(t, out.String())
	if !r.Exact || r.Missing+r.Duplicates+r.OutOfOrder+r.Differing != 0 || r.Seconds <= 0 {
		t.Fatalf("%+v", r)
	}
	return r
}

func onlyObject(t *testing.T, text string) (r result) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	if d.More() {
		t.Fatalf("more than one object: %q", text)
	}
	return r
}

// TestDemo: what everybody runs first is exact, writes many fragments at once,
// and leaves nothing behind.
func TestDemo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r := runDemo(t, "--max-age", "1m") // a slow machine does not count
	if r.Documents < 200 || r.Fragments < 20000 || r.LOBWrites == 0 || r.Fragments < 20*r.LOBWrites {
		t.Errorf("%+v: want at least 20 fragments for each LOB write", r)
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDemoXML: one's own files take the place of those that come with lobsink.
func TestDemoXML(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"a.xml": "<r>\r\n<a>1</a><a>é😀</a></r>", "sub/b.xml": "<r/>", "empty.xml": "",
		"c.xml": "<r><a><![CDATA[<a>]]></a><a>\x01</a></r>",
	}
	size := 0
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		size += len(data)
	}
	few := []string{"--documents", "3", "--fragments", "30", "--size", "100"}
	if r := runDemo(t, append(few, "--xml", dir)...); r.Documents != 3+len(files) || r.Bytes != 3000+size {
		t.Errorf("%+v", r)
	}
	if r := runDemo(t, append(few, "--xml", filepath.Join(dir, "a.xml"))...); r.Documents != 4 || r.Bytes != 3000+len(files["a.xml"]) {
		t.Errorf("%+v", r)
	}
	if r := runDemo(t, append(few, "--no-xml")...); r.Documents != 3 || r.Fragments != 30 || r.Bytes != 3000 {
		t.Errorf("%+v", r)
	}
	if r := runDemo(t, "--documents", "0", "--fragments", "0"); r.Documents == 0 || r.Bytes == 0 {
		t.Errorf("real XML alone: %+v", r)
	}
}

// TestDemoKeep: what is kept can be looked at, and a second demo may be kept in
// the same folder.
func TestDemoKeep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	for _, n := range []int{3, 2} {
		args := []string{"--documents", "3", "--fragments", "30", "--keep", dir, "--no-xml"}
		args[1] = string(rune('0' + n))
		runDemo(t, args...)
		db := openFile(t, filepath.Join(dir, "lobsink.db"))
		var count, size int
		err := db.QueryRow("select count(*), sum(length(text)) from lobsink_demo_texts where state = 'complete'").Scan(&count, &size)
		if err != nil || count != n || size != 30*200 {
			t.Errorf("%d documents with %d bytes, %v", count, size, err)
		}
	}
}

func openFile(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestDemoUsage: wrong options are wrong usage, and nothing is made.
func TestDemoUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--documents", "-1"}, {"--fragments", "-1"}, {"--documents", "10", "--fragments", "9"}, {"--documents", "0"},
		{"--size", "10"}, {"--size", "100000000"}, {"--seed", "-1"}, {"--documents", "many"}, {"-o", "xml"}, {"stray"}, {"--nothing"},
		{"--no-xml", "--xml", "."},
	} {
		dir := filepath.Join(t.TempDir(), "kept")
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"demo", "--keep", dir}, args...), nil, &out, &errs)
		if code != exitUsage || out.Len() > 0 || !strings.Contains(errs.String(), "lobsink demo --help") {
			t.Errorf("%v: exit %d, %q, %q", args, code, out.String(), errs.String())
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%v: a folder was made", args)
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"demo", "--xml", filepath.Join(t.TempDir(), "none.xml")}, nil, &out, &errs); code != exitFailed || !strings.Contains(errs.String(), "none.xml") {
		t.Errorf("a file that is not there: exit %d, %q", code, errs.String())
	}
}

// TestDemoDamage: every kind of damage to the database raises its counter, and no
// other. Rows fill chunks exactly here, so that chunks can be taken as rows. The
// verdict is still one object, and the exit code says that it is bad.
func TestDemoDamage(t *testing.T) {
	const (
		report = "(select id from lobsink_demo_documents where doc_key = 'report-1')"
		bundle = "(select id from lobsink_demo_documents where doc_key = 'bundle/cldr/mai.xml')"
	)
	kept := t.TempDir()
	runDemo(t, "--documents", "4", "--fragments", "2000", "--size", "256", "--chunk-bytes", "2048", "--keep", kept)
	whole := readFile(t, filepath.Join(kept, "lobsink.db"))
	for _, c := range []struct {
		name   string
		damage []string
		rises  func(result) bool
	}{
		{"nothing", nil, func(v result) bool { return v.Exact }},
		{"lost chunk", []string{"delete from lobsink_demo_chunks where n = 2 and document = " + report},
			func(v result) bool { return v.Missing > 0 && v.Duplicates+v.OutOfOrder+v.Differing == 0 }},
		{"doubled chunk", []string{"insert into lobsink_demo_chunks select document, generation, 1000, body from lobsink_demo_chunks where n = 2 and document = " + report},
			func(v result) bool { return v.Duplicates > 0 && v.Missing+v.OutOfOrder+v.Differing == 0 }},
		{"swapped chunks", []string{
			"update lobsink_demo_chunks set n = -1 where n = 2 and document = " + report,
			"update lobsink_demo_chunks set n = 2 where n = 3 and document = " + report,
			"update lobsink_demo_chunks set n = 3 where n = -1 and document = " + report},
			func(v result) bool { return v.OutOfOrder > 0 && v.Missing+v.Duplicates+v.Differing == 0 }},
		{"changed byte", []string{"update lobsink_demo_chunks set body = substr(body, 1, 99) || '?' || substr(body, 101) where n = 2 and document = " + report},
			func(v result) bool { return v.Differing == 1 && v.Missing == 1 && v.Duplicates+v.OutOfOrder == 0 }},
		{"lost document", []string{"delete from lobsink_demo_chunks where document = " + report, "delete from lobsink_demo_documents where doc_key = 'report-1'"},
			func(v result) bool { return v.Missing == 500 && v.Duplicates+v.OutOfOrder == 0 }},
		{"real XML, changed byte", []string{"update lobsink_demo_chunks set body = '?' || substr(body, 2) where document = " + bundle},
			func(v result) bool { return v.Differing == 1 && v.Missing == 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "lobsink.db")
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			db := openFile(t, path)
			for _, statement := range c.damage {
				r, err := db.Exec(statement)
				if err != nil {
					t.Fatal(err)
				}
				if n, err := r.RowsAffected(); n == 0 || err != nil {
					t.Fatalf("%s: %d rows, %v", statement, n, err)
				}
			}
			r, code := judge(t, dir, demo.Options{Documents: 4, Fragments: 2000, Size: 256, Seed: 1, Bundle: true})
			if !c.rises(r) || r.Exact != (c.damage == nil) {
				t.Errorf("%+v", r)
			}
			if want := map[bool]int{true: exitOK, false: exitFailed}[r.Exact]; code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
		})
	}
}

// judge has a kept demo compared with what its options say must be there.
func judge(t *testing.T, dir string, o demo.Options) (r result, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	d := &demonstration{app: &app{stdout: &out, stderr: &errs, flags: newSettingFlags()}, o: o, keep: dir}
	clean, err := d.prepare()
	if err != nil {
		t.Fatal(err)
	}
	defer clean()
	if d.workload, err = demo.New(d.o); err != nil {
		t.Fatal(err)
	}
	err = d.judge(t.Context(), &output{form: "json"}, time.Second)
	return onlyObject(t, out.String()), exitCode(err)
}
