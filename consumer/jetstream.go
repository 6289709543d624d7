package consumer

import (
	"bytes"
	"cmp"
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

// source is the stream as an owner sees it.
type source struct {
	js          jetstream.JetStream
	conn        *nats.Conn
	api         string // what API subjects begin with
	name        string
	layout      Layout
	maxFragment int
}

// connection numbers the connections to NATS, one after the other.
func (s *source) connection() uint64 { return s.conn.Stats().Reconnects }

// errConnectionBroke: before and after it the server may be another one, or the
// same one without its last messages.
var errConnectionBroke = errors.New("the connection broke while the stream was asked about itself")

// facts asks the stream about itself.
func (s *source) facts(ctx context.Context) (StreamFacts, jetstream.Stream, error) {
	var st jetstream.Stream
	over := s.connection()
	err := request(ctx, func(ctx context.Context) (err error) {
		st, err = s.js.Stream(ctx, s.name)
		return err
	})
	if err != nil {
		return StreamFacts{}, nil, err
	}
	f := factsOf(st.CachedInfo())
	if f.Connection = over; s.connection() != over {
		return StreamFacts{}, nil, errConnectionBroke
	}
	return f, st, nil
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

// message reads a stored message; nil when it is not stored.
func (s *source) message(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	return s.get(ctx, wanted{Seq: seq})
}

// wanted is the message with a sequence, or the first one from there on whose
// subject matches (nats-server, JSApiMsgGetRequest).
type wanted struct {
	Seq  uint64 `json:"seq"`
	Next string `json:"next_by_subj,omitempty"`
}

// get reads a stored message; nil when it is not stored. It asks the stream's
// leader: jetstream.Stream.GetMsg asks any replica, and takes a message without
// payload whose headers have a Status for an error.
func (s *source) get(ctx context.Context, w wanted) (*jetstream.RawStreamMsg, error) {
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	ask, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	err = request(ctx, func(ctx context.Context) error {
		m, err := s.conn.RequestWithContext(ctx, s.api+"STREAM.MSG.GET."+s.name, ask)
		if err != nil {
			return err
		}
		return json.Unmarshal(m.Data, &answer)
	})
	switch e := answer.Error; {
	case err != nil:
		return nil, err
	case e != nil && e.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case e != nil:
		return nil, e
	case answer.Message == nil:
		return nil, fmt.Errorf("no message in the answer to a request for message %d", w.Seq)
	}
	m := &jetstream.RawStreamMsg{Subject: answer.Message.Subject, Sequence: answer.Message.Seq, Data: answer.Message.Data, Time: answer.Message.Time}
	if len(answer.Message.Header) > 0 {
		m.Header, err = nats.DecodeHeadersMsg(answer.Message.Header)
	}
	return m, err
}

// timeOf returns the time of a message; 0 when it is not stored.
func (s *source) timeOf(ctx context.Context, seq uint64) (int64, error) {
	if seq == 0 {
		return 0, nil
	}
	m, err := s.message(ctx, seq)
	if err != nil || m == nil {
		return 0, err
	}
	return m.Time.UnixNano(), nil
}

func (s *source) inspect(ctx context.Context, checkpoint, highest lobwriter.Position) (Inspection, error) {
	f, _, err := s.facts(ctx)
	if err != nil {
		return Inspection{}, err
	}
	in := Inspection{StreamFacts: f}
	if in.CheckpointTime, err = s.timeOf(ctx, checkpoint.Seq); err != nil {
		return Inspection{}, err
	}
	in.HighestTime, err = s.timeOf(ctx, highest.Seq)
	return in, err
}

// look asks the stream first, and consumer and messages after it: what they say
// then is about everything up to the stream's last message of before.
func (s *source) look(ctx context.Context, p *puller, a DoLook) (Look, error) {
	last := a.Last
	f, _, err := s.facts(ctx)
	if err != nil {
		return Look{}, err
	}
	l := Look{StreamFacts: f}
	if last.Seq == f.Last.Seq {
		l.LastTime = f.Last.Time
	} else if l.LastTime, err = s.timeOf(ctx, last.Seq); err != nil {
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
	l.Delivered = info.Delivered.Consumer
	if info.Cluster != nil && f.Leader != "" {
		l.ConsumerLeader = info.Cluster.Leader
	}
	l.Changed = changed(p.config, info.Config)
	if l.More = info.NumPending > 0; !l.More && f.Last.Seq > a.Read {
		m, err := s.get(ctx, wanted{a.Read + 1, cmp.Or(p.config.FilterSubject, ">")})
		if err != nil {
			return Look{}, err
		}
		l.More = m != nil
	}
	if s.connection() != f.Connection {
		return Look{}, errConnectionBroke
	}
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

// open creates a consumer. An existing one of that name is an error, unless it is
// the same: then the answer to an earlier try was lost.
func (s *source) open(ctx context.Context, cfg jetstream.ConsumerConfig) (*puller, error) {
	var c jetstream.Consumer
	err := request(ctx, func(ctx context.Context) (err error) {
		c, err = s.js.CreateConsumer(ctx, s.name, cfg)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &puller{source: s, consumer: c, config: cfg, kept: map[uint64]string{}}, nil
}

// sweep deletes the consumers whose names begin with prefix, but one. Between the
// list of them and the first deletion it asks whether it still may: whatever is
// made later is not on the list.
func (s *source) sweep(ctx context.Context, prefix, keep string, may func(context.Context) error) error {
	_, st, err := s.facts(ctx)
	if err != nil {
		return err
	}
	var others []string
	names := st.ConsumerNames(ctx)
	for name := range names.Name() {
		if strings.HasPrefix(name, prefix) && name != keep {
			others = append(others, name)
		}
	}
	if err := names.Err(); err != nil || len(others) == 0 {
		return err
	}
	if err := may(ctx); err != nil {
		return err
	}
	var failed error
	for _, name := range others {
		err := request(ctx, func(ctx context.Context) error { return st.DeleteConsumer(ctx, name) })
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
		}
	}
	return failed
}

// received turns a message into a fragment. What breaks a rule becomes a hole,
// or an orphan where not even the key can be read.
func (s *source) received(m *nats.Msg) Received {
	var r Received
	at, err := parseReply(m.Reply)
	if err != nil {
		// Not a message of a consumer: its sequences stay 0, which is doubt.
		return r
	}
	r.Consumer, r.Deliveries = at.consumer, at.deliveries
	f := &r.Fragment
	f.Seq, f.Time = at.stream, at.time
	f.Data = m.Data
	if m.Size() > len(m.Subject)+len(m.Reply)+len(m.Data) {
		// nats.go keeps headers and payload in one array: a copy frees the headers.
		f.Data = bytes.Clone(m.Data)
	}

	partition, token, err := s.layout.Parse(m.Subject)
	if err != nil {
		r.Stray = fmt.Errorf("message %d: %w", f.Seq, err)
		return r
	}
	if want := PartitionOf(token, s.layout.Partitions); want != partition {
		r.Stray = fmt.Errorf("message %d on %s belongs to partition %d, not %d: the stream's subject transform was edited", f.Seq, m.Subject, want, partition)
		return r
	}
	if f.Key, err = Key(token); err != nil {
		r.Orphan, f.Key = true, ""
		f.Hole = &batcher.Reason{Code: CodeBadKey, Text: err.Error()}
		return r
	}
	judge(f, m.Header, s.maxFragment)
	return r
}
