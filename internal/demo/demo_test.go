package demo

import (
	"bytes"
	"context"
	"slices"
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
	o := Options{Documents: 3, Fragments: 31, Size: 80, Seed: 7, Bundle: true, Room: 1 << 20}
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
		{Documents: 1, Fragments: 1, Size: 10, Room: 1000},
		{Documents: 1, Fragments: 1, Size: 2000, Room: 1000},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
