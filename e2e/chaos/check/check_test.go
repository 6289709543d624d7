package check

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// document makes a stream of one document, of which some fragments look alike.
func document(n int, final bool) (Stream, Acked) {
	acked := Acked{}
	var all []Fragment
	for i := range n {
		f := Fragment{Seq: uint64(10 + 3*i), ID: fmt.Sprintf("d:%d", i), Data: fmt.Sprintf(`<f d="ß😀" n="%d">%s</f>`, i, strings.Repeat("é", i%5))}
		f.Final = final && i == n-1
		all = append(all, f)
		acked[f.ID] = Publication{"d", DigestOf(f.Data)}
	}
	return Stream{"d": all}, acked
}

func text(fragments []Fragment) string {
	var b strings.Builder
	for _, f := range fragments {
		b.WriteString(f.Data)
	}
	return b.String()
}

func stored(text, state string) map[string]Document {
	return map[string]Document{"d": {text, state, int64(len(text))}}
}

// TestCompare: each kind of damage raises its count and no other one.
func TestCompare(t *testing.T) {
	const n = 40
	type counts struct {
		missing, duplicates, inversions, ackedNotStored int
		exact                                           bool
	}
	cases := []struct {
		name   string
		damage func(stream Stream, acked Acked) map[string]Document
		want   counts
	}{
		{"nothing", func(s Stream, _ Acked) map[string]Document { return stored(text(s["d"]), "complete") }, counts{exact: true}},
		{"one lost", func(s Stream, _ Acked) map[string]Document {
			return stored(text(slices.Concat(s["d"][:7], s["d"][8:])), "complete")
		}, counts{missing: 1, ackedNotStored: 1}},
		{"the first lost", func(s Stream, _ Acked) map[string]Document { return stored(text(s["d"][1:]), "complete") },
			counts{missing: 1, ackedNotStored: 1}},
		{"the tail lost", func(s Stream, _ Acked) map[string]Document { return stored(text(s["d"][:n-3]), "open") },
			counts{missing: 3, ackedNotStored: 3}},
		{"one lost that nobody acknowledged", func(s Stream, a Acked) map[string]Document {
			delete(a, "d:7")
			return stored(text(slices.Concat(s["d"][:7], s["d"][8:])), "complete")
		}, counts{missing: 1}},
		{"one doubled", func(s Stream, _ Acked) map[string]Document {
			return stored(text(slices.Concat(s["d"][:8], s["d"][7:])), "complete")
		}, counts{duplicates: 1}},
		{"a group doubled", func(s Stream, _ Acked) map[string]Document {
			return stored(text(slices.Concat(s["d"][:20], s["d"][10:])), "complete")
		}, counts{duplicates: 10}},
		{"one doubled at the end", func(s Stream, _ Acked) map[string]Document {
			return stored(text(slices.Concat(s["d"], s["d"][:1])), "complete")
		}, counts{duplicates: 1}},
		{"two swapped", func(s Stream, _ Acked) map[string]Document {
			d := slices.Clone(s["d"])
			d[7], d[8] = d[8], d[7]
			return stored(text(d), "complete")
		}, counts{inversions: 1}},
		{"a group too late", func(s Stream, _ Acked) map[string]Document {
			return stored(text(slices.Concat(s["d"][:10], s["d"][20:30], s["d"][10:20], s["d"][30:])), "complete")
		}, counts{inversions: 1}},
		{"one changed", func(s Stream, _ Acked) map[string]Document {
			return stored(strings.Replace(text(s["d"]), `n="7"`, `n="?"`, 1), "complete")
		}, counts{missing: 1, ackedNotStored: 1}},
		{"a character cut", func(s Stream, _ Acked) map[string]Document {
			return stored(strings.Replace(text(s["d"]), "é", "\xc3", 1), "complete")
		}, counts{missing: 1, ackedNotStored: 1}},
		{"a byte too many", func(s Stream, _ Acked) map[string]Document { return stored(text(s["d"])+"\n", "complete") }, counts{}},
		{"another state", func(s Stream, _ Acked) map[string]Document { return stored(text(s["d"]), "incomplete") }, counts{}},
		{"another length", func(s Stream, _ Acked) map[string]Document {
			d := stored(text(s["d"]), "complete")
			d["d"] = Document{d["d"].Text, "complete", 1}
			return d
		}, counts{}},
		{"no document", func(Stream, Acked) map[string]Document { return nil }, counts{missing: n, ackedNotStored: n}},
		{"a document too many", func(s Stream, _ Acked) map[string]Document {
			d := stored(text(s["d"]), "complete")
			d["e"] = Document{State: "open"}
			return d
		}, counts{}},
		{"one lost by the stream", func(s Stream, _ Acked) map[string]Document {
			s["d"] = slices.Concat(s["d"][:7], s["d"][8:])
			return stored(text(s["d"]), "complete")
		}, counts{ackedNotStored: 1, exact: true}},
		{"one changed by the stream", func(s Stream, _ Acked) map[string]Document {
			s["d"][7].Data = "something else, and long enough"
			return stored(text(s["d"]), "complete")
		}, counts{ackedNotStored: 1, exact: true}},
		{"one twice in the stream", func(s Stream, _ Acked) map[string]Document {
			s["d"] = slices.Concat(s["d"][:8], s["d"][7:])
			return stored(text(s["d"]), "complete")
		}, counts{exact: true}},
		{"one twice in the stream, once stored", func(s Stream, a Acked) map[string]Document {
			once := text(s["d"])
			delete(a, "d:7")
			s["d"] = slices.Concat(s["d"][:8], s["d"][7:])
			return stored(once, "complete")
		}, counts{missing: 1}},
		{"late ones", func(s Stream, _ Acked) map[string]Document {
			d := stored(text(s["d"]), "complete")
			s["d"] = append(s["d"], s["d"][3])
			return d
		}, counts{exact: true}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			stream, acked := document(n, true)
			docs := c.damage(stream, acked)
			v := Compare(stream, docs, acked)
			if got := (counts{v.Missing, v.Duplicates, v.Inversions, v.AckedNotStored, v.Exact}); got != c.want {
				t.Errorf("%+v, want %+v\n%s", got, c.want, strings.Join(v.Faults, "\n"))
			}
			if want := c.want == (counts{exact: true}); v.OK() != want {
				t.Errorf("OK is %v, want %v", v.OK(), want)
			}
			if v.Fragments != len(stream["d"]) {
				t.Errorf("%d fragments, the stream has %d", v.Fragments, len(stream["d"]))
			}
		})
	}
}

// TestAnyDamage: whatever is done to the fragments of a document, it is exact if
// and only if its text is, and damage to whole fragments raises a count.
func TestAnyDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		stream, acked := document(12, false)
		d := slices.Clone(stream["d"])
		for range rng.IntN(3) {
			i, j := rng.IntN(len(d)), rng.IntN(len(d))
			switch rng.IntN(3) {
			case 0:
				d = slices.Delete(d, i, i+1)
			case 1:
				d = slices.Insert(d, i, d[j])
			case 2:
				d[i], d[j] = d[j], d[i]
			}
		}
		same := text(d) == text(stream["d"])
		v := Compare(stream, stored(text(d), "open"), acked)
		if v.OK() != same || v.Exact != same || (v.Missing+v.Duplicates+v.Inversions == 0) != same {
			t.Fatalf("%+v for a document that is the same: %v", v, same)
		}
	}
}

// TestImports: nothing of lobsink takes part in the judgment.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		if strings.HasPrefix(path, "github.com/lobsink/lobsink/") && path != "github.com/lobsink/lobsink/e2e/chaos/check" {
			t.Errorf("imports %s", path)
		}
	}
}
