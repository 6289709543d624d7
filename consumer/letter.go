package consumer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// Letter is a dead letter: a fragment that could not be stored, and why.
type Letter struct {
	Stream     string
	DatabaseID string
	Life       int64
	Seq        uint64
	// Generation of the document; 0 where there is no document.
	Generation int64
	// Key is "" where it cannot be read.
	Key string
	// Subject is the stored subject of the message.
	Subject string
	// Time is when the stream stored the message, in Unix nanoseconds.
	Time   int64
	Header nats.Header
	Data   []byte
	Reason batcher.Reason
}

// Record is what a dead letter says about itself: the JSON of its part 0.
type Record struct {
	Reason     string              `json:"reason"` // code and text in one line
	Code       string              `json:"code"`
	Text       string              `json:"text"`
	Stream     string              `json:"stream"`
	DatabaseID string              `json:"database_id"`
	Life       int64               `json:"life"`
	Sequence   uint64              `json:"sequence"`
	Generation int64               `json:"generation"`
	Subject    string              `json:"subject"`
	Key        *string             `json:"key"` // null where it cannot be read
	Time       time.Time           `json:"time"`
	Headers    map[string][]string `json:"headers"`
	// HeadersCut tells that the headers were too large to be kept.
	HeadersCut bool   `json:"headers_cut,omitempty"`
	Bytes      int    `json:"bytes"`
	CRC32C     string `json:"crc32c"`
	Parts      int    `json:"parts"`
}

func deadRoot(stream string) string { return "lobsink.dead." + stream }

// subject is the subject of a part.
func (l *Letter) subject(part int) string {
	return fmt.Sprintf("%s.%s.%d.%d.%d.%d", deadRoot(l.Stream), l.DatabaseID, l.Life, l.Seq, l.Generation, part)
}

// DeadLetters publishes and reads the dead letters of a stream.
//
// A letter is several messages: parts 1 to n hold the payload unchanged, cut
// below the server's largest payload, and part 0, published last, says what it
// is. Without part 0 there is no letter.
type DeadLetters struct {
	js     jetstream.JetStream
	stream string
}

// NewDeadLetters returns the dead letters of a stream. Their own stream must
// exist before anything is published.
func NewDeadLetters(js jetstream.JetStream, stream string) *DeadLetters {
	return &DeadLetters{js: js, stream: stream}
}

// partOverhead is what a part's headers take of the payload limit: the expected
// sequence, with room to spare.
const partOverhead = 512

// Publish publishes a letter and has every part confirmed. A letter, or a part
// of one, that is there already is left as it is. Every error is transient:
// nothing may be taken to be published.
func (d *DeadLetters) Publish(ctx context.Context, l Letter) error {
	room, err := d.room(ctx)
	if err != nil {
		return err
	}
	parts := 0
	for rest := l.Data; len(rest) > 0; {
		parts++
		n, err := d.part(ctx, &l, parts, rest[:min(len(rest), room)], rest)
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	head, err := l.record(parts, room)
	if err != nil {
		return err
	}
	_, err = d.publish(ctx, l.subject(0), head)
	return err
}

// room is how much payload one part may hold.
func (d *DeadLetters) room(ctx context.Context) (int, error) {
	var info *jetstream.StreamInfo
	err := request(ctx, func(ctx context.Context) error {
		s, err := d.js.Stream(ctx, DeadStream(d.stream))
		if err == nil {
			info = s.CachedInfo()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("dead-letter stream %s: %w", DeadStream(d.stream), err)
	}
	room := int(maxPayload(d.js.Conn(), info)) - partOverhead
	if room < partOverhead {
		return 0, fmt.Errorf("dead-letter stream %s takes at most %d bytes a message, lobsink needs %d", DeadStream(d.stream), room+partOverhead, 2*partOverhead)
	}
	return room, nil
}

// part publishes one part and returns how much of rest it holds: less or more
// than was asked for when it was there already, published before a crash and
// under another payload limit.
func (d *DeadLetters) part(ctx context.Context, l *Letter, number int, data, rest []byte) (int, error) {
	published, err := d.publish(ctx, l.subject(number), data)
	if err != nil || published {
		return len(data), err
	}
	var there []byte
	err = request(ctx, func(ctx context.Context) error {
		s, err := d.js.Stream(ctx, DeadStream(d.stream))
		if err != nil {
			return err
		}
		m, err := s.GetLastMsgForSubject(ctx, l.subject(number))
		if err == nil {
			there = m.Data
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	if len(there) == 0 || !bytes.HasPrefix(rest, there) {
		return 0, fmt.Errorf("dead letter %s is there already, with another payload", l.subject(number))
	}
	return len(there), nil
}

// publish publishes unless there is a message on the subject already.
func (d *DeadLetters) publish(ctx context.Context, subject string, data []byte) (published bool, err error) {
	err = request(ctx, func(ctx context.Context) error {
		ack, err := d.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data}, jetstream.WithExpectLastSequencePerSubject(0))
		published = err == nil && !ack.Duplicate
		return err
	})
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return false, nil
	}
	return published, err
}

// record makes part 0. Headers that would not fit are left out, and so is the
// end of a long text; the payload is complete in any case.
func (l *Letter) record(parts, room int) ([]byte, error) {
	valid := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	r := Record{
		Code: valid(l.Reason.Code), Text: valid(l.Reason.Text),
		Stream: l.Stream, DatabaseID: l.DatabaseID, Life: l.Life, Sequence: l.Seq, Generation: l.Generation,
		Subject: valid(l.Subject), Time: time.Unix(0, l.Time).UTC(), Headers: l.Header,
		Bytes: len(l.Data), CRC32C: fmt.Sprintf("%08x", lobwriter.Checksum(0, l.Data)), Parts: parts,
	}
	if l.Key != "" {
		r.Key = &l.Key
	}
	const longest = 2000
	if len(r.Text) > longest {
		r.Text = valid(r.Text[:longest]) + "..."
	}
	r.Reason = r.Code + ": " + r.Text
	head, err := json.Marshal(r)
	if err == nil && len(head) > room {
		r.Headers, r.HeadersCut = nil, true
		head, err = json.Marshal(r)
	}
	if err == nil && len(head) > room {
		r.Text, r.Reason = "", r.Code
		head, err = json.Marshal(r)
	}
	return head, err
}

// Filter selects dead letters.
type Filter struct {
	// Key selects one document; nil: all.
	Key *string
	// Code selects one reason; "": all.
	Code string
	// Since selects by the time of the fragment; zero: all.
	Since time.Time
	// Limit is the most records; 0: no limit.
	Limit int
}

// List calls each for the letters that the filter selects, in the order in
// which they were published. An error of each ends the reading and is returned.
func (d *DeadLetters) List(ctx context.Context, f Filter, each func(Record) error) error {
	s, err := d.js.Stream(ctx, DeadStream(d.stream))
	if err != nil {
		return err
	}
	filter := deadRoot(d.stream) + ".*.*.*.*.0"
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil || len(info.State.Subjects) == 0 {
		return err
	}
	c, err := d.js.OrderedConsumer(ctx, DeadStream(d.stream), jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}})
	if err != nil {
		return err
	}
	it, err := c.Messages()
	if err != nil {
		return err
	}
	defer it.Stop()
	for n := 0; f.Limit == 0 || n < f.Limit; {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		var r Record
		if err := json.Unmarshal(m.Data(), &r); err != nil {
			return fmt.Errorf("dead letter on %s: %w", m.Subject(), err)
		}
		if f.selects(&r) {
			n++
			if err := each(r); err != nil {
				return err
			}
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.NumPending == 0 {
			return nil
		}
	}
	return nil
}

func (f *Filter) selects(r *Record) bool {
	switch {
	case f.Key != nil && (r.Key == nil || *r.Key != *f.Key):
		return false
	case f.Code != "" && r.Code != f.Code:
		return false
	case !f.Since.IsZero() && r.Time.Before(f.Since):
		return false
	}
	return true
}

// Payload reads the payload of a letter and checks its length and checksum.
func (d *DeadLetters) Payload(ctx context.Context, r Record) ([]byte, error) {
	s, err := d.js.Stream(ctx, DeadStream(d.stream))
	if err != nil {
		return nil, err
	}
	l := Letter{Stream: r.Stream, DatabaseID: r.DatabaseID, Life: r.Life, Seq: r.Sequence, Generation: r.Generation}
	data := make([]byte, 0, r.Bytes)
	for part := 1; part <= r.Parts; part++ {
		m, err := s.GetLastMsgForSubject(ctx, l.subject(part))
		if err != nil {
			return nil, fmt.Errorf("part %d of the dead letter of sequence %d: %w", part, r.Sequence, err)
		}
		data = append(data, m.Data...)
	}
	if crc := fmt.Sprintf("%08x", lobwriter.Checksum(0, data)); len(data) != r.Bytes || crc != r.CRC32C {
		return nil, fmt.Errorf("the dead letter of sequence %d has %d bytes with checksum %s, its record says %d and %s", r.Sequence, len(data), crc, r.Bytes, r.CRC32C)
	}
	return data, nil
}
