package lobtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

var contentRules = []rule{
	{"chunks around the limit/O13", func(t *testing.T, f Fixture) {
		n := f.Store.Limits().ChunkBytes
		var d [][]string
		for _, size := range []int{1, n - 1, n, n + 1, 2*n - 1, 2 * n, 2*n + 1, 3 * n} {
			d = append(d, []string{letters(size)}, []string{letters(size), letters(size)})
		}
		storesExactly(t, f, d)
	}},
	{"characters on the border of a chunk/O4", func(t *testing.T, f Fixture) {
		n := f.Store.Limits().ChunkBytes
		var d [][]string
		for _, c := range []string{"é", "€", "𝄞"} {
			for before := 1; before <= len(c); before++ {
				d = append(d, []string{letters(n-before) + c + "tail"})
			}
			d = append(d, []string{strings.Repeat(c, n/2)})
		}
		storesExactly(t, f, d)
	}},
	{"sizes at which statements changed their ways/O8,O9", func(t *testing.T, f Fixture) {
		var d [][]string
		for _, size := range []int{3999, 4000, 4001, 8191, 8192, 16383, 16384, 32766, 32767, 32768, 1 << 20} {
			d = append(d, []string{letters(size)}, []string{"<a>", letters(size), letters(size)})
		}
		storesExactly(t, f, d)
	}},
	{"wide characters in many writes/O2,O3", func(t *testing.T, f Fixture) {
		cyrillic := make([]string, 200)
		for i := range cyrillic {
			cyrillic[i] = "dddЩЩЩ"
		}
		storesExactly(t, f, [][]string{cyrillic, {strings.Repeat("😊", 100_000), "x", strings.Repeat("😊", 10_000)}})
	}},
	{"blanks and line ends/O14,O58", func(t *testing.T, f Fixture) {
		storesExactly(t, f, [][]string{
			{"  "}, {" <a/> \n"}, {"\n\n<b/>\r\n"}, {"\t"}, {" ", " ", " "}, {"\r", "\n", "\r\n"}, {"x ", " y"}, {"\u00a0\u2028\u0085"},
			{"a\r\nb\rc&#13;\n"}, {"<![CDATA[a\r\nb\r]]>"}, {"<a b='\r\n\t'/>"},
		})
	}},
	{"empty documents/O11", func(t *testing.T, f Fixture) {
		storesExactly(t, f, [][]string{{""}, {"", ""}, {"", "<a/>"}, {"<a/>", ""}, {"<a>", "", "</a>"}})
	}},
	{"XML that parsers stumble over", func(t *testing.T, f Fixture) {
		storesExactly(t, f, [][]string{
			{"<a>\x08</a>"}, {"<a><![CDATA[\x1b[31m]]></a>"}, {"<a>&#1;</a>"}, // O54
			{"\ufeff<a/>", "\ufeff<b/>", "\ufeff<c/>"},                                                                   // O55
			{`<?xml version="1.0" encoding="UTF-8"?><a/>`, `<?xml version="1.0" encoding="UTF-8"?><b/>`},                 // O56
			{`<?xml version="1.0" encoding="ISO-8859-1"?><a>é</a>`}, {`<?xml version="1.0" encoding="UTF-16"?><a>é</a>`}, // O57
			{"<a><![CDATA[x]", "]", ">y</a>"}, {`<a b="`, `1"/>`}, {"&am", "p;"}, // O59
			{"\x0b"}, {"\x0c"}, {"\ufffe"}, {"\uffff"}, {"\ufffd"}, {"\U0010ffff"}, {"\u007f\u0080\u009f"}, {"e\u0301", "\u0301"}, {"Ł中"}, // O62, O6
			{`\`, `\\`, `'`, `''`, `"`, `%s`, `:1 $1 ?`, `{}`, `\x41`, `\N`, `\.`}, // what statements and copy formats could take for their own
		})
	}},
	{"every control character but U+0000/O54", func(t *testing.T, f Fixture) {
		var d [][]string
		for c := byte(1); c < ' '; c++ {
			d = append(d, []string{"<a>" + string(c), string(c), string(c) + "</a>"})
		}
		storesExactly(t, f, d)
	}},
	{"a text node above 10,000,000 bytes/O60", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		mega := letters(1 << 20)
		for seq := range uint64(12) {
			statuses(t, o.Flush(t, o.Append("k", Text(seq+1, mega))), lobwriter.Appended)
		}
		f.document(t, "k", strings.Repeat(mega, 12))
	}},
	{"one fragment above the limit of a flush", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		text := letters(min(f.Store.Limits().Bytes, 8<<20) + 1)
		statuses(t, o.Flush(t, o.Append("k", Text(1, text))), lobwriter.Appended)
		f.document(t, "k", text)
	}},
	{"as many documents as a flush may have", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		n := f.Store.Limits().Documents
		for range 2 {
			groups := make([]lobwriter.Group, n)
			for i := range groups {
				key := fmt.Sprintf("k%05d", i)
				groups[i] = o.Append(key, Text(o.Rows[key].Mark.Seq+1, key+";"))
			}
			for i, a := range o.Flush(t, groups...).Answers {
				if a.Status != lobwriter.Appended {
					t.Fatalf("group %d: %v", i, a.Status)
				}
			}
		}
		for _, i := range []int{0, n / 2, n - 1} {
			key := fmt.Sprintf("k%05d", i)
			f.document(t, key, key+";"+key+";")
		}
	}},
	{"as much text as a flush may have", func(t *testing.T, f Fixture) {
		o := NewOwner(t, f.Store, 1)
		l := f.Store.Limits()
		n := min(16, l.Documents)
		text := letters(min(l.Bytes, 8<<20) / n)
		groups := make([]lobwriter.Group, n)
		for i := range groups {
			groups[i] = o.Append(fmt.Sprint("k", i), Text(1, text))
		}
		o.Flush(t, groups...)
		for i := range groups {
			f.document(t, fmt.Sprint("k", i), text)
		}
	}},
}

// letters is n bytes of text of which no two neighbourhoods are alike, so that a
// swapped or repeated piece shows.
func letters(n int) string {
	var b strings.Builder
	b.Grow(n + 16)
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "<i n='%d'/>", i)
	}
	return b.String()[:n]
}

// storesExactly builds a document of each list of fragments, a flush for each
// position in the lists, and then the same fragments as one group each.
func storesExactly(t *testing.T, f Fixture, documents [][]string) {
	t.Helper()
	o := NewOwner(t, f.Store, 1)
	longest := 0
	for _, d := range documents {
		longest = max(longest, len(d))
	}
	for n := range longest {
		var groups []lobwriter.Group
		for i, d := range documents {
			if n < len(d) {
				groups = append(groups, o.Append(fmt.Sprint("apart ", i), Text(uint64(n+1), d[n])))
			}
		}
		o.flushAll(t, groups)
	}
	var groups []lobwriter.Group
	for i, d := range documents {
		members := make([]batcher.Fragment, len(d))
		for n, text := range d {
			members[n] = Text(uint64(n+1), text)
		}
		groups = append(groups, o.Append(fmt.Sprint("together ", i), members...))
	}
	o.flushAll(t, groups)
	for i, d := range documents {
		f.document(t, fmt.Sprint("apart ", i), strings.Join(d, ""))
		f.document(t, fmt.Sprint("together ", i), strings.Join(d, ""))
	}
}

// flushAll flushes groups in as few flushes as the limits allow; all must be
// appended.
func (o *Owner) flushAll(t *testing.T, groups []lobwriter.Group) {
	t.Helper()
	l := o.Store.Limits()
	for len(groups) > 0 {
		n, size := 0, int64(0)
		for n < len(groups) && n < l.Documents {
			size += groups[n].After.Bytes - groups[n].Believed.Bytes
			if n > 0 && size > int64(l.Bytes) {
				break
			}
			n++
		}
		for i, a := range o.Flush(t, groups[:n]...).Answers {
			if a.Status != lobwriter.Appended {
				t.Fatalf("%q: %v %s", groups[i].Key, a.Status, a.Text)
			}
		}
		groups = groups[n:]
	}
}
