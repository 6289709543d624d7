package consumer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lobsink/lobsink/lobwriter"
)

// Record is what a dead letter says about itself: the JSON of its part 0.
type Record struct {
	// Reason is code and text in one line, for people.
	Reason string `json:"reason"`
	Code   string `json:"code"`
	Text   string `json:"text"`
	// Subject is the subject that the message is stored under in its stream.
	Subject string `json:"subject"`
	// Key is nil where it cannot be read.
	Key      *string `json:"key"`
	Sequence uint64  `json:"sequence"`
	// Time is when the stream stored the message.
	Time    time.Time           `json:"time"`
	Headers map[string][]string `json:"headers"`
	// Bytes and CRC32C (Castagnoli, 8 lower-case hex digits) are of the
	// payload; Parts is the number of messages that hold it.
	Bytes      int    `json:"bytes"`
	CRC32C     string `json:"crc32c"`
	Parts      int    `json:"parts"`
	Stream     string `json:"stream"`
	DatabaseID string `json:"database_id"`
	Life       int64  `json:"life"`
	Generation int64  `json:"generation"`
	// Altered names the fields that are not what the message had: cut to fit,
	// or not UTF-8 and written with U+FFFD. The payload never is.
	Altered []string `json:"altered,omitempty"`
}

// directHeaders are put on a message by the server when it is read directly
// (nats-server, server/stream.go, JSStream to JSTimeStamp), and say nothing that
// the record does not say.
var directHeaders = []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence"}

// record describes a letter of so many parts. A record takes text from anybody,
// so what is not UTF-8 is replaced here.
func (l *Letter) record(parts int) *Record {
	r := &Record{
		Code: l.Reason.Code, Sequence: l.Seq, Time: time.Unix(0, l.Time).UTC(),
		Bytes: len(l.Data), CRC32C: checksum(l.Data), Parts: parts,
		Stream: l.Stream, DatabaseID: l.DatabaseID, Life: l.Life, Generation: l.Generation,
		Headers: map[string][]string{},
	}
	r.Text = r.valid("text", l.Reason.Text)
	r.Reason = r.Code + ": " + r.Text
	r.Subject = r.valid("subject", l.Subject)
	if l.Key != "" {
		key := r.valid("key", l.Key)
		r.Key = &key
	}
	for name, values := range l.Header {
		if slices.Contains(directHeaders, name) {
			continue
		}
		name = r.valid("headers", name)
		for _, v := range values {
			r.Headers[name] = append(r.Headers[name], r.valid("headers", v))
		}
	}
	return r
}

func (r *Record) valid(field, s string) string {
	if utf8.ValidString(s) {
		return s
	}
	r.alter(field)
	return strings.ToValidUTF8(s, "\uFFFD")
}

func (r *Record) alter(field string) {
	if !slices.Contains(r.Altered, field) {
		r.Altered = append(r.Altered, field)
	}
}

// smallestRecord is enough for a record without headers, text, subject and key:
// 310 bytes of names and numbers, and a stream name of 255 bytes.
const smallestRecord = 640

// encode returns the record as JSON of at most room bytes. What does not fit is
// left out, the least needed first: the largest headers, the end of the text,
// then what the letter's own subject or the stream can still tell.
func (r *Record) encode(room int) ([]byte, error) {
	cuts := []func(excess int){
		r.cutHeaders,
		func(int) { r.cutText(200) },
		func(int) { r.cutText(0) },
		func(int) { r.Subject = ""; r.alter("subject") },
		func(int) { r.Key = nil; r.alter("key") },
	}
	for {
		head, err := compact(r)
		if err != nil || len(head) <= room {
			return head, err
		}
		if len(cuts) == 0 {
			return nil, fmt.Errorf("the record of message %d has %d bytes, %d fit: %w", r.Sequence, len(head), room, errTooSmall)
		}
		cuts[0](len(head) - room)
		cuts = cuts[1:]
	}
}

var errTooSmall = errors.New("raise the server's max_payload or the stream's max_msg_size")

// cutHeaders leaves out the largest headers until the JSON is smaller by excess
// bytes, and by what the note about it takes.
func (r *Record) cutHeaders(excess int) {
	if len(r.Headers) == 0 {
		return
	}
	r.alter("headers")
	excess += len(`,"altered":["headers"]`)
	sizes := make(map[string]int, len(r.Headers))
	for name, values := range r.Headers {
		one, err := compact(map[string][]string{name: values})
		if err == nil {
			sizes[name] = len(one) - 1 // without braces, with a comma
		}
	}
	names := slices.SortedFunc(maps.Keys(r.Headers), func(a, b string) int {
		if d := sizes[b] - sizes[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		if excess <= 0 {
			return
		}
		excess -= sizes[name]
		delete(r.Headers, name)
	}
}

func (r *Record) cutText(limit int) {
	if len(r.Text) <= limit {
		return
	}
	r.alter("text")
	r.Text = r.Text[:lobwriter.Border([]byte(r.Text), limit)]
	r.Reason = r.Code
	if r.Text != "" {
		r.Reason += ": " + r.Text
	}
}

// compact is json.Marshal without the escapes that HTML would need, which make
// XML six times as long.
func compact(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func checksum(data []byte) string { return fmt.Sprintf("%08x", lobwriter.Checksum(0, data)) }
