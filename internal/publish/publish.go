// Package publish publishes the fragments of documents, asynchronously and with
// a bounded window, without ever putting them out of order.
package publish

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/consumer"
)

// Fragment is one fragment to publish.
type Fragment struct {
	Key  string
	Data []byte
	// Index numbers the fragments of a key, from 1; 0: none is sent.
	Index uint64
	Final bool
}

// Options are the settings of a Publisher.
type Options struct {
	// Layout says on which subjects.
	Layout consumer.Layout
	// Run begins the message IDs of this run, so that a run that is repeated
	// is not taken for the one before.
	Run string
	// Window is how many messages may be unanswered; 0: 1,000.
	Window int
	// WindowBytes is how many bytes of them; 0: 16 MiB.
	WindowBytes int
	// Published is told of each fragment that the stream has stored; may be
	// nil.
	Published func(f Fragment, seq uint64)
}

// ErrTooLarge means that a fragment is larger than the server takes.
var ErrTooLarge = errors.New("larger than the server's max_payload")

// Publisher publishes to one stream. It is not safe for concurrent use.
//
// A message that was not answered may or may not be stored, and others of its
// key may be stored behind it. Publishing it again could put it after them. So
// the publisher waits for all answers, and repeats only where the stream itself
// tells what it has: the same message ID is stored once.
type Publisher struct {
	js     jetstream.JetStream
	o      Options
	sent   []sent
	bytes  int
	failed error
}

type sent struct {
	fragment Fragment
	message  *nats.Msg
	future   jetstream.PubAckFuture
}

// New returns a publisher.
func New(js jetstream.JetStream, o Options) *Publisher {
	if o.Window == 0 {
		o.Window = 1000
	}
	if o.WindowBytes == 0 {
		o.WindowBytes = 16 << 20
	}
	return &Publisher{js: js, o: o}
}

// Room is how much data a fragment may have: the server's limit without what
// the headers take.
func Room(nc *nats.Conn) int { return int(nc.MaxPayload()) - headerRoom }

// headerRoom is what the headers of a fragment take at most: names, numbers, and
// a message ID with a key of 255 bytes.
const headerRoom = 1024

// Publish publishes a fragment. It waits for room in the window. An error that
// is not of this fragment alone (ErrTooLarge is) ends the publishing: what comes
// later must not overtake what is missing.
func (p *Publisher) Publish(ctx context.Context, f Fragment) error {
	if p.failed != nil {
		return p.failed
	}
	token, err := consumer.Token(f.Key)
	if err != nil {
		return err
	}
	if room := Room(p.js.Conn()); len(f.Data) > room {
		return fmt.Errorf("fragment %d of %q has %d bytes, at most %d are possible: %w", f.Index, f.Key, len(f.Data), room, ErrTooLarge)
	}
	m := &nats.Msg{Subject: p.o.Layout.Subject(token), Data: f.Data, Header: nats.Header{}}
	m.Header.Set(jetstream.MsgIDHeader, p.o.Run+":"+token+":"+strconv.FormatUint(f.Index, 10))
	if f.Index > 0 {
		m.Header.Set(consumer.HeaderIndex, strconv.FormatUint(f.Index, 10))
	}
	if f.Final {
		m.Header.Set(consumer.HeaderFinal, "true")
	}
	for len(p.sent) >= p.o.Window || len(p.sent) > 0 && p.bytes+len(f.Data) > p.o.WindowBytes {
		if err := p.settle(ctx); err != nil {
			return err
		}
	}
	future, err := p.js.PublishMsgAsync(m)
	if err != nil {
		return p.fail(fmt.Errorf("publishing fragment %d of %q: %w", f.Index, f.Key, err))
	}
	p.sent = append(p.sent, sent{f, m, future})
	p.bytes += len(f.Data)
	return nil
}

// Flush waits until everything published is stored.
func (p *Publisher) Flush(ctx context.Context) error {
	for len(p.sent) > 0 {
		if err := p.settle(ctx); err != nil {
			return err
		}
	}
	return p.failed
}

func (p *Publisher) fail(err error) error {
	p.failed = err
	return err
}

// settle waits for the answer to the oldest message.
func (p *Publisher) settle(ctx context.Context) error {
	if p.failed != nil {
		return p.failed
	}
	s := p.sent[0]
	select {
	case ack := <-s.future.Ok():
		p.stored(ack.Sequence)
		return nil
	case err := <-s.future.Err():
		return p.repeat(ctx, err)
	case <-ctx.Done():
		return p.fail(ctx.Err())
	}
}

func (p *Publisher) stored(seq uint64) {
	s := p.sent[0]
	p.sent = p.sent[1:]
	p.bytes -= len(s.fragment.Data)
	if p.o.Published != nil {
		p.o.Published(s.fragment, seq)
	}
}

// answerWithin is how long a repeated message may stay unanswered.
const answerWithin = 5 * time.Second

// repeat deals with a message that failed. It lets everything behind it be
// answered first. If nothing behind a failed message is of the same key and
// stored, what failed is published again, one by one and in order; the message
// ID keeps what was stored after all from being stored twice. Otherwise the
// order of a document is broken, and publishing ends with an error that says so.
func (p *Publisher) repeat(ctx context.Context, cause error) error {
	missing := map[string]uint64{p.sent[0].fragment.Key: p.sent[0].fragment.Index}
	answers := make([]*jetstream.PubAck, len(p.sent))
	for i := 1; i < len(p.sent); i++ {
		f := p.sent[i].fragment
		select {
		case answers[i] = <-p.sent[i].future.Ok():
			if index, ok := missing[f.Key]; ok {
				return p.fail(fmt.Errorf("fragment %d of %q was not stored (%w), but fragment %d was: publish the document again under another key",
					index, f.Key, cause, f.Index))
			}
		case <-p.sent[i].future.Err():
			if _, ok := missing[f.Key]; !ok {
				missing[f.Key] = f.Index
			}
		case <-ctx.Done():
			return p.fail(ctx.Err())
		}
	}
	for _, ack := range answers {
		if ack == nil {
			call, cancel := context.WithTimeout(ctx, answerWithin)
			again, err := p.js.PublishMsg(call, p.sent[0].message)
			cancel()
			if err != nil {
				f := p.sent[0].fragment
				return p.fail(fmt.Errorf("publishing fragment %d of %q: %w", f.Index, f.Key, err))
			}
			ack = again
		}
		p.stored(ack.Sequence)
	}
	return nil
}
