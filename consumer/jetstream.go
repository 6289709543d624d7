package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// source is the stream as an owner sees it.
type source struct {
	js          jetstream.JetStream
	conn        *nats.Conn
	name        string
	layout      Layout
	maxFragment int
}

// facts asks the stream about itself.
func (s *source) facts(ctx context.Context) (StreamFacts, jetstream.Stream, error) {
	var st jetstream.Stream
	err := request(ctx, func(ctx context.Context) (err error) {
		st, err = s.js.Stream(ctx, s.name)
		return err
	})
	if err != nil {
		return StreamFacts{}, nil, err
	}
	return factsOf(st.CachedInfo()), st, nil
}

func factsOf(info *jetstream.StreamInfo) StreamFacts {
	f := StreamFacts{
		Created: info.Created.UnixNano(),
		First:   info.State.FirstSeq,
		Last:    lobwriter.Position{Seq: info.State.LastSeq},
	}
	if info.State.LastSeq > 0 {
		f.Last.Time = info.State.LastTime.UnixNano()
	}
	if info.Config.Replicas > 1 && info.Cluster != nil {
		f.Leader = info.Cluster.Leader
	}
	return f
}

// timeOf returns the time of a message; 0 when it is not stored.
func timeOf(ctx context.Context, st jetstream.Stream, seq uint64) (int64, error) {
	if seq == 0 {
		return 0, nil
	}
	var ns int64
	err := request(ctx, func(ctx context.Context) error {
		m, err := st.GetMsg(ctx, seq)
		if err == nil {
			ns = m.Time.UnixNano()
		}
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	return ns, err
}

func (s *source) inspect(ctx context.Context, checkpoint, highest lobwriter.Position) (Inspection, error) {
	f, st, err := s.facts(ctx)
	if err != nil {
		return Inspection{}, err
	}
	in := Inspection{StreamFacts: f}
	if in.CheckpointTime, err = timeOf(ctx, st, checkpoint.Seq); err != nil {
		return Inspection{}, err
	}
	in.HighestTime, err = timeOf(ctx, st, highest.Seq)
	return in, err
}

// look asks stream and consumer, in this order: what the consumer has delivered
// by then includes everything up to the stream's last message of before.
func (s *source) look(ctx context.Context, p *puller, last lobwriter.Position) (Look, error) {
	f, st, err := s.facts(ctx)
	if err != nil {
		return Look{}, err
	}
	l := Look{StreamFacts: f}
	if last.Seq == f.Last.Seq {
		l.LastTime = f.Last.Time
	} else if l.LastTime, err = timeOf(ctx, st, last.Seq); err != nil {
		return Look{}, err
	}
	var info *jetstream.ConsumerInfo
	err = request(ctx, func(ctx context.Context) (err error) {
		info, err = p.consumer.Info(ctx)
		return err
	})
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		l.Changed = "deleted"
		return l, nil
	}
	if err != nil {
		return Look{}, err
	}
	l.Delivered, l.Pending = info.Delivered.Consumer, info.NumPending
	if info.Cluster != nil && f.Leader != "" {
		l.ConsumerLeader = info.Cluster.Leader
	}
	l.Changed = changed(p.config, info.Config)
	return l, nil
}

// changed names the first setting of the consumer that somebody edited.
func changed(own, now jetstream.ConsumerConfig) string {
	differ := func(what string, a, b any) string {
		if fmt.Sprint(a) == fmt.Sprint(b) {
			return ""
		}
		return fmt.Sprintf("%s is %v, must be %v", what, b, a)
	}
	for _, d := range []string{
		differ("ack_wait", own.AckWait, now.AckWait),
		differ("max_ack_pending", own.MaxAckPending, now.MaxAckPending),
		differ("max_deliver", own.MaxDeliver, now.MaxDeliver),
		differ("backoff", own.BackOff, now.BackOff),
		differ("filter_subject", own.FilterSubject, now.FilterSubject),
		differ("filter_subjects", own.FilterSubjects, now.FilterSubjects),
		differ("inactive_threshold", own.InactiveThreshold, now.InactiveThreshold),
	} {
		if d != "" {
			return d
		}
	}
	return ""
}

// open creates a consumer. An existing one of that name is an error.
func (s *source) open(ctx context.Context, cfg jetstream.ConsumerConfig) (*puller, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, err := s.js.CreateConsumer(ctx, s.name, cfg)
	if err != nil {
		return nil, err
	}
	return &puller{source: s, consumer: c, config: cfg, kept: map[uint64]jetstream.Msg{}}, nil
}

// sweep deletes the consumers whose names begin with prefix, but one.
func (s *source) sweep(ctx context.Context, prefix, keep string) error {
	_, st, err := s.facts(ctx)
	if err != nil {
		return err
	}
	names := st.ConsumerNames(ctx)
	var failed error
	for name := range names.Name() {
		if !strings.HasPrefix(name, prefix) || name == keep {
			continue
		}
		err := request(ctx, func(ctx context.Context) error { return st.DeleteConsumer(ctx, name) })
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(failed, names.Err())
}

// puller reads from one consumer and keeps the handles to acknowledge by.
type puller struct {
	*source
	consumer jetstream.Consumer
	config   jetstream.ConsumerConfig

	mu     sync.Mutex
	kept   map[uint64]jetstream.Msg // the last message of each delivery
	halted chan struct{}            // closed to end the fetch under way
}

// fetchMessages is how many messages one fetch asks for at most: 1,000 reach
// the server's full speed (measured with 200 B and 2 KB fragments).
const fetchMessages = 1000

// begin prepares a fetch that halt can end.
func (p *puller) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halted = make(chan struct{})
}

func (p *puller) halt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.halted:
	default:
		close(p.halted)
	}
}

// fetch reads messages and hands them over as they come. quiet tells that it
// ended without any because the server had none. The error is the consumer's
// own; no answer from NATS is not an error.
func (p *puller) fetch(ctx context.Context, maxBytes int64, wait time.Duration, deliver func([]Received)) (quiet bool, err error) {
	p.mu.Lock()
	halted := p.halted
	p.mu.Unlock()
	if !p.conn.IsConnected() {
		return false, pause(ctx, halted, wait)
	}
	// The server answers after nine tenths of the deadline that there is
	// nothing; reaching the deadline itself means that nobody answered.
	fetching, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	batch, err := p.consumer.Fetch(fetchMessages, jetstream.FetchMaxBytes(int(maxBytes)), jetstream.FetchContext(fetching))
	if err != nil {
		if p.conn.IsConnected() && ctx.Err() == nil {
			return false, err
		}
		return false, pause(ctx, halted, wait)
	}
	count := 0
	for open := true; open; {
		select {
		case m, ok := <-batch.Messages():
			if open = ok; ok {
				got := p.collect(m, batch.Messages())
				count += len(got)
				deliver(got)
			}
		case <-halted:
			return false, nil
		case <-ctx.Done():
			return false, nil
		}
	}
	switch err := batch.Error(); {
	case err == nil, errors.Is(err, jetstream.ErrBatchCompleted):
		return count == 0 && p.conn.IsConnected(), nil
	case errors.Is(err, context.DeadlineExceeded):
		return false, nil
	case errors.Is(err, jetstream.ErrServerShutdown), errors.Is(err, nats.ErrConnectionClosed), !p.conn.IsConnected():
		return false, pause(ctx, halted, wait)
	default:
		return false, err
	}
}

// pause waits while NATS does not answer. It never returns an error.
func pause(ctx context.Context, halted <-chan struct{}, wait time.Duration) error {
	select {
	case <-time.After(wait):
	case <-halted:
	case <-ctx.Done():
	}
	return nil
}

// deliverAtOnce is how many messages are handed over together at most, so that
// flushing begins before a long fetch has ended.
const deliverAtOnce = 256

// collect turns a message, and what is there behind it, into fragments. The
// last one's handle is kept.
func (p *puller) collect(first jetstream.Msg, more <-chan jetstream.Msg) []Received {
	out := make([]Received, 0, len(more)+1)
	last := first
	out = append(out, p.received(first))
	for len(out) < deliverAtOnce {
		select {
		case m, ok := <-more:
			if !ok {
				return p.keep(out, last)
			}
			last = m
			out = append(out, p.received(m))
			continue
		default:
		}
		break
	}
	return p.keep(out, last)
}

func (p *puller) keep(out []Received, last jetstream.Msg) []Received {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept[out[len(out)-1].Fragment.Seq] = last
	return out
}

// received turns a message into a fragment. What breaks a rule becomes a hole,
// or an orphan where not even the key can be read.
func (p *puller) received(m jetstream.Msg) Received {
	var r Received
	meta, err := m.Metadata()
	if err != nil {
		// Not a message of a consumer: its sequences stay 0, which is doubt.
		return r
	}
	r.Consumer, r.Deliveries = meta.Sequence.Consumer, meta.NumDelivered
	f := &r.Fragment
	f.Seq, f.Time = meta.Sequence.Stream, meta.Timestamp.UnixNano()
	// nats.go keeps headers and payload in one array: a copy frees the headers.
	f.Data = bytes.Clone(m.Data())

	partition, token, err := p.layout.Parse(m.Subject())
	if err != nil {
		r.Stray = fmt.Errorf("message %d: %w", f.Seq, err)
		return r
	}
	if want := PartitionOf(token, p.layout.Partitions); want != partition {
		r.Stray = fmt.Errorf("message %d on %s belongs to partition %d, not %d: the stream's subject transform was edited", f.Seq, m.Subject(), want, partition)
		return r
	}
	if f.Key, err = Key(token); err != nil {
		r.Orphan, f.Key = true, ""
		f.Hole = &batcher.Reason{Code: CodeBadKey, Text: err.Error()}
		return r
	}
	head, reason := ParseHeader(m.Headers())
	f.Final, f.Index, f.Total = head.Final, head.Index, head.Total
	if reason == nil {
		reason = CheckText(f.Data, p.maxFragment)
	}
	f.Hole = reason
	return r
}

// ack acknowledges the kept message with that sequence and everything before
// it, and waits for the confirmation.
func (p *puller) ack(ctx context.Context, seq uint64) error {
	p.mu.Lock()
	m := p.kept[seq]
	p.mu.Unlock()
	if m == nil {
		return fmt.Errorf("message %d was not kept", seq)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := m.DoubleAck(ctx); err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.kept {
		if k <= seq {
			delete(p.kept, k)
		}
	}
	return nil
}
