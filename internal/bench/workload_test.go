package bench

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestWorkload: each fragment of each document comes once, in the order of its
// document, and the last one says so.
func TestWorkload(t *testing.T) {
	for name, w := range map[string]Workload{
		"even":   {Fragments: 1000, Documents: 10, Size: 100},
		"uneven": {Fragments: 1003, Documents: 10, Size: 101},
		"bursts": {Fragments: 1003, Documents: 10, Size: 7, Burst: 4},
		"one":    {Fragments: 5, Documents: 1, Size: 4},
		"text":   {Fragments: 1003, Documents: 10, Size: 11, Text: []byte(strings.Repeat("<Präzision/>€", 9))},
	} {
		t.Run(name, func(t *testing.T) {
			w.Prefix = "k-"
			if err := w.Validate(); err != nil {
				t.Fatal(err)
			}
			next, ended := make([]int, w.Documents), make([]bool, w.Documents)
			total := 0
			err := w.Each(func(document, number int, last bool) error {
				if number != next[document] || ended[document] {
					t.Fatalf("fragment %d of document %d, want %d", number, document, next[document])
				}
				next[document]++
				ended[document] = last
				total++
				text := w.Append(nil, document, number)
				if !utf8.Valid(text) || w.Text == nil && len(text) != w.Size {
					t.Fatalf("fragment %q of %d bytes", text, len(text))
				}
				if !bytes.Equal(text, w.Append(nil, document, number)) {
					t.Fatal("not the same text again")
				}
				return nil
			})
			if err != nil || total != w.Fragments {
				t.Fatal(total, err)
			}
			for d := range next {
				if next[d] != w.Count(d) || !ended[d] {
					t.Errorf("document %d: %d fragments, want %d; ended: %v", d, next[d], w.Count(d), ended[d])
				}
				if got, err := w.document(w.Key(d)); got != d || err != nil {
					t.Errorf("key %s is of document %d, %v", w.Key(d), got, err)
				}
			}
		})
	}
}

// TestWorkloadMixes: consecutive fragments are of different documents.
func TestWorkloadMixes(t *testing.T) {
	w := Workload{Fragments: 1000, Documents: 10, Size: 10}
	before, same := -1, 0
	_ = w.Each(func(document, _ int, _ bool) error { // never fails
		if document == before {
			same++
		}
		before = document
		return nil
	})
	if same > 200 {
		t.Errorf("%d of 1000 fragments follow one of their own document", same)
	}
}

func TestWorkloadValidate(t *testing.T) {
	for want, w := range map[string]Workload{
		"at least one document":    {Fragments: 1, Size: 10},
		"cannot be spread":         {Fragments: 1, Documents: 2, Size: 10},
		"at least 4":               {Fragments: 1, Documents: 1, Size: 3},
		"only 10 to cut it from":   {Fragments: 1, Documents: 1, Size: 6, Text: make([]byte, 10)},
		"burst must not be negati": {Fragments: 1, Documents: 1, Size: 6, Burst: -1},
	} {
		if err := w.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", w, err, want)
		}
	}
}
