package consumer

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/lobsink/lobsink/lobwriter"
)

// TestContents: bytes in, bytes out. Nothing is parsed, trimmed, joined or
// translated on the way.
func TestContents(t *testing.T) {
	t.Parallel()
	repeated := func(s string, n int) (out []string) {
		for range n {
			out = append(out, s)
		}
		return out
	}
	cases := []struct {
		name      string
		fragments []string
	}{
		{"O2 Cyrillic in many writes", repeated("dddЩЩЩ", 1000)},
		{"O14 blanks and line ends", []string{"  ", " <a/> \n", "\n\n<b/>\r\n", "\t"}},
		{"O14 blanks only", []string{"  "}},
		{"O54 stray C0 characters", []string{"<a>\x08</a>", "<a><![CDATA[\x1b[31m]]></a>", "<a>&#1;</a>"}},
		{"O55 a BOM in each fragment", repeated("\ufeff<a/>", 3)},
		{"O56 a declaration in each fragment", repeated(`<?xml version="1.0" encoding="UTF-8"?><a/>`, 3)},
		{"O57 another encoding declared", []string{`<?xml version="1.0" encoding="ISO-8859-1"?><a>é</a>`, `<?xml version="1.0" encoding="UTF-16"?>`}},
		{"O58 line ends", []string{"a\r\nb\rc&#13;\n", "<![CDATA[a\r\nb\rc]]>", "<a b=\"x\r\ny\rz\"/>"}},
		{"O59 not well-formed alone", []string{"<a><![CDATA[x]", "]", ">y</a>", `<a b="`, `1"/>`, "&am", "p;"}},
		{"O60 one text node", append(append([]string{"<a>"}, repeated(strings.Repeat("x", 1_000_000), 12)...), "</a>")},
		{"O62 valid UTF-8 that is not XML", []string{"\u000b", "\u000c", "\ufffe", "\uffff"}},
	}
	for _, chunk := range []int{7, 64, 32767} {
		t.Run(fmt.Sprintf("chunks of %d", chunk), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 2)
			r.cfg.ChunkBytes = chunk
			r.start()
			want := map[string]string{}
			for _, c := range cases {
				if chunk < 64 && strings.HasPrefix(c.name, "O60") {
					continue // 1.7 million chunks say no more than 190,000
				}
				want[c.name] = strings.Join(c.fragments, "")
				for _, f := range c.fragments {
					r.publish(c.name, []byte(f), nil)
				}
			}
			r.exact()
			r.halt()
			for key, text := range want {
				got, d, err := r.text(key)
				if err != nil || got != text || d.Bytes != int64(len(text)) || d.State != lobwriter.Open || d.Holes != 0 {
					t.Errorf("%s: %d bytes, want %d: %+v, %v", key, len(got), len(text), d.Row, err)
				}
			}
			if got, _, _ := r.text(cases[0].name); len(utf16.Encode([]rune(got))) != 6000 {
				t.Errorf("O2 has %d UTF-16 units, want 6,000", len(utf16.Encode([]rune(got))))
			}
			if l := r.deadLetters(); len(l) > 0 {
				t.Errorf("dead letters: %+v", l)
			}
			r.acked()
		})
	}
}

// TestInvalidContents: what cannot be text goes to the dead letters, and its
// neighbours are unaffected (O57, O61).
func TestInvalidContents(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.start()
	bad := []string{"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>\xe9</a>", "<a>x\x00y</a>"}
	for _, text := range bad {
		r.publish("bad", []byte(text), nil)
	}
	good := r.publish("good", []byte("fine"), nil)
	last := r.publish("bad", []byte("<b/>"), nil)
	r.stored("good", good)
	r.stored("bad", last)
	r.halt()
	if text, d, _ := r.text("bad"); text != "<b/>" || d.Holes != 2 {
		t.Errorf("%q, %+v", text, d.Row)
	}
	l := r.deadLetters()
	if len(l) != 2 || l[0].Code != CodeInvalidUTF8 || l[1].Code != CodeNUL {
		t.Errorf("letters %+v", l)
	}
	r.acked()
}
