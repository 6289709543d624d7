package xmlsplit

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// split returns the pieces of a file, and checks that they are the file.
func split(t interface {
	Helper()
	Fatalf(string, ...any)
}, src io.Reader, file string, o Options) []string {
	t.Helper()
	var pieces []string
	for piece, err := range Split(src, o) {
		if err != nil {
			t.Fatalf("%v", err)
		}
		if len(piece) == 0 {
			t.Fatalf("an empty piece after %q", pieces)
		}
		if o.Limit > 0 && len(piece) > o.Limit {
			t.Fatalf("a piece of %d bytes, the limit is %d", len(piece), o.Limit)
		}
		pieces = append(pieces, string(piece))
	}
	if joined := strings.Join(pieces, ""); joined != file {
		t.Fatalf("joined %q, the file is %q", joined, file)
	}
	return pieces
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		name   string
		depth  int
		pieces []string
	}{
		{"empty", 1, nil},
		{"only a root", 1, []string{"<a/>"}},
		{"no markup", 1, []string{"just text"}},
		{"children", 1, []string{"<a>\n ", "<b>1</b>\n ", "<b>2</b>\n", "<c/></a>\n"}},
		{"prolog", 1, []string{"\ufeff<?xml version='1.0'?>\n<!-- <x> -->\n<a>", "<b/></a><!-- end -->\n"}},
		{"grandchildren", 2, []string{"<a><b>", "<c/>", "<c>x</c></b> <b> ", "<c/></b></a>"}},
		{"deeper than there is", 3, []string{"<a><b/></a>"}},
		{"not at all", 0, []string{"<a><b/></a>"}},
		{"empty elements do not nest", 1, []string{"<a>", "<b/>", "<b />", "<b x='/'><c/></b></a>"}},
		{"tags in attributes", 1, []string{`<a t="</a><b>" u='>"'>`, `<b t="<c>"/>`, `<b/></a>`}},
		{"tags in comments", 1, []string{"<a><!-- <b> ' -- > --->", "<b/><!----></a>"}},
		{"comments do not end where they begin", 1, []string{"<a><!--><b/>-->", "<b/><!---><b/>--></a>"}},
		{"tags in CDATA", 1, []string{"<a><![CDATA[<b>]]]]>", "<b/><![CDATA[]]></a>"}},
		{"tags in instructions", 1, []string{"<a><?x <b> ?? > ?>", "<b/><?><b/>?></a>"}},
		{"document type", 1, []string{`<!DOCTYPE a PUBLIC "-//x//>" '<b>' [
			<!-- ' <b> " ]> -->
			<!ENTITY e "<b>'</b>">
			<!ELEMENT a (b|c)*>
			<?x ' ]> <b> ?>
			%pe;
		]><a>`, "<b/></a>"}},
		{"names beyond ASCII", 1, []string{"<заказ>", "<строка/>", "<行/></заказ>"}},
		{"prefixes", 1, []string{"<x:a>", "<x:b/>", "<_c/></x:a>"}},
		{"blanks in tags", 1, []string{"<a\n>", "<b\r\n\tc='d'\n/>", "<b></b\n></a >"}},
		// What is not well-formed stays in one piece from there on.
		{"a lone <", 1, []string{"<a>", "<b/>1 < 2<b/></a>"}},
		{"a tag in a tag", 1, []string{"<a>", "<b <b/><b/></a>"}},
		{"too many ends", 1, []string{"<a>", "<b/></a></a><a><b/></a>"}},
		{"an unknown <!", 1, []string{"<a>", "<b/><!CDATA[<b/>]]><b/></a>"}},
		{"a document that ends within", 1, []string{"<a>", "<b/>", "<b"}},
		{"a comment without an end", 1, []string{"<a>", "<b/><!-- <b/></a>"}},
		{"UTF-16", 1, []string{"\xff\xfe<\x00a\x00>\x00<\x00b\x00/\x00>\x00<\x00/\x00a\x00>\x00"}},
		{"Latin-1", 1, []string{"<?xml version='1.0' encoding='ISO-8859-1'?><a>", "<\xe9>\xe9</\xe9>", "<b/></a>"}},
		// Not well-formed either, but nothing that would make the cuts wrong.
		{"two files in one", 1, []string{"<?xml version='1.0'?><a>", "<b/></a><?xml version='1.0'?><a>", "<b/></a>"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := strings.Join(c.pieces, "")
			o := Options{Depth: c.depth}
			if got := split(t, strings.NewReader(file), file, o); !slices.Equal(got, c.pieces) {
				t.Errorf("got  %q\nwant %q", got, c.pieces)
			}
			// Neither reads of one byte nor an end that comes with the last
			// bytes change anything.
			for _, src := range []io.Reader{iotest.OneByteReader(strings.NewReader(file)), iotest.DataErrReader(strings.NewReader(file))} {
				if got := split(t, src, file, o); !slices.Equal(got, c.pieces) {
					t.Errorf("read otherwise: %q", got)
				}
			}
		})
	}
}

func TestLimit(t *testing.T) {
	const file = "<a><b>€€€</b><b/></a>"
	got := split(t, strings.NewReader(file), file, Options{Depth: 1, Limit: 8})
	want := []string{"<a>", "<b>€", "€€</", "b>", "<b/></a>"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestHugeTextNode/O60: a text node of many megabytes is cut by size alone, and
// is never in memory as a whole.
func TestHugeTextNode(t *testing.T) {
	t.Run("O60", func(t *testing.T) {
		const limit, size = 1 << 20, 24 << 20
		src := io.MultiReader(strings.NewReader("<a>"), io.LimitReader(endless('é'), size), strings.NewReader("</a>"))
		total := 0
		next := &splitter{limit: limit, scan: scanner{cut: 1}, yield: func(piece []byte, _ error) bool {
			total += len(piece)
			return utf8.Valid(piece) && len(piece) <= limit
		}}
		block := make([]byte, readSize)
		for {
			n, err := src.Read(block)
			if !next.add(block[:n]) {
				t.Fatal("a piece that is too long or cut within a character")
			}
			if len(next.held) > limit+readSize {
				t.Fatalf("%d bytes held", len(next.held))
			}
			if err != nil {
				break
			}
		}
		next.emit(len(next.held))
		if want := size + len("<a></a>"); total != want {
			t.Errorf("%d bytes, want %d", total, want)
		}
	})
}

// endless reads one character again and again.
type endless rune

func (e endless) Read(p []byte) (int, error) {
	c := string(rune(e))
	n := 0
	for n+len(c) <= len(p) {
		n += copy(p[n:], c)
	}
	return n, nil
}

// TestContent: what people's files have in them comes out as it went in.
func TestContent(t *testing.T) {
	for name, file := range map[string]string{
		"O54": "<a>\x08<![CDATA[\x1b[31m]]>&#1;</a>",
		"O55": "\ufeff<a/>\ufeff<a/>\ufeff<a/>",
		"O56": `<?xml version="1.0" encoding="UTF-8"?><a/><?xml version="1.0" encoding="UTF-8"?><b/>`,
		"O57": "<?xml version='1.0' encoding='UTF-16'?><a>é</a>",
		"O58": "<a b=\"a\r\nb\rc&#13;\n\">a\r\nb\rc&#13;\n<![CDATA[a\r\nb\rc\n]]></a>",
		"O61": "<a>x\x00y</a>",
		"O62": "<a>\u000b</a><a>\u000c</a><a>\ufffe\uffff</a>",
	} {
		t.Run(name, func(t *testing.T) {
			for depth := range 3 {
				split(t, strings.NewReader(file), file, Options{Depth: depth})
			}
		})
	}
}

func TestReadError(t *testing.T) {
	broken := errors.New("broken")
	src := io.MultiReader(strings.NewReader("<a><b/><b/>"), iotest.ErrReader(broken))
	var pieces []string
	var last error
	for piece, err := range Split(src, Options{Depth: 1}) {
		if last = err; err == nil {
			pieces = append(pieces, string(piece))
		}
	}
	if !errors.Is(last, broken) || !slices.Equal(pieces, []string{"<a>", "<b/>"}) {
		t.Errorf("pieces %q and error %v", pieces, last)
	}
}

func TestStopEarly(t *testing.T) {
	for range Split(strings.NewReader("<a><b/><b/></a>"), Options{Depth: 1, Limit: 2}) {
		break
	}
	for range CutAt([]byte("abc"), 1) {
		break
	}
}

// TestProperties: joined pieces are the file, none is above the limit, they are
// those of the whole file cut by CutAt, and how it is read does not matter.
func TestProperties(t *testing.T) {
	parts := []string{
		"<a>", "</a>", "<b/>", "<b c='", "<b c=\"", "'>", "\">", "<!--", "-->", "--->", "<![CDATA[", "]]>", "<?p", "?>",
		"<!DOCTYPE a [", "]>", "<!ENTITY e '", "<", ">", "é", "😀", "\ufeff", "\r\n", "\xff", "\x00", "text", " ",
	}
	rapid.Check(t, func(t *rapid.T) {
		file := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 60).Draw(t, "parts"), "")
		depth := rapid.IntRange(0, 3).Draw(t, "depth")
		limit := rapid.IntRange(0, 20).Draw(t, "limit")
		check(t, []byte(file), depth, limit, rapid.IntRange(1, 9).Draw(t, "read"))
	})
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte("<a><b c='>'/><!-- <b> --><![CDATA[<b>]]><b>é😀</b></a>"), uint8(1), uint8(7), uint8(3))
	f.Add([]byte("<!DOCTYPE a [<!ENTITY e '>'> ]><a><b/></a>"), uint8(1), uint8(0), uint8(1))
	f.Add([]byte("\xff\xfe<\x00a\x00>\x00"), uint8(2), uint8(5), uint8(2))
	f.Fuzz(func(t *testing.T, file []byte, depth, limit, read uint8) {
		check(t, file, int(depth%4), int(limit), int(read)+1)
	})
}

func check(t interface {
	Helper()
	Fatalf(string, ...any)
}, file []byte, depth, limit, read int) {
	t.Helper()
	var want []string
	for _, piece := range split(t, bytes.NewReader(file), string(file), Options{Depth: depth}) {
		for p := range CutAt([]byte(piece), limit) {
			want = append(want, string(p))
		}
	}
	got := split(t, &slowReader{file, read}, string(file), Options{Depth: depth, Limit: limit})
	if !slices.Equal(got, want) {
		t.Fatalf("read %d bytes at a time and cut at %d: %q\nthe whole file, then cut: %q", read, limit, got, want)
	}
	for i, piece := range got {
		if limit >= utf8.UTFMax && utf8.Valid(file) && !utf8.ValidString(piece) {
			t.Fatalf("piece %d is cut within a character: %q", i, piece)
		}
	}
}

// slowReader gives a few bytes at a time.
type slowReader struct {
	file []byte
	read int
}

func (r *slowReader) Read(p []byte) (int, error) {
	if len(r.file) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.file[:min(r.read, len(r.file))])
	r.file = r.file[n:]
	return n, nil
}

func BenchmarkSplit(b *testing.B) {
	file := "<report>" + strings.Repeat("<row n=\"1\">thirty-five characters or so</row>\n", 100_000) + "</report>"
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		for range Split(strings.NewReader(file), Options{Depth: 1, Limit: 1 << 20}) {
		}
	}
}
