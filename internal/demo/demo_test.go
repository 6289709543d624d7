package demo

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/internal/publish"
	"github.com/lobsink/lobsink/lobwriter"
)

// texts is a database that says what it is told to say.
type texts struct {
	lobwriter.Reader
	chunks map[string][][]byte
}

func (r texts) Read(_ context.Context, key string, chunk func([]byte) error) (lobwriter.Document, error) {
	chunks, ok := r.chunks[key]
	if !ok {
		return lobwriter.Document{}, lobwriter.ErrNotFound
	}
	for _, c := range chunks {
		if err := chunk(c); err != nil {
			return lobwriter.Document{}, err
		}
	}
	return lobwriter.Document{Key: key, Row: lobwriter.Row{Chunks: int64(len(chunks))}}, nil
}

func stored(t *testing.T, w *Workload) texts {
	t.Helper()
	r := texts{chunks: map[string][][]byte{}}
	count := 0
	err := w.Each(func(f publish.Fragment) error {
		count++
		r.chunks[f.Key] = append(r.chunks[f.Key], bytes.Clone(f.Data))
		return nil
	})
	if err != nil || count != w.Fragments() || len(r.chunks) != w.Documents() {
		t.Fatalf("%d fragments of %d, %d documents of %d, %v", count, w.Fragments(), len(r.chunks), w.Documents(), err)
	}
	return r
}

// TestCheck: each kind of damage raises its counter.
func TestCheck(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.xml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Documents: 3, Fragments: 31, Size: 80, Seed: 7, Bundle: true, Files: []string{empty}, Room: 1 << 20}
	key := rowKey(1)
	for _, c := range []struct {
		name   string
		damage func(r texts)
		want   func(v Verdict) bool
	}{
		{"nothing", func(texts) {}, func(v Verdict) bool { return v.Exact() && v.LOBWrites > 0 }},
		{"lost", func(r texts) { r.chunks[key] = slices.Delete(r.chunks[key], 3, 4) }, func(v Verdict) bool { return v.Missing == 1 && v.Duplicates+v.OutOfOrder+v.Differing == 0 }},
		{"doubled", func(r texts) { r.chunks[key] = slices.Insert(r.chunks[key], 4, r.chunks[key][3]) }, func(v Verdict) bool { return v.Duplicates == 1 && v.Missing+v.OutOfOrder+v.Differing == 0 }},
		{"swapped", func(r texts) { c := r.chunks[key]; c[2], c[3] = c[3], c[2] }, func(v Verdict) bool { return v.OutOfOrder == 1 && v.Missing+v.Duplicates+v.Differing == 0 }},
		{"changed", func(r texts) { r.chunks[key][5][40] ^= 1 }, func(v Verdict) bool { return v.Differing == 1 && v.Missing == 1 }},
		{"document lost", func(r texts) { delete(r.chunks, key) }, func(v Verdict) bool { return v.Missing == 10 && v.Documents == workload(t, o).Documents()-1 }},
		{"real XML changed", func(r texts) { r.chunks["bundle/cldr/mai.xml"][0][9] ^= 1 }, func(v Verdict) bool { return v.Differing == 1 && v.Missing == 0 }},
		{"real XML lost", func(r texts) { delete(r.chunks, "bundle/cldr/mai.xml") }, func(v Verdict) bool { return v.Differing == 1 }},
		{"empty document lost", func(r texts) { delete(r.chunks, empty) }, func(v Verdict) bool { return v.Differing == 1 }},
		{"real XML cut", func(r texts) { k := "bundle/cldr/mai.xml"; r.chunks[k] = r.chunks[k][1:] }, func(v Verdict) bool { return v.Differing == 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := workload(t, o)
			r := stored(t, w)
			c.damage(r)
			v, err := w.Check(t.Context(), r)
			if err != nil || !c.want(v) {
				t.Errorf("%+v, %v", v, err)
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
	r := stored(t, w)
	got := map[string]string{}
	for key, chunks := range r.chunks {
		got[key] = string(bytes.Join(chunks, []byte("|")))
	}
	want := map[string]string{
		"good.xml": "\ufeff<a>\r\n<b/><b>|<c/>\U0001f600</b></a>", "notes.txt": "no XML", strings.Repeat("x", 255): "<a/>",
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
