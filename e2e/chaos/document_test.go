package main

import (
	"net/url"
	"regexp"
	"slices"
	"testing"
	"unicode/utf8"
)

func TestDocuments(t *testing.T) {
	type published struct {
		key, text string
		last      bool
	}
	make := func() (all []published) {
		for _, d := range newDocuments(7, 300, 5000) {
			for d.left > 0 {
				text, _, last := d.fragment()
				all = append(all, published{d.key, text, last})
			}
		}
		return all
	}
	all := make()
	if len(all) != 5000 {
		t.Errorf("%d fragments, want 5000", len(all))
	}
	if !slices.Equal(all, make()) {
		t.Error("one seed gives two sets of documents")
	}
	seen := map[string]bool{}
	keys := map[string]bool{}
	large, wide, ends := 0, 0, 0
	for _, p := range all {
		keys[p.key] = true
		if seen[p.text] {
			t.Fatalf("two fragments are alike: %.80q", p.text)
		}
		seen[p.text] = true
		if !utf8.ValidString(p.text) {
			t.Fatalf("a fragment is not UTF-8: %.80q", p.text)
		}
		if len(p.text) > 32767 {
			large++
		}
		if utf8.RuneCountInString(p.text) < len(p.text) {
			wide++
		}
		if p.last {
			ends++
		}
	}
	if len(keys) != 300 || ends != 300 || large == 0 || wide < 4000 {
		t.Errorf("%d documents with %d ends, %d fragments above a chunk, %d with multi-byte characters", len(keys), ends, large, wide)
	}
}

// TestToken: only one spelling of a key is a subject of lobsink.
func TestToken(t *testing.T) {
	canonical := regexp.MustCompile(`^([A-Za-z0-9_-]|%[0-9A-F]{2})+$`)
	for _, key := range []string{"doc-1", "ß 漢 %7/😀", "a.b*>\x01~"} {
		token := (&document{key: key}).token()
		back, err := url.PathUnescape(token)
		if err != nil || back != key || !canonical.MatchString(token) {
			t.Errorf("%q is %q, and back %q %v", key, token, back, err)
		}
	}
}
