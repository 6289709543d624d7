// Package publish publishes the fragments of documents: asynchronously, with a
// bounded window, and never out of order.
package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/consumer"
)

// Fragment is one fragment to publish.
type Fragment struct {
	Key   string
	Data  []byte
	Final bool
}

// Options are the settings of a Publisher.
type Options struct {
	// Run begins the message IDs. A later run with the same one, the same keys
	// and the same fragments goes on where this one ended, as long as nobody
	// else has published to these keys. "": a random one.
	Run string
	// Window is the most messages that may be unanswered; 0: 1,000.
	Window int
	// WindowBytes is the most bytes of them; 0: 16 MiB. One fragment may always
	// be under way.
	WindowBytes int
	// PerKey is the most messages of one key that may be unanswered; 0: 1. With
	// 1 nothing can get out of order. With more a single document is published
	// faster over a slow network, but when the stream refuses one fragment and
	// stores the next, for it was full or its leader changed, the document has
	// a hole: a BrokenError.
	PerKey int
	// AnswerWithin is how long a message may be unanswered before it is
	// repeated; 0: 5 s.
	AnswerWithin time.Duration
	// RetryFor is how long a refused or unanswered message is repeated; 0: 30 s.
	RetryFor time.Duration
	// Published is told of each fragment that the stream has stored, in the
	// order of Publish; may be nil.
	Published func(f Fragment, seq uint64)
	// Log may be nil.
	Log *slog.Logger
}

// ConnectOptions are what a connection for a Publisher needs. Without them the
// connection would keep messages while there is no server, and send them later,
// behind the ones that were lost with the old connection.
func ConnectOptions() []nats.Option { return []nats.Option{nats.ReconnectBufSize(-1)} }

// Publisher publishes to one stream. It is not safe for concurrent use, and
// starts no goroutine of its own.
//
// What was not answered may be stored or not, and repeating it blindly may store
// it behind its successors. So the first repetition waits until everything sent
// is answered, and every repetition tells the stream which sequence the fragment
// before it has: the stream takes it only directly behind that one.
type Publisher struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	layout consumer.Layout
	room   int
	o      Options

	documents map[string]*document
	sent      []*message
	bytes     int
	failed    error
}

// message is a fragment on its way.
type message struct {
	Fragment
	document *document
	number   uint64 // of the run, from 1
	msg      *nats.Msg
	future   jetstream.PubAckFuture
	// seq is where the stream stored it; 0: not known to be stored.
	seq uint64
	err error
}

// New returns a publisher to a stream that lobsink serves, see
// consumer.DescribeStream. The connection needs ConnectOptions, unless it is to
// a server in this process.
func New(nc *nats.Conn, stream jetstream.Stream, o Options) (*Publisher, error) {
	if nc.Opts.ReconnectBufSize >= 0 && nc.Opts.InProcessServer == nil {
		return nil, errors.New("publish: the connection lacks ConnectOptions")
	}
	info := stream.CachedInfo()
	layout, _, err := consumer.DescribeStream(info)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", info.Config.Name, err)
	}
	o.Run = cmp.Or(o.Run, consumer.NewID())
	o.Window = cmp.Or(o.Window, 1000)
	o.WindowBytes = cmp.Or(o.WindowBytes, 16<<20)
	o.PerKey = cmp.Or(o.PerKey, 1)
	o.AnswerWithin = cmp.Or(o.AnswerWithin, 5*time.Second)
	o.RetryFor = cmp.Or(o.RetryFor, 30*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	js, err := jetstream.New(nc,
		// The window is ours, and must be the smaller one.
		jetstream.WithPublishAsyncMaxPending(o.Window+1),
		jetstream.WithPublishAsyncTimeout(o.AnswerWithin))
	if err != nil {
		return nil, err
	}
	return &Publisher{js: js, stream: stream, layout: layout, room: Room(nc, info), o: o, documents: map[string]*document{}}, nil
}

// Run returns what the message IDs begin with.
func (p *Publisher) Run() string { return p.o.Run }

// headerRoom is what the headers of a fragment take at most: names, numbers, and
// a message ID with a key of 255 bytes, each escaped.
const headerRoom = 1100

// Room returns how much data a fragment may have: what the server and the stream
// take, without the headers, which count too.
func Room(nc *nats.Conn, info *jetstream.StreamInfo) int {
	largest := nc.MaxPayload()
	if s := int64(info.Config.MaxMsgSize); s > 0 {
		largest = min(largest, s)
	}
	return int(largest - headerRoom)
}

// ErrTooLarge means that a fragment is larger than server and stream take.
var ErrTooLarge = errors.New("larger than the largest message")

// ErrComplete means that the last fragment of the key in the stream is final, so
// that a further one would go to the dead letters.
var ErrComplete = errors.New("the document is complete already; publish under another key")

// ErrChanged means that an earlier run of the same name has published other
// fragments.
var ErrChanged = errors.New("what was published under this name before was cut otherwise, or has changed since; publish it under another key")

// Publish publishes a fragment, after it has waited for room in the window. It
// may return before the fragment is stored, see Flush. Fragments of a key are
// numbered in the order of their calls, on from those that the stream has.
//
// ErrTooLarge, ErrComplete and the error of a bad key concern this fragment
// alone. After any other error the publisher is of no more use: what came later
// would overtake what is missing.
func (p *Publisher) Publish(ctx context.Context, f Fragment) error {
	if p.failed != nil {
		return p.failed
	}
	if len(f.Data) > p.room {
		return fmt.Errorf("a fragment of %q has %d bytes, at most %d are possible: %w", f.Key, len(f.Data), p.room, ErrTooLarge)
	}
	d, err := p.document(ctx, f.Key)
	if err != nil {
		return err
	}
	if d.final {
		return fmt.Errorf("%q: %w", f.Key, ErrComplete)
	}
	d.number++
	d.final = f.Final
	if d.number <= d.there {
		return p.skip(d, f)
	}
	for p.full(d, len(f.Data)) {
		if err := p.settle(ctx); err != nil {
			return err
		}
	}
	m := &message{Fragment: f, document: d, number: d.number, msg: p.message(d, f)}
	if err := p.send(m); err != nil {
		return p.fail(err)
	}
	p.sent = append(p.sent, m)
	p.bytes += len(f.Data)
	d.underWay++
	return nil
}

func (p *Publisher) full(d *document, size int) bool {
	return len(p.sent) >= p.o.Window || d.underWay >= p.o.PerKey || len(p.sent) > 0 && p.bytes+size > p.o.WindowBytes
}

func (p *Publisher) message(d *document, f Fragment) *nats.Msg {
	m := &nats.Msg{Subject: p.layout.Subject(d.token), Data: f.Data, Header: nats.Header{}}
	m.Header.Set(jetstream.MsgIDHeader, p.id(d, d.number))
	if d.numbered {
		m.Header.Set(consumer.HeaderIndex, strconv.FormatUint(d.before+d.number, 10))
	}
	if f.Final {
		m.Header.Set(consumer.HeaderFinal, "true")
	}
	return m
}

// id is the message ID of a fragment of this run.
func (p *Publisher) id(d *document, number uint64) string {
	return p.o.Run + ":" + d.token + ":" + strconv.FormatUint(number, 10)
}

// send sends a message. That there is no connection is an answer like others.
func (p *Publisher) send(m *message) error {
	future, err := p.js.PublishMsgAsync(m.msg, jetstream.WithRetryAttempts(0))
	if errors.Is(err, nats.ErrConnectionClosed) {
		return err
	}
	m.future, m.err = future, err
	return nil
}

// Flush waits until everything published is stored.
func (p *Publisher) Flush(ctx context.Context) error {
	for len(p.sent) > 0 && p.failed == nil {
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

// settle waits until the oldest message is stored.
func (p *Publisher) settle(ctx context.Context) error {
	m := p.sent[0]
	if err := m.await(ctx); err != nil {
		return p.fail(err)
	}
	if m.err != nil {
		if err := p.recover(ctx); err != nil {
			return p.fail(err)
		}
	}
	p.sent = p.sent[1:]
	p.bytes -= len(m.Data)
	d := m.document
	d.underWay--
	if m.seq <= d.last {
		return p.fail(&BrokenError{Key: m.Key, Number: m.number, Cause: fmt.Errorf("it is stored at sequence %d, before sequence %d", m.seq, d.last)})
	}
	d.last = m.seq
	if d.final && d.underWay == 0 {
		d.forget()
	}
	if p.o.Published != nil {
		p.o.Published(m.Fragment, m.seq)
	}
	return nil
}

// await waits for the answer to a message. It returns an error only of ctx.
func (m *message) await(ctx context.Context) error {
	if m.seq > 0 || m.err != nil {
		return nil
	}
	select {
	case ack := <-m.future.Ok():
		m.seq = ack.Sequence
	case m.err = <-m.future.Err():
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
