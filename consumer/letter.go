package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/batcher"
)

// Letter is a dead letter: a fragment that could not be stored, and why. Its
// identity is stream, database, life, sequence and generation.
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

func deadRoot(stream string) string { return "lobsink.dead." + stream }

// subject is the subject of a part.
func (l *Letter) subject(part int) string {
	return fmt.Sprintf("%s.%s.%d.%d.%d.%d", deadRoot(l.Stream), l.DatabaseID, l.Life, l.Seq, l.Generation, part)
}

// DeadLetters publishes and reads the dead letters of a stream.
//
// A letter is several messages: parts 1 to n hold the payload unchanged, cut
// below the server's largest message, and part 0, published last, says what it
// is (see Record). Without part 0 there is no letter. A letter is written once:
// each part is published only where its subject has no message yet.
type DeadLetters struct {
	js     jetstream.JetStream
	stream string
}

// NewDeadLetters returns the dead letters of a stream. Their own stream must
// exist before anything is published; see CreateDeadStream.
func NewDeadLetters(js jetstream.JetStream, stream string) *DeadLetters {
	return &DeadLetters{js: js, stream: stream}
}

// partOverhead is what the headers of a part take of the largest message: the
// expected stream, whose name has at most 255 bytes, and the expected sequence.
const partOverhead = 512

// Publish publishes a letter and has every part confirmed. What of it is there
// already, from before a crash or a lost answer, is left as it is. Every error
// is transient: the letter is not, or not wholly, there.
func (d *DeadLetters) Publish(ctx context.Context, l Letter) error {
	room, err := d.room(ctx)
	if err != nil {
		return err
	}
	parts := 0
	for rest := l.Data; len(rest) > 0; {
		parts++
		n, err := d.publishPart(ctx, l.subject(parts), rest, room)
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	head, err := l.record(parts).encode(room)
	if err != nil {
		return d.failed(err)
	}
	there, err := d.publishOnce(ctx, l.subject(0), head)
	if err == nil && there {
		_, err = d.stored(ctx, l.subject(0))
	}
	return err
}

// failed says which stream an error is about.
func (d *DeadLetters) failed(err error) error {
	return fmt.Errorf("dead-letter stream %s: %w", DeadStream(d.stream), err)
}

// room is how many bytes one part may hold.
func (d *DeadLetters) room(ctx context.Context) (int, error) {
	s, err := d.open(ctx)
	if err != nil {
		return 0, err
	}
	room := int(maxPayload(d.js.Conn(), s.CachedInfo())) - partOverhead
	if room < smallestRecord {
		return 0, d.failed(fmt.Errorf("a message may have %d bytes, lobsink needs %d: raise the server's max_payload or the stream's max_msg_size", room+partOverhead, smallestRecord+partOverhead))
	}
	return room, nil
}

func (d *DeadLetters) open(ctx context.Context) (s jetstream.Stream, err error) {
	err = request(ctx, func(ctx context.Context) (err error) {
		s, err = d.js.Stream(ctx, DeadStream(d.stream))
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, d.failed(fmt.Errorf("it does not exist; run: lobsink setup (%w)", err))
	}
	if err != nil {
		return nil, d.failed(err)
	}
	return s, nil
}

// publishPart publishes the beginning of rest, at most room bytes, and returns
// how much of it the part holds. A part that is there already may have been cut
// elsewhere, when the largest message was another one: what follows goes on
// from where it ends.
func (d *DeadLetters) publishPart(ctx context.Context, subject string, rest []byte, room int) (int, error) {
	data := rest[:min(len(rest), room)]
	there, err := d.publishOnce(ctx, subject, data)
	if err != nil || !there {
		return len(data), err
	}
	stored, err := d.stored(ctx, subject)
	if err != nil {
		return 0, err
	}
	if len(stored) == 0 || !bytes.HasPrefix(rest, stored) {
		return 0, d.failed(fmt.Errorf("%s is there already with another payload, so another database of the same ID writes here; when you have looked at it: nats stream purge %s --subject %s", subject, DeadStream(d.stream), subject))
	}
	return len(stored), nil
}

// publishOnce publishes data unless its subject has a message: then there is
// true, and nothing was published.
func (d *DeadLetters) publishOnce(ctx context.Context, subject string, data []byte) (there bool, err error) {
	err = request(ctx, func(ctx context.Context) error {
		ack, err := d.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data},
			jetstream.WithExpectStream(DeadStream(d.stream)), jetstream.WithExpectLastSequencePerSubject(0))
		there = err == nil && ack.Duplicate
		return err
	})
	// A replicated stream says 10164 where others say 10071, and does so also
	// while another message for the subject is under way, which may fail.
	if isCode(err, jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return true, nil
	}
	if err != nil {
		return false, d.failed(err)
	}
	return there, nil
}

// stored reads the message on a subject. Not finding it is an error: it was
// said to be there.
func (d *DeadLetters) stored(ctx context.Context, subject string) ([]byte, error) {
	s, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	m, err := lastOf(ctx, s, subject)
	if err != nil {
		return nil, d.failed(fmt.Errorf("%s: %w", subject, err))
	}
	return m.Data, nil
}

func lastOf(ctx context.Context, s jetstream.Stream, subject string) (m *jetstream.RawStreamMsg, err error) {
	err = request(ctx, func(ctx context.Context) (err error) {
		m, err = s.GetLastMsgForSubject(ctx, subject)
		return err
	})
	return m, err
}
