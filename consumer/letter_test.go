package consumer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/internal/embednats"
)

// letters is a dead-letter stream on a real server.
type letters struct {
	*DeadLetters
	t  *testing.T
	js jetstream.JetStream
}

func newLetters(t *testing.T, maxPayload int32) *letters {
	t.Helper()
	_, js := server(t, embednats.Options{MaxPayload: maxPayload})
	if _, err := CreateDeadStream(t.Context(), js, "S", 1); err != nil {
		t.Fatal(err)
	}
	return &letters{NewDeadLetters(js, "S"), t, js}
}

// edit changes the dead-letter stream.
func (l *letters) edit(change func(*jetstream.StreamConfig)) {
	l.t.Helper()
	cfg := l.stream().CachedInfo().Config
	change(&cfg)
	if _, err := l.js.UpdateStream(l.t.Context(), cfg); err != nil {
		l.t.Fatal(err)
	}
}

func (l *letters) stream() jetstream.Stream {
	l.t.Helper()
	s, err := l.js.Stream(l.t.Context(), "S_DEAD")
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

func (l *letters) publish(letter Letter) {
	l.t.Helper()
	if err := l.Publish(l.t.Context(), letter); err != nil {
		l.t.Fatal(err)
	}
}

func (l *letters) list(f Filter) (all []Record) {
	l.t.Helper()
	if err := l.List(l.t.Context(), f, func(r Record) error { all = append(all, r); return nil }); err != nil {
		l.t.Fatal(err)
	}
	return all
}

// only expects one letter, with that payload.
func (l *letters) only(want []byte) Record {
	l.t.Helper()
	all := l.list(Filter{})
	if len(all) != 1 {
		l.t.Fatalf("%d letters, want 1", len(all))
	}
	got, err := l.Payload(l.t.Context(), all[0])
	if err != nil || !bytes.Equal(got, want) {
		l.t.Fatalf("payload of %d bytes, %v; want %d bytes", len(got), err, len(want))
	}
	return all[0]
}

// clear deletes all messages.
func (l *letters) clear() {
	l.t.Helper()
	if err := l.stream().Purge(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// letter is one that a test alters.
func letter(data []byte) Letter {
	return Letter{
		Stream: "S", DatabaseID: "0badcafe", Life: 2, Seq: 77, Generation: 3, Key: "a b", Subject: "fragments.5.a%20b",
		Time: 1_700_000_000_123_456_789, Header: nats.Header{"Nats-Msg-Id": {"x"}}, Data: data,
		Reason: batcher.Reason{Code: "nul", Text: "the fragment has U+0000 at byte offset 4"},
	}
}

func random(size int) []byte {
	rng := rand.New(rand.NewPCG(uint64(size), 0))
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return data
}

// TestLetterFormat pins the format, which is final: other programs read it.
func TestLetterFormat(t *testing.T) {
	l := newLetters(t, 0)
	l.publish(letter([]byte("<a>\x00</a>")))
	const root = "lobsink.dead.S.0badcafe.2.77.3."
	want := map[string]string{
		root + "1": "<a>\x00</a>",
		root + "0": `{"reason":"nul: the fragment has U+0000 at byte offset 4","code":"nul","text":"the fragment has U+0000 at byte offset 4",` +
			`"subject":"fragments.5.a%20b","key":"a b","sequence":77,"time":"2023-11-14T22:13:20.123456789Z","headers":{"Nats-Msg-Id":["x"]},` +
			`"bytes":8,"crc32c":"` + checksum([]byte("<a>\x00</a>")) + `","parts":1,"stream":"S","database_id":"0badcafe","life":2,"generation":3}`,
	}
	var order []string
	for seq := uint64(1); seq <= 2; seq++ {
		m, err := l.stream().GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, m.Subject)
		if got := string(m.Data); got != want[m.Subject] {
			t.Errorf("%s:\n got %s\nwant %s", m.Subject, got, want[m.Subject])
		}
	}
	if order[1] != root+"0" {
		t.Errorf("part 0 must come last: %q", order)
	}
	// The check value of CRC-32C is that of "123456789" in every table of CRCs.
	if got := checksum([]byte("123456789")); got != "e3069283" {
		t.Errorf("checksum is %s, want e3069283", got)
	}
}

// TestLetterSizes: a payload of every size around the borders of parts, empty
// ones and headers only.
func TestLetterSizes(t *testing.T) {
	const limit = 2048
	room := limit - partOverhead
	l := newLetters(t, limit)
	for _, size := range []int{0, 1, room - 1, room, room + 1, limit, 2 * room, 2*room + 1, 10*room - 1} {
		x := letter(random(size))
		if size == 0 {
			x.Data = nil
		}
		l.publish(x)
		r := l.only(x.Data)
		if want := (size + room - 1) / room; r.Parts != want || r.Bytes != size || r.Altered != nil {
			t.Errorf("%d bytes: %d parts, %d bytes, altered %q; want %d parts", size, r.Parts, r.Bytes, r.Altered, want)
		}
		l.clear()
	}
}

// TestLetterOfLargestMessage: whatever a producer can publish becomes a letter,
// although its parts have headers, too.
func TestLetterOfLargestMessage(t *testing.T) {
	l := newLetters(t, 0)
	x := letter(random(embednats.DefaultMaxPayload))
	l.publish(x)
	if r := l.only(x.Data); r.Parts != 2 {
		t.Errorf("%d parts, want 2", r.Parts)
	}
}

// TestLetterHeads: part 0 fits also when everything in it is huge or hostile,
// and the payload is whole.
func TestLetterHeads(t *testing.T) {
	hostile := strings.Repeat("\r\n+OK \"<>&\x00\x7f\xff\xfe\u2028é", 300)
	many := nats.Header{"Small": {"kept"}}
	for i := range 500 {
		many[fmt.Sprint("H", i)] = []string{hostile[i : i+100]}
	}
	for _, limit := range []int32{smallestRecord + partOverhead, 2048, 4096, 64 << 10, 1 << 20} {
		l := newLetters(t, limit)
		for name, edit := range map[string]func(*Letter){
			"plain":    func(*Letter) {},
			"header":   func(x *Letter) { x.Header = nats.Header{"Small": {"kept"}, "Huge": {strings.Repeat("x", 60000)}} },
			"headers":  func(x *Letter) { x.Header = many },
			"text":     func(x *Letter) { x.Reason.Text = hostile },
			"subject":  func(x *Letter) { x.Subject, x.Key = "fragments.0."+hostile, "" },
			"key":      func(x *Letter) { x.Key = strings.Repeat("\x01", 255) },
			"big name": func(x *Letter) { x.Life, x.Generation, x.Seq = 1<<62, 1<<62, 1<<63 },
			"all": func(x *Letter) {
				x.Header, x.Reason.Text, x.Subject, x.Key = many, hostile, hostile, strings.Repeat("\x01", 255)
			},
		} {
			x := letter(random(5000))
			edit(&x)
			l.publish(x)
			r := l.only(x.Data)
			checkHead(t, fmt.Sprintf("%s within %d", name, limit), &x, &r, limit)
			l.clear()
		}
	}
}

// checkHead expects a record to say what its letter says, but for what it names
// as altered.
func checkHead(t *testing.T, name string, x *Letter, r *Record, limit int32) {
	t.Helper()
	if r.Code != x.Reason.Code || r.Sequence != x.Seq || r.Time.UnixNano() != x.Time || r.Life != x.Life || r.Generation != x.Generation {
		t.Errorf("%s: the record is %+v", name, r)
	}
	altered := strings.Join(r.Altered, " ")
	exact := func(field string, same bool) {
		if same == strings.Contains(altered, field) {
			t.Errorf("%s: %s is the same: %v, but altered is %q", name, field, same, altered)
		}
	}
	exact("text", r.Text == x.Reason.Text)
	exact("subject", r.Subject == x.Subject)
	exact("key", (x.Key == "") == (r.Key == nil) && (r.Key == nil || *r.Key == x.Key))
	exact("headers", cmp.Equal(map[string][]string(x.Header), r.Headers))
	if strings.HasPrefix(name, "header") && limit > 2048 && r.Headers["Small"] == nil {
		t.Errorf("%s: the small header is gone, and the huge ones would have been enough", name)
	}
	for _, s := range []string{r.Text, r.Subject, r.Reason} {
		if !utf8.ValidString(s) {
			t.Errorf("%s: %q is not UTF-8", name, s)
		}
	}
}

// TestLetterRepeated: a letter that was published, wholly or in part, is
// completed by a repeat, also when messages may have another size by then.
func TestLetterRepeated(t *testing.T) {
	const small, large = 2048, 5000
	l := newLetters(t, 0)
	x := letter(random(20000))
	for _, limits := range [][2]int32{{small, small}, {small, large}, {large, small}} {
		l.edit(func(c *jetstream.StreamConfig) { c.MaxMsgSize = limits[0] })
		l.publish(x)
		whole := l.stream().CachedInfo().State.Msgs
		l.clear()
		for there := range whole + 1 {
			l.edit(func(c *jetstream.StreamConfig) { c.MaxMsgSize = limits[0]; c.MaxMsgs = int64(there) })
			if there == 0 {
				l.edit(func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
			} else if err := l.Publish(t.Context(), x); (err == nil) != (there == whole) {
				t.Fatalf("%d of %d messages fit: %v", there, whole, err)
			}
			if n := len(l.list(Filter{})); there < whole && n != 0 {
				t.Errorf("%d letters without part 0", n)
			}
			l.edit(func(c *jetstream.StreamConfig) { c.MaxMsgSize = limits[1]; c.MaxMsgs = -1 })
			for range 2 {
				l.publish(x)
				l.only(x.Data)
			}
			l.clear()
		}
	}
}

// TestLetterStreamFull: no room is an error that names the stream; the letter
// comes when there is room, and what is there already needs none.
func TestLetterStreamFull(t *testing.T) {
	l := newLetters(t, 0)
	l.edit(func(c *jetstream.StreamConfig) { c.MaxMsgs = 2 })
	first, second := letter(random(10)), letter(random(20))
	second.Seq++
	l.publish(first)
	for range 2 {
		err := l.Publish(t.Context(), second)
		if !isCode(err, 10077) || !strings.Contains(err.Error(), "S_DEAD") || !strings.Contains(err.Error(), "maximum messages exceeded") {
			t.Fatalf("full: %v, want 10077 with the stream's name", err)
		}
		l.publish(first)
		l.only(first.Data)
	}
	l.edit(func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
	l.publish(second)
	if n := len(l.list(Filter{})); n != 2 {
		t.Errorf("%d letters, want 2", n)
	}
}

func TestLetterErrors(t *testing.T) {
	expect := func(t *testing.T, err error, words ...string) {
		t.Helper()
		if err == nil {
			t.Fatal("no error")
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %q does not say %q", err, w)
			}
		}
	}
	t.Run("no stream", func(t *testing.T) {
		_, js := server(t, embednats.Options{})
		d := NewDeadLetters(js, "S")
		expect(t, d.Publish(t.Context(), letter(nil)), "S_DEAD", "run: lobsink setup")
		expect(t, d.List(t.Context(), Filter{}, nil), "S_DEAD", "run: lobsink setup")
	})
	t.Run("no room at all", func(t *testing.T) {
		l := newLetters(t, 0)
		l.edit(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 })
		expect(t, l.Publish(t.Context(), letter(nil)), "S_DEAD", "may have 1000 bytes, lobsink needs 1152", "max_msg_size")
	})
	t.Run("another payload", func(t *testing.T) {
		l := newLetters(t, 0)
		l.publish(letter([]byte("one")))
		expect(t, l.Publish(t.Context(), letter([]byte("other"))), "S_DEAD", "is there already with another payload")
		l.only([]byte("one"))
	})
	t.Run("damaged", func(t *testing.T) {
		l := newLetters(t, 0)
		l.edit(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2048 })
		x := letter(random(5000))
		l.publish(x)
		r := l.only(x.Data)
		if _, err := l.js.Publish(t.Context(), x.subject(2), []byte("y")); err != nil {
			t.Fatal(err)
		}
		_, err := l.Payload(t.Context(), r)
		expect(t, err, "message 77", "its record says 5000")
		if err := l.stream().Purge(t.Context(), jetstream.WithPurgeSubject(x.subject(3))); err != nil {
			t.Fatal(err)
		}
		_, err = l.Payload(t.Context(), r)
		expect(t, err, "message 77, part 3 of 4")
	})
	t.Run("server away", func(t *testing.T) {
		srv, js := server(t, embednats.Options{}, nats.NoReconnect())
		if _, err := CreateDeadStream(t.Context(), js, "S", 1); err != nil {
			t.Fatal(err)
		}
		srv.Shutdown()
		expect(t, NewDeadLetters(js, "S").Publish(t.Context(), letter(nil)), "S_DEAD")
	})
	t.Run("stopped", func(t *testing.T) {
		l := newLetters(t, 0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Publish(ctx, letter(nil)); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want canceled", err)
		}
	})
}

// TestLetterHeaders: a letter has the headers that the message had, not those
// with which the server hands messages out.
func TestLetterHeaders(t *testing.T) {
	l := newLetters(t, 0)
	if _, err := CreateStream(t.Context(), l.js, StreamSpec{Name: "S", Root: "s", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	sent := nats.Header{"Lobsink-Final": {"true"}, "traceparent": {"00-1-2-01"}, "X": {"1", "2"}}
	if _, err := l.js.PublishMsg(t.Context(), &nats.Msg{Subject: "s.k", Header: sent}); err != nil {
		t.Fatal(err)
	}
	s, err := l.js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	x := letter(m.Data)
	x.Header = m.Header
	l.publish(x)
	if diff := cmp.Diff(map[string][]string(sent), l.only(nil).Headers); diff != "" {
		t.Error(diff)
	}
}

func TestListLetters(t *testing.T) {
	l := newLetters(t, 0)
	if all := l.list(Filter{}); len(all) != 0 {
		t.Fatalf("%d letters in an empty stream", len(all))
	}
	now := time.Now()
	codes := []string{"nul", "bad-key", "late"}
	const count = 3 * listAtOnce
	for i := range count {
		x := Letter{Stream: "S", DatabaseID: "0badcafe", Life: 1, Seq: uint64(i + 1), Time: now.Add(time.Duration(i) * time.Second).UnixNano(), Reason: batcher.Reason{Code: codes[i%3]}}
		if i%3 != 1 {
			x.Key = fmt.Sprint("k", i%5)
		}
		head, err := x.record(0).encode(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.js.PublishAsync(x.subject(0), head); err != nil {
			t.Fatal(err)
		}
		if _, err := l.js.PublishAsync(x.subject(1), []byte("no record")); err != nil {
			t.Fatal(err)
		}
	}
	<-l.js.PublishAsyncComplete()
	key := func(k string) *string { return &k }
	for name, c := range map[string]struct {
		filter Filter
		want   func(i int) bool
	}{
		"all":    {Filter{}, func(int) bool { return true }},
		"key":    {Filter{Key: key("k2")}, func(i int) bool { return i%3 != 1 && i%5 == 2 }},
		"no key": {Filter{Key: key("")}, func(int) bool { return false }},
		"code":   {Filter{Code: "bad-key"}, func(i int) bool { return i%3 == 1 }},
		"seq":    {Filter{Seq: 500}, func(i int) bool { return i == 499 }},
		"since":  {Filter{Since: now.Add(600 * time.Second)}, func(i int) bool { return i >= 600 }},
		"limit":  {Filter{Limit: 300}, func(i int) bool { return i < 300 }},
		"both":   {Filter{Code: "nul", Limit: 2}, func(i int) bool { return i == 0 || i == 3 }},
	} {
		t.Run(name, func(t *testing.T) {
			var want, got []uint64
			for i := range count {
				if c.want(i) {
					want = append(want, uint64(i+1))
				}
			}
			for _, r := range l.list(c.filter) {
				got = append(got, r.Sequence)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("each fails", func(t *testing.T) {
		stop := errors.New("stop")
		calls := 0
		err := l.List(t.Context(), Filter{}, func(Record) error { calls++; return stop })
		if !errors.Is(err, stop) || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
	})
	t.Run("tidy", func(t *testing.T) {
		if n := l.stream().CachedInfo().State.Consumers; n != 0 {
			t.Errorf("%d consumers were left", n)
		}
	})
	t.Run("deleted meanwhile", func(t *testing.T) {
		calls := 0
		err := l.List(t.Context(), Filter{}, func(Record) error {
			if calls++; calls == 1 {
				l.clear()
			}
			return nil
		})
		if err != nil || calls == 0 {
			t.Errorf("%v after %d letters", err, calls)
		}
	})
}

// FuzzLetterHead: whatever a message brings, part 0 is JSON that fits.
func FuzzLetterHead(f *testing.F) {
	f.Add("text", "subject", "key", "Name", "value", 0)
	f.Add(strings.Repeat("\xff", 3000), strings.Repeat("\x00", 900), strings.Repeat("\x01", 255), "\r\n", strings.Repeat("<", 70000), 3000)
	f.Fuzz(func(t *testing.T, text, subject, key, name, value string, room int) {
		room = smallestRecord + max(room, 0)%(1<<20)
		x := Letter{Stream: strings.Repeat("S", 255), DatabaseID: "0badcafe", Life: 1 << 62, Seq: 1 << 63, Generation: 1 << 62, Key: key[:min(len(key), maxKey)],
			Subject: subject, Time: 1_700_000_000_123_456_789, Header: nats.Header{name: {value}}, Reason: batcher.Reason{Code: CodeInvalidUTF8, Text: text}}
		head, err := x.record(1 << 30).encode(room)
		if err != nil || len(head) > room || !json.Valid(head) {
			t.Fatalf("%d bytes of %d, %v", len(head), room, err)
		}
	})
}
