package lobtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lobsink/lobsink/lobwriter"
)

// oddKeys are keys that other software mixed up, refused or changed: separators
// and wildcards of subjects and of SQL, blanks, case, composition, collation,
// control characters, and the longest ones.
func oddKeys() []string {
	keys := []string{
		"a.b", "a_b", "a-b", "a%2Db", "a b", "a\tb", "a\nb", "*", ">", "~", "%", "_", "?", "'", "''", `"`, `\`, `\\`, "$1", ":1", "/", "../x", "{}", "NULL", "null", "0", "-1", "00", // O63
		"K1", "K1 ", " K1", "k1", "K1\u00a0", "K1\t", "é", "e\u0301", "É", "ß", "ss", "SS", "ﬁ", "fi", "İ", "i", "ı", "I", // O64
		"\u200b", "\ufeff", "\ufeffx", "x", "\ufffd", "\uffff", "\U0001f600", "\U0010ffff", "\x7f", "中", "ä", "z", "Z", "a", "A", "aa", "a\x01",
		strings.Repeat("k", 255), strings.Repeat("k", 254), strings.Repeat("k", 254) + "l", strings.Repeat("𝄞", 63) + "abc", strings.Repeat("é", 127) + "x",
	}
	for c := byte(1); c < ' '; c++ {
		keys = append(keys, "c"+string(c))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

var keyRules = []rule{
	{"keys are compared byte by byte/O63,O64", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		keys := oddKeys()
		for round := range uint64(2) {
			groups := make([]lobwriter.Group, len(keys))
			for i, key := range keys {
				groups[i] = o.Append(key, Text(round+1, fmt.Sprint(i, ";")))
			}
			o.flushAll(t, groups)
		}
		rows, err := f.Store.Rows(t.Context(), 1, keys)
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range keys {
			f.document(t, key, fmt.Sprint(i, ";", i, ";"))
			if d := cmp.Diff(o.Rows[key], rows[i]); d != "" {
				t.Errorf("row of %q: %s", key, d)
			}
		}
	}},
	{"documents come in byte order of their keys, whatever the page", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		keys := oddKeys()
		var groups []lobwriter.Group
		for i, key := range slices.Backward(keys) {
			groups = append(groups, o.Append(key, Text(uint64(i+1), "x")))
		}
		o.flushAll(t, groups)
		for _, limit := range []int{1, 7, len(keys), 10 * len(keys)} {
			if d := cmp.Diff(keys, pages(t, f.Reader, lobwriter.Query{Limit: limit})); d != "" {
				t.Errorf("pages of %d: %s", limit, d)
			}
		}
	}},
	{"a prefix is compared byte by byte", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		keys := oddKeys()
		var groups []lobwriter.Group
		for i, key := range keys {
			groups = append(groups, o.Append(key, Text(uint64(i+1), "x")))
		}
		o.flushAll(t, groups)
		for _, prefix := range []string{"a", "a%", "a_", "%", "_", `\`, "'", "K1", "K1 ", "\ufeff", "\U0010ffff", "\uffff", "é", "c\x1f", strings.Repeat("k", 254), strings.Repeat("k", 255), "no such"} {
			var want []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) {
					want = append(want, key)
				}
			}
			if d := cmp.Diff(want, pages(t, f.Reader, lobwriter.Query{Prefix: prefix, Limit: 2})); d != "" {
				t.Errorf("prefix %q: %s", prefix, d)
			}
		}
	}},
	{"rows come in the order of the keys, zero where there is no document", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("b", Text(1, "x")), o.Append("a", Final(2, "yy")))
		got, err := f.Store.Rows(t.Context(), 1, []string{"c", "b", "", "a", "B"})
		if err != nil {
			t.Fatal(err)
		}
		want := []lobwriter.Row{{}, o.Rows["b"], {}, o.Rows["a"], {}}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		if got, err := f.Store.Rows(t.Context(), 1, nil); err != nil || len(got) != 0 {
			t.Errorf("no keys: %v, %v", got, err)
		}
	}},
	{"rows of more keys than a flush has", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("k7", Text(1, "x")))
		keys := make([]string, f.Store.Limits().Documents+10)
		want := make([]lobwriter.Row, len(keys))
		for i := range keys {
			keys[i] = fmt.Sprint("k", i)
		}
		want[7] = o.Rows["k7"]
		got, err := f.Store.Rows(t.Context(), 1, keys)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}},
}

// pages reads all documents of a query page by page and returns their keys.
func pages(t testing.TB, r lobwriter.Reader, q lobwriter.Query) []string {
	t.Helper()
	var keys []string
	for {
		page, err := r.Documents(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > q.Limit {
			t.Fatalf("a page of %d has %d documents", q.Limit, len(page))
		}
		if len(page) == 0 {
			return keys
		}
		for _, d := range page {
			if d.Key <= q.After {
				t.Fatalf("%q comes on the page after %q", d.Key, q.After)
			}
			keys = append(keys, d.Key)
		}
		q.After = page[len(page)-1].Key
	}
}
