package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// Fragments reads a stream beside its owners: it acknowledges nothing, and the
// consumers that it needs disappear by themselves.
type Fragments struct {
	source *source
	stream jetstream.Stream
	budget int // the most bytes of one message
	facts  StreamFacts
}

// ErrInterrupted means that the connection broke while messages were read. What
// was read may not be all; begin again.
var ErrInterrupted = errors.New("the connection to NATS broke while the stream was read")

// OpenFragments opens a stream of fragments, of which those of more than
// maxFragment bytes are holes.
func OpenFragments(ctx context.Context, js jetstream.JetStream, stream string, maxFragment int) (*Fragments, error) {
	s := &source{js: js, conn: js.Conn(), api: js.Options().APIPrefix, name: stream, maxFragment: maxFragment}
	if s.api == "" {
		s.api = jetstream.DefaultAPIPrefix
	}
	f := &Fragments{source: s}
	if err := f.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	var err error
	if s.layout, _, err = DescribeStream(f.stream.CachedInfo()); err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	f.budget = int(maxPayload(js.Conn(), f.stream.CachedInfo())) + messageOverhead
	return f, nil
}

// Refresh asks the stream about itself.
func (f *Fragments) Refresh(ctx context.Context) (err error) {
	f.facts, f.stream, err = f.source.facts(ctx)
	return err
}

// Facts returns what the stream said about itself at the last Refresh.
func (f *Fragments) Facts() StreamFacts { return f.facts }

// Layout returns where the stream keeps the fragments of a key.
func (f *Fragments) Layout() Layout { return f.source.layout }

// MaxFragment returns how many bytes a fragment may have.
func (f *Fragments) MaxFragment() int { return f.source.maxFragment }

// TimeOf returns the time of a stored message; 0 when it is not stored.
func (f *Fragments) TimeOf(ctx context.Context, seq uint64) (int64, error) {
	return f.source.timeOf(ctx, seq)
}

// Pending counts the messages of a partition from sequence from on.
func (f *Fragments) Pending(ctx context.Context, partition int, from uint64) (uint64, error) {
	c, err := f.cursor(ctx, Selection{From: from, subjects: []string{f.source.layout.Stored(partition, "*")}, headers: true})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.total, nil
}

// Selection is which messages a Cursor reads.
type Selection struct {
	// Key selects one document; "": all of them.
	Key string
	// Anywhere looks for the key in all partitions, also those of a number of
	// partitions that the stream had earlier. That takes longer.
	Anywhere bool
	// Partition selects a partition; nil: all of them.
	Partition *int
	// From is the first sequence; 0 is 1.
	From uint64
	// Since selects by the time of the message, in place of From; zero: all.
	Since time.Time

	subjects []string
	headers  bool // without data
}

// Document opens a cursor over the fragments of one document, or over all
// fragments if no key is given. It ends with the last message that the stream
// has at this moment.
func (f *Fragments) Document(ctx context.Context, s Selection) (*Cursor, error) {
	if s.Partition != nil {
		if filter := f.source.layout.Filter(*s.Partition); filter != "" {
			s.subjects = []string{filter}
		}
	}
	if s.Key != "" {
		token, err := Token(s.Key)
		if err != nil {
			return nil, err
		}
		l := f.source.layout
		s.subjects = []string{l.Stored(PartitionOf(token, l.Partitions), token)}
		if s.Anywhere {
			s.subjects = []string{l.Root + "." + token, l.Root + ".*." + token}
		}
	}
	return f.cursor(ctx, s)
}

// Keys opens a cursor that reads the keys of fragments only: they have no data.
func (f *Fragments) Keys(ctx context.Context, s Selection) (*Cursor, error) {
	s.headers = true
	return f.Document(ctx, s)
}

// cursorIdle is after how long the server removes the consumer of a reader that
// is gone.
const cursorIdle = time.Minute

func (f *Fragments) cursor(ctx context.Context, s Selection) (*Cursor, error) {
	cfg := jetstream.ConsumerConfig{
		Description:       "lobsink: a command that reads",
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       max(s.From, 1),
		FilterSubjects:    s.subjects,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		InactiveThreshold: cursorIdle,
		HeadersOnly:       s.headers,
	}
	if len(s.subjects) == 1 { // a list of one is read slower
		cfg.FilterSubject, cfg.FilterSubjects = s.subjects[0], nil
	}
	if !s.Since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &s.Since
	}
	c := &Cursor{fragments: f, key: s.Key, headers: s.headers}
	err := request(ctx, func(ctx context.Context) (err error) {
		c.consumer, err = f.stream.CreateConsumer(ctx, cfg)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", f.source.name, err)
	}
	c.total = c.consumer.CachedInfo().NumPending
	return c, nil
}

// Cursor reads stored fragments one by one. It is for one goroutine.
type Cursor struct {
	fragments *Fragments
	key       string
	headers   bool
	consumer  jetstream.Consumer
	total     uint64 // how many there are
	read      uint64
	batch     jetstream.MessageBatch // nil: none
	before    uint64                 // read when it was asked for
	subject   string                 // of the last message
}

// Total returns how many messages there were when the cursor was opened.
func (c *Cursor) Total() uint64 { return c.total }

// cursorAtOnce is how many messages one fetch asks for at most.
const cursorAtOnce = 512

// Next returns the next fragment; false: there is none. A message without a
// readable key has none.
func (c *Cursor) Next(ctx context.Context) (batcher.Fragment, bool, error) {
	for ctx.Err() == nil {
		if c.batch == nil {
			if c.read >= c.total {
				return batcher.Fragment{}, false, nil
			}
			// No more than there are: a fetch waits for what it asks for.
			batch, err := c.consumer.Fetch(int(min(cursorAtOnce, c.total-c.read)),
				jetstream.FetchMaxBytes(4*c.fragments.budget), jetstream.FetchMaxWait(requestTimeout))
			if err != nil {
				return batcher.Fragment{}, false, err
			}
			c.batch, c.before = batch, c.read
		}
		if m, ok := <-c.batch.Messages(); ok {
			c.subject = m.Subject()
			f, err := c.fragment(m)
			return f, err == nil, err
		}
		err, none := c.batch.Error(), c.read == c.before
		c.batch = nil
		if none {
			if done, err := nothingLeft(ctx, c.consumer, err); err != nil || done {
				return batcher.Fragment{}, false, err
			}
		}
	}
	return batcher.Fragment{}, false, ctx.Err()
}

func (c *Cursor) fragment(m jetstream.Msg) (batcher.Fragment, error) {
	at, err := parseReply(m.Reply())
	if err != nil {
		return batcher.Fragment{}, err
	}
	if c.read++; at.consumer != c.read {
		return batcher.Fragment{}, ErrInterrupted
	}
	f := batcher.Fragment{Key: c.key, Seq: at.stream, Time: at.time, Data: bytes.Clone(m.Data())}
	if f.Key == "" {
		token := m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:]
		if f.Key, err = Key(token); err != nil {
			f.Key = ""
			f.Hole = &batcher.Reason{Code: CodeBadKey, Text: err.Error()}
			return f, nil
		}
	}
	if !c.headers {
		judge(&f, m.Headers(), c.fragments.source.maxFragment)
	}
	return f, nil
}

// Close removes the consumer. Being tidy may fail: the server does it later.
func (c *Cursor) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	_ = c.fragments.stream.DeleteConsumer(ctx, c.consumer.CachedInfo().Name)
	if c.batch != nil {
		for range c.batch.Messages() { // until its goroutine has ended
		}
	}
}

// Letter describes a fragment as a dead letter, with the subject and headers that
// only the stream has.
func (f *Fragments) Letter(ctx context.Context, b lobwriter.Binding, generation int64, frag batcher.Fragment) Letter {
	l := Letter{
		Stream: f.source.name, DatabaseID: b.DatabaseID, Life: b.Life, Seq: frag.Seq, Generation: generation,
		Key: frag.Key, Time: frag.Time, Data: frag.Data, Header: nats.Header{},
	}
	if frag.Hole != nil {
		l.Reason = *frag.Hole
	}
	if m, err := f.source.message(ctx, frag.Seq); err == nil && m != nil && m.Time.UnixNano() == frag.Time {
		l.Subject, l.Header = m.Subject, m.Header
	}
	return l
}
