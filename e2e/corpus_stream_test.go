package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"hash"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"
)

// published is what `lobsink pub -o json` says.
type published struct {
	Documents, Fragments int
	Bytes                int64
	FirstSequence        *uint64 `json:"first_sequence"`
	LastSequence         *uint64 `json:"last_sequence"`
}

// digest stands for a text: corpora are too large to be held.
type digest struct {
	size int64
	sum  [sha256.Size]byte
}

func digestOf(data []byte) digest { return digest{int64(len(data)), sha256.Sum256(data)} }

// digester makes the digest of a text that comes in pieces.
type digester struct {
	size int64
	hash hash.Hash
}

func (d *digester) add(data []byte) {
	if d.hash == nil {
		d.hash = sha256.New()
	}
	d.size += int64(len(data))
	d.hash.Write(data)
}

func (d *digester) sum() digest {
	if d.hash == nil {
		return digestOf(nil)
	}
	return digest{d.size, [sha256.Size]byte(d.hash.Sum(nil))}
}

// storable is the rule of what can be stored, said once more for the tests.
func storable(data []byte) bool { return utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 }

// refusal is the code of what cannot be stored: that of its first fault.
func refusal(payload string) string {
	for i, r := range payload {
		if r == 0 {
			return "nul"
		}
		if _, size := utf8.DecodeRuneInString(payload[i:]); r == utf8.RuneError && size == 1 {
			return "invalid-utf8"
		}
	}
	return ""
}

// sentFiles is what the stream has of a set of files.
type sentFiles struct {
	first     uint64
	fragments int
	bytes     int64
	documents map[string]*sentFile
	refused   map[uint64]string // sequence to payload of what cannot be stored
}

type sentFile struct {
	all, good digester
	refused   int
	last      uint64
	finals    int
}

// readSent reads the stream from a sequence on, without lobsink.
func readSent(t testing.TB, js jetstream.JetStream, first uint64) *sentFiles {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out := &sentFiles{first: first, documents: map[string]*sentFile{}, refused: map[uint64]string{}}
	last := lastSequence(t, js)
	if last < first {
		return out
	}
	cons, err := js.OrderedConsumer(ctx, streamName, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first})
	if err != nil {
		t.Fatal(err)
	}
	it, err := cons.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer it.Stop()
	for seq := uint64(0); seq < last; {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			t.Fatalf("reading the stream: %v", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		seq = meta.Sequence.Stream
		out.add(seq, keyOf(m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:]), m)
	}
	for key, d := range out.documents {
		if d.finals != 1 {
			t.Errorf("%s has %d final fragments", key, d.finals)
		}
	}
	return out
}

func (s *sentFiles) add(seq uint64, key string, m jetstream.Msg) {
	d := s.documents[key]
	if d == nil {
		d = &sentFile{}
		s.documents[key] = d
	}
	s.fragments++
	s.bytes += int64(len(m.Data()))
	d.all.add(m.Data())
	d.last = seq
	if m.Headers().Get("Lobsink-Final") == "true" {
		d.finals++
	}
	if storable(m.Data()) {
		d.good.add(m.Data())
		return
	}
	d.refused++
	s.refused[seq] = string(m.Data())
}

func lastSequence(t testing.TB, js jetstream.JetStream) uint64 {
	t.Helper()
	s, err := js.Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}

// reached waits until the database is as far as the stream.
func (d *database) reached(t testing.TB, sent *sentFiles, within time.Duration) {
	t.Helper()
	want := truth{last: map[string]uint64{}}
	for key, f := range sent.documents {
		want.last[key] = f.last
	}
	d.stored(t, want, within)
}

// storedText is a document as the view has it.
type storedText struct {
	digest
	state string
}

// digests reads the documents with these keys through the view.
func (d *database) digests(t testing.TB, keys map[string]*sentFile) map[string]storedText {
	t.Helper()
	db := d.open(t)
	defer db.Close()
	rows, err := db.Query("select doc_key, state, bytes, text from lobsink_texts")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]storedText{}
	for rows.Next() {
		var key, state string
		var size int64
		var text sql.RawBytes
		if err := rows.Scan(&key, &state, &size, &text); err != nil {
			t.Fatal(err)
		}
		if keys[key] == nil {
			continue
		}
		if size != int64(len(text)) {
			t.Errorf("%s has %d bytes, the view says %d", key, len(text), size)
		}
		out[key] = storedText{digestOf(text), state}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
