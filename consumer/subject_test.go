package consumer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/internal/embednats"
)

// TestToken/O63: characters with a meaning in subjects, and characters that no
// subject may have, make tokens that the server takes and that come back.
func TestToken(t *testing.T) {
	t.Run("O63", func(t *testing.T) {
		for key, want := range map[string]string{
			"A-b_9": "A-b_9", "a.b": "a%2Eb", "a_b": "a_b", "a b": "a%20b", "a\tb": "a%09b", "é": "%C3%A9",
			"*": "%2A", ">": "%3E", "~": "%7E", "%": "%25", "a%2Eb": "a%252Eb", "$JS": "%24JS", "a\r\nb": "a%0D%0Ab",
			strings.Repeat("é", 127): strings.Repeat("%C3%A9", 127),
		} {
			token, err := Token(key)
			if err != nil || token != want {
				t.Errorf("Token(%q) = %q, %v; want %q", key, token, err, want)
			}
			if back, err := Key(token); err != nil || back != key {
				t.Errorf("Key(%q) = %q, %v; want %q", token, back, err, key)
			}
		}
	})
	for key, words := range map[string]string{
		"":                       "is empty",
		strings.Repeat("a", 300): "has 300 bytes; it must end at byte offset 255",
		strings.Repeat("é", 128): "has 256 bytes",
		"ab\x00":                 "U+0000 at byte offset 2",
		"ab\xffc":                "not valid UTF-8 at byte offset 2",
		"\xed\xa0\x80":           "not valid UTF-8 at byte offset 0", // a surrogate
	} {
		if token, err := Token(key); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("Token(%.20q) = %q, %v; want an error with %q", key, token, err, words)
		}
	}
}

// TestKeyIsStrict: a key has one spelling (two would have two owners).
func TestKeyIsStrict(t *testing.T) {
	for token, words := range map[string]string{
		"":             "is empty",
		"a%2Db":        `the escape at byte 1, "%2D", must be written "-"`,
		"%61":          `must be written "a"`,
		"a%2eb":        `the escape at byte 1, "%2e", is not % and two digits of 0-9 A-F`,
		"%c3%A9":       "byte 0",
		"a%C3%a9":      "byte 4",
		"a%":           "cut short",
		"a%4":          "cut short",
		"a%G0":         "not % and two digits",
		"%é1":          "not % and two digits",
		"a~b":          `byte 1, "~", must be written %7E`,
		"%20é":         "byte 3",
		"+":            "must be written %2B",
		"%00":          "U+0000 at byte offset 0",
		"a%FF":         "not valid UTF-8 at byte offset 1",
		"%C3":          "not valid UTF-8",
		"a.b":          "must be written %2E",
		"\xff":         "must be written %FF",
		tooLong(""):    "has 256 bytes",
		tooLong("%20"): "has 257 bytes",
	} {
		if key, err := Key(token); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("Key(%.20q) = %q, %v; want an error with %q", token, key, err, words)
		}
	}
}

func tooLong(prefix string) string { return prefix + strings.Repeat("a", maxKey+1) }

// FuzzKey: whatever token is accepted is the one spelling of its key, and every
// key has a token.
func FuzzKey(f *testing.F) {
	for _, s := range []string{"a-b", "a%2Db", "é", "%C3%A9", "%", "%%%", "\x00", "a.b", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if key, err := Key(s); err == nil {
			if token, err := Token(key); err != nil || token != s {
				t.Errorf("token %q is accepted for key %q, whose token is %q, %v", s, key, token, err)
			}
		}
		token, err := Token(s)
		if ok := s != "" && len(s) <= maxKey && utf8.ValidString(s) && !strings.Contains(s, "\x00"); ok != (err == nil) {
			t.Fatalf("Token(%q) = %q, %v", s, token, err)
		}
		if err != nil {
			return
		}
		if back, err := Key(token); err != nil || back != s {
			t.Errorf("Key(Token(%q)) = %q, %v", s, back, err)
		}
	})
}

func TestPartitionOf(t *testing.T) {
	// From an independent implementation of FNV-1a 32: 0x811c9dc5 is the hash
	// of nothing, 0xe40c292c of "a", 0xbf9cf968 of "foobar".
	for _, c := range []struct {
		token      string
		partitions int
		want       int
	}{
		{"a", 64, 0x2c}, {"foobar", 8, 0}, {"foobar", 1 << 16, 0xf968}, {"", 1000, 0x811c9dc5 % 1000}, {"a", 1, 0}, {"a", 0, 0},
	} {
		if got := PartitionOf(c.token, c.partitions); got != c.want {
			t.Errorf("PartitionOf(%q, %d) = %d, want %d", c.token, c.partitions, got, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	one, eight := Layout{Root: "a.fragments", Partitions: 1}, Layout{Root: "fragments", Partitions: 8}
	for _, l := range []Layout{one, eight} {
		for p := range l.Partitions {
			subject := l.Stored(p, "k%2E1")
			partition, token, err := l.Parse(subject)
			if err != nil || partition != p || token != "k%2E1" {
				t.Errorf("Parse(%q) = %d, %q, %v", subject, partition, token, err)
			}
			if n := testing.AllocsPerRun(100, func() { _, _, _ = l.Parse(subject) }); n != 0 {
				t.Errorf("Parse(%q) allocates %v times", subject, n)
			}
		}
	}
	for _, subject := range []string{"", "a.fragments", "a.fragments.", "a.fragments.1.k", "a.fragmentsx.k", "fragments.k", "b.fragments.k"} {
		if _, _, err := one.Parse(subject); err == nil || !strings.Contains(err.Error(), "a.fragments.<key>") {
			t.Errorf("Parse(%q): %v, want an error that shows the form", subject, err)
		}
	}
	for _, subject := range []string{"fragments.k", "fragments.8.k", "fragments.07.k", "fragments.-1.k", "fragments.+1.k", "fragments..k",
		"fragments.1.", "fragments.1", "fragments.1.k.x", "fragments.99999999999999999999.k", "Fragments.1.k"} {
		if _, _, err := eight.Parse(subject); err == nil || !strings.Contains(err.Error(), "fragments.<0 to 7>.<key>") {
			t.Errorf("Parse(%q): %v, want an error that shows the form", subject, err)
		}
	}
}

// server starts a real server for a test and connects to it.
func server(t *testing.T, o embednats.Options, opts ...nats.Option) (*embednats.Server, jetstream.JetStream) {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := embednats.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s, dial(t, s, opts...)
}

func dial(t *testing.T, s *embednats.Server, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := s.Connect(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// TestStoredSubject: where the real server stores a fragment is where lobsink
// computes that it is, and a partition's consumer reads it there.
func TestStoredSubject(t *testing.T) {
	_, js := server(t, embednats.Options{})
	rng := rand.New(rand.NewPCG(1, 2))
	for i, partitions := range []int{1, 8, 64} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			l := Layout{Root: fmt.Sprintf("docs.fragments-%d", i), Partitions: partitions}
			name := fmt.Sprint("S", i)
			if _, err := CreateStream(t.Context(), js, StreamSpec{Name: name, Root: l.Root, Partitions: partitions}); err != nil {
				t.Fatal(err)
			}
			keys := make([]string, 1000)
			for n := range keys {
				keys[n] = randomKey(rng)
				token, err := Token(keys[n])
				if err != nil {
					t.Fatal(err)
				}
				if _, err := js.PublishMsgAsync(&nats.Msg{Subject: l.Subject(token)}); err != nil {
					t.Fatal(err)
				}
			}
			<-js.PublishAsyncComplete()
			read := make(map[uint64]string)
			for p := range partitions {
				readPartition(t, js, name, l, p, read)
			}
			for n, want := range keys {
				if got := read[uint64(n+1)]; got != want {
					t.Errorf("message %d is of key %q, want %q", n+1, got, want)
				}
			}
		})
	}
}

// readPartition reads the keys of a partition and checks where they are.
func readPartition(t *testing.T, js jetstream.JetStream, stream string, l Layout, p int, keys map[uint64]string) {
	t.Helper()
	c, err := js.CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{FilterSubject: l.Filter(p), AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := c.FetchNoWait(1000)
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		partition, token, err := l.Parse(m.Subject())
		if err != nil {
			t.Fatal(err)
		}
		if partition != p || PartitionOf(token, l.Partitions) != p || l.Stored(p, token) != m.Subject() {
			t.Errorf("partition %d has %q: parsed %d, computed %d, %q", p, m.Subject(), partition, PartitionOf(token, l.Partitions), l.Stored(p, token))
		}
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		if keys[meta.Sequence.Stream], err = Key(token); err != nil {
			t.Error(err)
		}
	}
	if err := batch.Error(); err != nil {
		t.Fatal(err)
	}
}

func randomKey(rng *rand.Rand) string {
	var b bytes.Buffer
	for n := 1 + rng.IntN(60); n > 0; n-- {
		switch rng.IntN(4) {
		case 0:
			b.WriteRune(rune(1 + rng.IntN(0x7f)))
		case 1:
			b.WriteRune(rune(0xe000 + rng.IntN(0x10ffff-0xe000)))
		default:
			b.WriteByte("abcXYZ019-_"[rng.IntN(11)])
		}
	}
	return b.String()
}

func BenchmarkReceive(b *testing.B) {
	l := Layout{Root: "fragments", Partitions: 8}
	subject := l.Stored(PartitionOf("doc-12345", 8), "doc-12345")
	b.ReportAllocs()
	for b.Loop() {
		_, token, _ := l.Parse(subject)
		PartitionOf(token, 8)
		_, _ = Key(token)
	}
}
