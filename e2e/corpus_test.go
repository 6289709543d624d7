package e2e

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lobsink/lobsink/internal/corpus"
)

var corpusForm = flag.String("corpus", "small", "`form` of the corpus test: small takes the XML that comes with lobsink, full fetches packages with apt-get and npm")

// TestCorpus: real XML goes through the binary into both stores, and every file
// is compared byte by byte, behind lobsink's back (O54 to O62, as far as people's
// files have them). What of a file is not UTF-8, or has U+0000, is in the dead
// letters, and nothing takes its place.
func TestCorpus(t *testing.T) {
	sets := smallCorpus(t)
	switch *corpusForm {
	case "small":
	case "full":
		sets = append(sets, fullCorpus(t)...)
	default:
		t.Fatalf("-corpus=%s: must be small or full", *corpusForm)
	}
	databases(t, func(t *testing.T, db *database) {
		b := startBroker(t)
		must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
		s := startSink(t, "--nats", b.url(), "--store", db.url)
		for _, c := range sets {
			t.Run(c.name, func(t *testing.T) { c.run(t, b, db) })
		}
		if code := s.terminate(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
		must(t, "doc", "verify", "--all", "--store", db.url)
	})
}

// files is a set of files below a folder. Their keys are their paths.
type files struct {
	name  string
	root  string
	paths []string // relative to root, with slashes
	depth int
}

func (c *files) read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// smallCorpus is what comes with lobsink, and files that it must not store.
func smallCorpus(t testing.TB) []*files {
	t.Helper()
	root, err := filepath.Abs("../internal/demo")
	if err != nil {
		t.Fatal(err)
	}
	paths, err := corpus.Set{Folder: "bundle"}.Files(root)
	if err != nil {
		t.Fatal(err)
	}
	hostile := &files{name: "hostile", root: t.TempDir(), depth: 1}
	for path, data := range hostileFiles() {
		if err := os.WriteFile(filepath.Join(hostile.root, path), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		hostile.paths = append(hostile.paths, path)
	}
	slices.Sort(hostile.paths)
	return []*files{{name: "bundle", root: root, paths: paths, depth: 2}, hostile}
}

// hostileFiles are files that real producers make.
func hostileFiles() map[string]string {
	return map[string]string{
		"O54-control.xml":       "<r><a>\x08</a><a><![CDATA[\x1b[31m]]></a><a>&#1;</a></r>",
		"O55-marks.xml":         "\ufeff<r><a/>\ufeff<a/>\ufeff<a/></r>",
		"O56-joined.xml":        `<?xml version="1.0"?><r><a/></r><?xml version="1.0"?><r><a/></r>`,
		"O57-latin1.xml":        "<?xml version='1.0' encoding='ISO-8859-1'?><r><a>good</a><a>\xe9</a><a>good</a></r>",
		"O57-declared.xml":      "<?xml version='1.0' encoding='UTF-16'?><r><a>é</a></r>",
		"O57-utf16.xml":         "\xff\xfe<\x00r\x00/\x00>\x00",
		"O58-lines.xml":         "<r>\r\n<a b='a\r\nb\rc&#13;\n'>a\r\nb\rc&#13;\n</a>\r<![CDATA[a\r\nb\rc\n]]></r>\r\n",
		"O59-broken.xml":        "<r><a><![CDATA[x]</a><a b=\"<a>&am<a>p;</b></r></r><a/>",
		"O61-nul.xml":           "<r><a>good</a><a>x\x00y</a><a>good</a></r>",
		"O62-characters.xml":    "<r><a>\u000b</a><a>\u000c</a><a>\ufffe</a><a>\uffff</a></r>",
		"empty.xml":             "",
		"no-xml":                "no markup at all, and no end of line",
		"ß é 漢字 😀 %2F '\"~.xml": "<r><a/></r>",
		"surrogates.xml":        "<r><a>\xed\xa0\xbd\xed\xb8\x80</a><a>😀</a></r>",
		"overlong.xml":          "<r><a>\xc0\xaf</a><a>\xf4\x90\x80\x80</a><a>/</a></r>",
	}
}

func fullCorpus(t testing.TB) (sets []*files) {
	t.Helper()
	dir := t.TempDir()
	for _, s := range corpus.Sets() {
		root, err := s.Fetch(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		paths, err := s.Files(root)
		if err != nil {
			t.Fatal(err)
		}
		sets = append(sets, &files{name: s.Name, root: root, paths: paths, depth: s.Depth})
	}
	return sets
}

// filesPerCall is how many files one call of lobsink pub gets.
const filesPerCall = 500

// run publishes a set, waits until it is stored, and compares.
func (c *files) run(t *testing.T, b *broker, db *database) {
	js := b.connect()
	first := lastSequence(t, js) + 1
	began := time.Now()
	var sum published
	for some := range slices.Chunk(c.paths, filesPerCall) {
		args := []string{"pub", "--nats", b.url(), "--in-flight", "100", "--depth", fmt.Sprint(c.depth), "-o", "json", "--"}
		out, errs, code := callIn(t, c.root, append(args, some...)...)
		if code != 0 {
			t.Fatalf("lobsink pub: exit %d\n%s", code, errs)
		}
		var p published
		decode(t, out, &p)
		sum.Documents += p.Documents
		sum.Fragments += p.Fragments
		sum.Bytes += p.Bytes
	}
	pubTook := time.Since(began)
	sent := readSent(t, js, first)
	db.reached(t, sent, 5*time.Minute)
	took := time.Since(began)

	if sum.Documents != len(c.paths) || sum.Fragments != sent.fragments || sum.Bytes != sent.bytes {
		t.Errorf("lobsink pub says %+v, the stream has %d fragments of %d files, %d bytes", sum, sent.fragments, len(c.paths), sent.bytes)
	}
	stored := db.digests(t, sent.documents)
	wrong := 0
	complain := func(format string, args ...any) {
		if wrong++; wrong <= 5 {
			t.Errorf(format, args...)
		}
	}
	for _, path := range c.paths {
		data := c.read(t, path)
		d := sent.documents[path]
		if d == nil || d.all.sum() != digestOf(data) {
			complain("%s: the stream does not have its bytes", path)
			continue
		}
		got, want := stored[path], digestOf(data)
		state := "complete"
		if d.refused > 0 {
			// Nothing of the refused fragments, and everything else.
			want, state = d.good.sum(), "incomplete"
		}
		if (d.refused == 0) != storable(data) {
			complain("%s: %d fragments refused, storable is %v", path, d.refused, storable(data))
		}
		if got.digest != want || got.state != state {
			complain("%s: the database has %d bytes and state %s, want %d and %s, or other bytes", path, got.size, got.state, want.size, state)
		}
	}
	if len(stored) != len(c.paths) {
		complain("%d documents in the database, want %d", len(stored), len(c.paths))
	}
	if wrong > 5 {
		t.Errorf("and %d more", wrong-5)
	}
	c.deadLetters(t, b, sent)
	t.Logf("%s: %d files, %d fragments, %d bytes; %d fragments of %d files refused; published in %.1f s, stored %.1f s later",
		c.name, len(c.paths), sent.fragments, sent.bytes, len(sent.refused), countRefused(sent), pubTook.Seconds(), (took - pubTook).Seconds())
}

// deadLetters compares the dead letters of the set: exactly those that were
// refused, each whole.
func (c *files) deadLetters(t *testing.T, b *broker, sent *sentFiles) {
	t.Helper()
	got := letters(t, b)
	maps.DeleteFunc(got, func(seq uint64, _ letter) bool { return seq < sent.first })
	for seq, payload := range sent.refused {
		l, ok := got[seq]
		if !ok {
			t.Errorf("fragment at sequence %d cannot be stored and is not in the dead letters", seq)
			continue
		}
		code := refusal(payload)
		if l.Code != code || l.Bytes != len(payload) || l.CRC32C != checksum(payload) {
			t.Errorf("dead letter %+v, want %s of %d bytes with CRC-32C %s", l, code, len(payload), checksum(payload))
		}
		text := must(t, "dlq", "show", fmt.Sprint(seq), "--payload", "--nats", b.url())
		if text != payload {
			t.Errorf("payload of dead letter %d: %s", seq, difference(text, payload))
		}
	}
	for seq, l := range got {
		if _, ok := sent.refused[seq]; !ok {
			t.Errorf("dead letter of a fragment that can be stored: %+v", l)
		}
	}
}

func countRefused(sent *sentFiles) (n int) {
	for _, d := range sent.documents {
		if d.refused > 0 {
			n++
		}
	}
	return n
}
