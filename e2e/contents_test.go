package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestContents: what a fragment has in it is the producer's business. It is
// stored as it came, or, if no database takes it, is in the dead letters (O54 to
// O62).
func TestContents(t *testing.T) {
	declared := `<?xml version="1.0" encoding="UTF-8"?>`
	megabyte := strings.Repeat("0123456789abcde\n", 1<<16)
	cases := []struct {
		name      string
		fragments []string
		refused   map[int]string // index of a fragment to what the reason says
	}{
		{"O54 control characters", []string{"<a>\x08</a>", "<a><![CDATA[\x1b[31m]]></a>", "<a>&#1;</a>", "\x01\x1f\x7f\u0085"}, nil},
		{"O55 byte order marks", []string{"\ufeff<a/>", "\ufeff<b/>", "\ufeff<c/>"}, nil},
		{"O56 declarations in the middle", []string{declared + "<a/>", declared + "<b/>"}, nil},
		{"O57 Latin-1 as declared", []string{"<?xml version='1.0' encoding='ISO-8859-1'?><a>", "\xe9", "</a>"}, map[int]string{1: "0xE9"}},
		{"O57 UTF-8 declared as Latin-1", []string{"<?xml version='1.0' encoding='ISO-8859-1'?><a>é</a>"}, nil},
		{"O57 UTF-8 declared as UTF-16", []string{"<?xml version='1.0' encoding='UTF-16'?><a>é</a>"}, nil},
		{"O58 ends of lines", []string{"<a b='a\r\nb\rc&#13;\n'>", "a\r\nb\rc&#13;\n", "<![CDATA[a\r", "\nb\rc\n]]></a>\r"}, nil},
		{"O59 cut anywhere", []string{"<a><![CDATA[x]", "]", ">y</a>", `<a b="`, `1"/>`, "&am", "p;"}, nil},
		{"O60 twelve megabytes of text", []string{
			"<a>", megabyte, megabyte, megabyte, megabyte, megabyte, megabyte,
			megabyte, megabyte, megabyte, megabyte, megabyte, megabyte, "</a>"}, nil},
		{"O61 U+0000", []string{"<a>", "<b>x\x00y</b>", "</a>"}, map[int]string{1: "offset 4"}},
		{"O62 no characters of XML", []string{"<a>\u000b</a>", "<a>\u000c</a>", "<a>\ufffe</a>", "<a>\uffff</a>", "\U0010ffff"}, nil},
		{"surrogates", []string{"<a>", "\xed\xa0\xbd\xed\xb8\x80", "😀</a>"}, map[int]string{1: "0xED"}},
		{"cut within a character", []string{"<a>\xf0\x9f", "\x98\x80</a>", "<b/>"}, map[int]string{0: "0xF0", 1: "0x98"}},
	}
	databases(t, func(t *testing.T, db *database) {
		b := startBroker(t)
		must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
		js := b.connect()
		s := startSink(t, "--nats", b.url(), "--store", db.url, "--max-age", "50ms")
		want := truth{text: map[string]string{}, last: map[string]uint64{}}
		type refused struct{ payload, says string }
		dead := map[uint64]refused{}
		// Interleaved, so that each stands next to the others in a flush.
		for i := range 14 {
			for _, c := range cases {
				if i >= len(c.fragments) {
					continue
				}
				var header []string
				if i == len(c.fragments)-1 {
					header = []string{"Lobsink-Final", "true"}
				}
				seq := publish(t, js, "fragments."+token(c.name), c.fragments[i], header...)
				want.last[c.name] = seq
				if says, ok := c.refused[i]; ok {
					dead[seq] = refused{c.fragments[i], says}
				} else {
					want.text[c.name] += c.fragments[i]
				}
			}
		}
		db.stored(t, want, time.Minute)
		got := db.texts(t)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				if got[c.name] != want.text[c.name] {
					t.Error(difference(got[c.name], want.text[c.name]))
				}
				state := "complete"
				if len(c.refused) > 0 {
					state = "incomplete"
				}
				if d := db.show(t, c.name); d.State != state || d.Holes != len(c.refused) || d.Fragments != len(c.fragments) {
					t.Errorf("%+v, want %s with %d holes in %d fragments", d, state, len(c.refused), len(c.fragments))
				}
				must(t, "doc", "verify", c.name, "--store", db.url)
			})
		}
		found := letters(t, b)
		if len(found) != len(dead) {
			t.Errorf("%d dead letters, want %d", len(found), len(dead))
		}
		for seq, w := range dead {
			if l := found[seq]; l.CRC32C != checksum(w.payload) || !strings.Contains(l.Reason, w.says) {
				t.Errorf("dead letter of %q: %+v, want a reason with %s", w.payload, l, w.says)
			}
			if text := must(t, "dlq", "show", fmt.Sprint(seq), "--payload", "--nats", b.url()); text != w.payload {
				t.Errorf("payload of dead letter %d: %s", seq, difference(text, w.payload))
			}
		}
		if code := s.terminate(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
	})
}
