package e2e

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// letter is a dead letter as `lobsink dlq` prints it.
type letter struct {
	Reason, Code, Text, Subject string
	Key                         *string
	Sequence                    uint64
	Life                        int64
	Headers                     map[string][]string
	Bytes                       int
	CRC32C                      string
}

// document is a document as `lobsink doc show` prints it.
type document struct {
	Key, State             string
	Fragments, Holes, Late int
	Bytes                  int
	CRC32C                 string
	FirstSequence          *uint64 `json:"first_sequence"`
	LastSequence           *uint64 `json:"last_sequence"`
	Reason                 *string
}

// publish stores one message in the stream and returns its sequence.
func publish(t testing.TB, js jetstream.JetStream, subject, text string, header ...string) uint64 {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte(text)
	for i := 0; i+1 < len(header); i += 2 {
		m.Header.Add(header[i], header[i+1])
	}
	ack, err := js.PublishMsg(t.Context(), m)
	if err != nil {
		t.Fatalf("publish on %s: %v", subject, err)
	}
	return ack.Sequence
}

// letters returns the dead letters by sequence.
func letters(t testing.TB, b *broker) map[uint64]letter {
	t.Helper()
	var list struct{ Items []letter }
	decode(t, must(t, "dlq", "ls", "-o", "json", "--limit", "0", "--nats", b.url()), &list)
	out := map[uint64]letter{}
	for _, l := range list.Items {
		if _, twice := out[l.Sequence]; twice {
			t.Errorf("two dead letters of message %d", l.Sequence)
		}
		out[l.Sequence] = l
	}
	return out
}

func (d *database) show(t testing.TB, key string) document {
	t.Helper()
	var out document
	decode(t, must(t, "doc", "show", key, "-o", "json", "--store", d.url), &out)
	return out
}

func decode(t testing.TB, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
}

func checksum(text string) string {
	return fmt.Sprintf("%08x", crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)))
}

// TestDeadLetters: what cannot be stored is in the dead letters, whole, with the
// reason; what can is stored; and the document says so (O11, O23, O25, O57, O61,
// O63).
func TestDeadLetters(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		b := startBroker(t)
		must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
		js := b.connect()
		s := startSink(t, "--nats", b.url(), "--store", db.url, "--lease", "1s", "--max-age", "50ms", "--max-fragment-bytes", "64KiB")

		type refusal struct {
			code, payload string
			says          []string
		}
		refused := map[uint64]refusal{}
		refuse := func(code, subject, payload string, says []string, header ...string) {
			t.Helper()
			refused[publish(t, js, subject, payload, header...)] = refusal{code, payload, says}
		}
		final := []string{"Lobsink-Final", "true"}
		var want []document
		expect := func(d document, text string) {
			d.Bytes, d.CRC32C = len(text), checksum(text)
			want = append(want, d)
		}

		publish(t, js, "fragments.encoding", "<a>")
		refuse("invalid-utf8", "fragments.encoding", "<?xml encoding=\"ISO-8859-1\"?>\xe9", []string{"0xE9", "offset 29"})
		publish(t, js, "fragments.encoding", "</a>", final...)
		expect(document{Key: "encoding", State: "incomplete", Fragments: 3, Holes: 1}, "<a></a>")

		refuse("nul", "fragments.nul", "<a>x\x00y</a>", []string{"U+0000", "offset 4"})
		publish(t, js, "fragments.nul", "<b/>")
		expect(document{Key: "nul", State: "open", Fragments: 2, Holes: 1}, "<b/>")

		refuse("too-large", "fragments.large", strings.Repeat("x", 64<<10+1), []string{"65537", "65536"}, final...)
		expect(document{Key: "large", State: "incomplete", Fragments: 1, Holes: 1}, "")

		refuse("bad-header", "fragments.header", "<h/>", []string{"Lobsink-Index", "first"}, "Lobsink-Index", "first")
		expect(document{Key: "header", State: "open", Fragments: 1, Holes: 1}, "")

		publish(t, js, "fragments.only-headers", "", final...)
		expect(document{Key: "only-headers", State: "complete", Fragments: 1}, "")

		publish(t, js, "fragments.empty", "")
		publish(t, js, "fragments.empty", "<a/>")
		publish(t, js, "fragments.empty", "")
		expect(document{Key: "empty", State: "open", Fragments: 3}, "<a/>")

		publish(t, js, "fragments.late", "<a/>", final...)
		refuse("late", "fragments.late", "<too-late/>", []string{"complete"})
		expect(document{Key: "late", State: "complete", Fragments: 2, Late: 1}, "<a/>")

		for _, token := range []string{"a%2Db", "a%2fb", "%00", "%FF", "a%2", "a+b", "~", "é", strings.Repeat("k", 256)} {
			refuse("bad-key", "fragments."+token, "<no-key/>", nil)
		}
		last := publish(t, js, "fragments.end", "<end/>")
		expect(document{Key: "end", State: "open", Fragments: 1}, "<end/>")

		eventually(t, time.Minute, func() error {
			if got := letters(t, b); len(got) < len(refused) {
				return fmt.Errorf("%d dead letters, want %d", len(got), len(refused))
			}
			marks, err := db.marks(t)
			if err == nil && (marks["end"] != last || marks["late"] == 0) {
				err = fmt.Errorf("the last fragment is not stored")
			}
			return err
		})
		if code := s.terminate(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}

		got := letters(t, b)
		if len(got) != len(refused) {
			t.Errorf("%d dead letters, want %d", len(got), len(refused))
		}
		for seq, w := range refused {
			l := got[seq]
			if l.Code != w.code || l.Bytes != len(w.payload) || l.CRC32C != checksum(w.payload) || (l.Key == nil) != (w.code == "bad-key") {
				t.Errorf("dead letter of message %d is %+v, want code %s of %d bytes", seq, l, w.code, len(w.payload))
			}
			for _, text := range w.says {
				if !strings.Contains(l.Reason, text) {
					t.Errorf("the reason %q does not say %q", l.Reason, text)
				}
			}
			number := fmt.Sprint(seq)
			if text := must(t, "dlq", "show", number, "--payload", "--nats", b.url()); text != w.payload {
				t.Errorf("payload of dead letter %d: %s", seq, difference(text, w.payload))
			}
		}
		for _, w := range want {
			d := db.show(t, w.Key)
			d.FirstSequence, d.LastSequence, d.Reason = nil, nil, nil
			if d != w {
				t.Errorf("document %+v, want %+v", d, w)
			}
		}
		if d := db.show(t, "encoding"); d.Reason == nil || !strings.Contains(*d.Reason, "invalid-utf8") {
			t.Errorf("reason of an incomplete document: %+v", d)
		}
		floored(t, js, 0)
	})
}

// TestExitCodes: scripts can tell what went wrong.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	b, db := startBroker(t), sqliteDatabase(t)
	must(t, "setup", "--nats", b.url(), "--store", db.url)
	nobody := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	for _, c := range []struct {
		name string
		code int
		says string
		args []string
	}{
		{"no such document", 1, `"nobody"`, []string{"doc", "show", "nobody", "--store", db.url}},
		{"no text of no document", 1, `"nobody"`, []string{"doc", "cat", "nobody", "--store", db.url}},
		{"no such dead letter", 1, "4711", []string{"dlq", "show", "4711", "--nats", b.url()}},
		{"no sequence", 64, "sequence", []string{"dlq", "show", "x", "--nats", b.url()}},
		{"no such flag", 64, "--max-age", []string{"run", "--max-ages", "1s"}},
		{"no NATS", 69, nobody, []string{"dlq", "ls", "--nats", "nats://" + nobody}},
		{"no PostgreSQL", 69, "", []string{"doc", "ls", "--store", "postgres://postgres@" + nobody + "/x?sslmode=disable"}},
		{"no stream (O49)", 78, "NOBODY", []string{"run", "--nats", b.url(), "--store", db.url, "--stream", "NOBODY", "--http", "off"}},
		{"lease too short", 78, "lease", []string{"run", "--lease", "100ms"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, stderr, code := call(t, c.args...)
			if code != c.code || !strings.Contains(stderr, c.says) {
				t.Errorf("exit code %d and %q; want %d and %q", code, stderr, c.code, c.says)
			}
		})
	}
}
