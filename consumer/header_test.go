package consumer

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
)

func TestParseHeader(t *testing.T) {
	for _, c := range []struct {
		header nats.Header
		want   Meta
		reason string
	}{
		{nil, Meta{}, ""},
		{nats.Header{"Nats-Msg-Id": {"x"}, "lobsink-final": {"true"}, "Lobsink-Other": {""}}, Meta{}, ""},
		{nats.Header{HeaderFinal: {"true"}}, Meta{Final: true}, ""},
		{nats.Header{HeaderFinal: {"false"}, HeaderIndex: {"1"}}, Meta{Index: 1}, ""},
		{nats.Header{HeaderFinal: {"true"}, HeaderIndex: {"9223372036854775807"}, HeaderTotal: {"12"}}, Meta{true, 1<<63 - 1, 12}, ""},

		{nats.Header{HeaderFinal: {"TRUE"}}, Meta{}, `Lobsink-Final is "TRUE"; it must be "true" or "false"`},
		{nats.Header{HeaderFinal: {"1"}, HeaderIndex: {"3"}}, Meta{Index: 3}, `Lobsink-Final is "1"`},
		{nats.Header{HeaderFinal: {""}}, Meta{}, "Lobsink-Final has no value"},
		{nats.Header{HeaderFinal: {"true", "true"}}, Meta{}, "Lobsink-Final stands 2 times"},
		{nats.Header{HeaderFinal: {"true"}, HeaderIndex: {"0"}}, Meta{Final: true}, `Lobsink-Index is "0"`},
		{nats.Header{HeaderIndex: {"-1"}}, Meta{}, "Lobsink-Index"},
		{nats.Header{HeaderIndex: {"+1"}}, Meta{}, "Lobsink-Index"},
		{nats.Header{HeaderIndex: {"01"}}, Meta{}, "Lobsink-Index"},
		{nats.Header{HeaderIndex: {"1_0"}}, Meta{}, "Lobsink-Index"},
		{nats.Header{HeaderIndex: {" 1"}}, Meta{}, "Lobsink-Index"},
		{nats.Header{HeaderIndex: {"9223372036854775808"}}, Meta{}, "from 1 to 2^63-1"},
		{nats.Header{HeaderIndex: {"x"}, HeaderTotal: {"1.5"}}, Meta{}, `Lobsink-Index is "x"; it must be a decimal number from 1 to 2^63-1; Lobsink-Total is "1.5"`},
		{nats.Header{HeaderTotal: {strings.Repeat("9", 60000)}}, Meta{}, "Lobsink-Total"},
	} {
		got, reason := ParseHeader(c.header)
		name := fmt.Sprintf("%.80q", c.header)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		switch {
		case c.reason == "" && reason != nil:
			t.Errorf("%s is refused: %+v", name, reason)
		case c.reason != "" && (reason == nil || reason.Code != "bad-header" || !strings.Contains(reason.Text, c.reason)):
			t.Errorf("%s: reason %+v, want bad-header with %q", name, reason, c.reason)
		case reason != nil && len(reason.Text) > 500:
			t.Errorf("%s: the reason has %d bytes", name, len(reason.Text))
		}
	}
}

func TestCheckText(t *testing.T) {
	const limit = 40
	refused := func(t *testing.T, data, code, words string) {
		t.Helper()
		r := CheckText([]byte(data), limit)
		if r == nil || r.Code != code || !strings.Contains(r.Text, words) {
			t.Errorf("%q: %+v, want %s with %q", data, r, code, words)
		}
	}
	t.Run("O25", func(t *testing.T) {
		refused(t, strings.Repeat("\x00", limit+1), "too-large", "has 41 bytes; max_fragment_bytes is 40")
	})
	t.Run("O61", func(t *testing.T) {
		refused(t, "<a>x\x00y</a>", "nul", "U+0000 at byte offset 4")
		refused(t, "é\x00\xff", "nul", "byte offset 2")
	})
	t.Run("O57", func(t *testing.T) {
		refused(t, "caf\xe9 au lait", "invalid-utf8", "at byte offset 3 (0xE9)")
	})
	refused(t, "a\xff\x00", "invalid-utf8", "byte offset 1")
	refused(t, "€\xe2\x82", "invalid-utf8", "byte offset 3")        // cut short
	refused(t, "\xed\xa0\x80", "invalid-utf8", "byte offset 0")     // a surrogate
	refused(t, "ab\xc0\x80", "invalid-utf8", "byte offset 2")       // overlong U+0000
	refused(t, "\xf4\x90\x80\x80", "invalid-utf8", "byte offset 0") // above U+10FFFF

	// O54, O55, O62: valid UTF-8 that is no valid XML is kept as it is.
	for _, data := range []string{"", "\x08", "\x1b[31m", "\v\f\ufffe\uffff", "\ufeff<a/>", "\ufffd", "😀", "\x7f", strings.Repeat("x", limit)} {
		text := []byte(data)
		if r := CheckText(text, limit); r != nil {
			t.Errorf("%q is refused: %+v", data, r)
		}
		if n := testing.AllocsPerRun(100, func() { CheckText(text, limit) }); n != 0 {
			t.Errorf("%q: %v allocations", data, n)
		}
	}
}

// FuzzCheckText: exactly valid UTF-8 without U+0000 passes, and the offset is
// where it ends.
func FuzzCheckText(f *testing.F) {
	for _, s := range []string{"", "a\x00", "\xff", "é\xe2\x82", "\ufffd"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := CheckText(data, len(data))
		if good := utf8.Valid(data) && !strings.Contains(string(data), "\x00"); good != (r == nil) {
			t.Fatalf("%q: %+v", data, r)
		}
		if r == nil {
			return
		}
		var offset int
		format := "the fragment is not valid UTF-8 at byte offset %d"
		if r.Code == CodeNUL {
			format = "the fragment has U+0000 at byte offset %d"
		}
		if _, err := fmt.Sscanf(r.Text, format, &offset); err != nil {
			t.Fatalf("%q: %v", r.Text, err)
		}
		if before := data[:offset]; CheckText(before, len(before)) != nil {
			t.Errorf("%q is bad before offset %d", data, offset)
		}
	})
}

func BenchmarkCheckText(b *testing.B) {
	for _, c := range []struct {
		name, text string
		size       int
	}{{"small", "<row id=\"1\">text</row>", 200}, {"ascii", "<row id=\"1\">text</row>", 1 << 20}, {"cyrillic", "<ряд>текст</ряд>", 1 << 20}} {
		data := []byte(strings.Repeat(c.text, c.size/len(c.text)))
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				CheckText(data, len(data))
			}
		})
	}
}
