package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// puller reads from one consumer and keeps what to acknowledge by.
//
// It asks the server for messages itself, in place of jetstream.Consumer.Fetch:
// that one takes a message without payload whose headers have a Status for an
// answer of the server's own, so that any publisher could stop a partition. An
// answer has no reply subject; a message always has.
type puller struct {
	*source
	consumer jetstream.Consumer
	config   jetstream.ConsumerConfig

	mu     sync.Mutex
	kept   map[uint64]string // reply subjects of the last message of each delivery
	halted chan struct{}     // closed to end the fetch under way

	// batches are filled in turn. The loop of an owner takes one only when it
	// is done with the one before.
	batches [2][]Received
	turn    int
}

// fetchMessages is how many messages one fetch asks for at most. With 1,000 the
// server spent up to a quarter more on each of 200 bytes than with 5,000; more
// than that brought nothing.
const fetchMessages = 5000

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

// pull is what a fetch sends to the server (nats-server, JSApiConsumerGetNextRequest).
type pull struct {
	Expires  time.Duration `json:"expires"` // nanoseconds
	Batch    int           `json:"batch"`
	MaxBytes int64         `json:"max_bytes,omitempty"`
}

// fetch reads messages and hands them over as they come. What deliver gets is
// reused from the next but one call of it on. quiet tells that fetch ended without
// any message because the server had none. The error is the consumer's own; no
// answer from NATS is not an error.
func (p *puller) fetch(ctx context.Context, maxBytes int64, wait time.Duration, deliver func([]Received)) (quiet bool, err error) {
	p.mu.Lock()
	halted := p.halted
	p.mu.Unlock()
	if !p.conn.IsConnected() {
		return false, pause(ctx, halted, wait)
	}
	// Room for every message and answer: a full channel drops messages.
	messages := make(chan *nats.Msg, fetchMessages+16)
	inbox := p.conn.NewInbox()
	sub, err := p.conn.ChanSubscribe(inbox, messages)
	if err != nil {
		return false, pause(ctx, halted, wait)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is gone
	asked := pull{Expires: wait, Batch: fetchMessages, MaxBytes: maxBytes}
	if err := p.ask(inbox, asked); err != nil {
		return false, pause(ctx, halted, wait)
	}
	// The server answers when the time is up. Past that nobody is there, but for
	// what a slow network is still bringing: what comes starts the time again.
	silence := wait + requestTimeout
	unanswered := time.NewTimer(silence)
	defer unanswered.Stop()
	for count := 0; count < asked.Batch; {
		select {
		case m := <-messages:
			unanswered.Reset(silence)
			if m.Reply == "" {
				if asked.Batch = asked.willCome(m); count == 0 && asked.Batch == 0 && asked.MaxBytes > 0 {
					// Somebody has raised the largest message since Run
					// began. It is asked for alone, or it never comes.
					asked.Batch, asked.MaxBytes = 1, 0
					if err := p.ask(inbox, asked); err != nil {
						return false, pause(ctx, halted, wait)
					}
					continue
				}
				end, err := p.answered(m)
				if end {
					return count == 0 && err == nil, err
				}
				continue
			}
			got, answer := p.collect(m, messages)
			count += len(got)
			deliver(got)
			if ctx.Err() != nil {
				return false, nil // what was delivered may not have been taken
			}
			if answer != nil {
				asked.Batch = asked.willCome(answer)
				if end, err := p.answered(answer); end {
					return false, err
				}
			}
		case <-unanswered.C:
			return false, nil
		case <-halted:
			return false, nil
		case <-ctx.Done():
			return false, nil
		}
	}
	return false, nil
}

// ask sends a pull request, which the server answers in inbox.
func (p *puller) ask(inbox string, asked pull) error {
	request, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	return p.conn.PublishRequest(p.api+"CONSUMER.MSG.NEXT."+p.name+"."+p.config.Durable, inbox, request)
}

// willCome returns how many messages the server sends for a pull, once it has
// said that it is done with it: then it names how many are left out. They need
// not have come: a replicated consumer sends a message after its servers have
// agreed on it, and this answer at once (nats-server 2.15.2, consumer.go,
// replicateDeliveries).
func (a *pull) willCome(m *nats.Msg) int {
	if !isDone(m) {
		return a.Batch
	}
	left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	if err != nil || left < 0 {
		return 0 // nobody knows: what does come is doubt
	}
	return max(a.Batch-left, 0)
}

// isDone reports whether the server is done with a pull: it has sent, or is about
// to send, all the messages that it holds, or all the bytes that the next message
// leaves room for.
func isDone(m *nats.Msg) bool {
	text := m.Header.Get("Description")
	return m.Header.Get("Status") == "409" && (strings.Contains(text, "MaxBytes") || strings.Contains(text, "Batch Completed"))
}

// answered reads an answer of the server: whether it ends the fetch, and the
// error if it is one of the consumer.
func (p *puller) answered(m *nats.Msg) (end bool, err error) {
	status, text := m.Header.Get("Status"), m.Header.Get("Description")
	switch {
	case status == "100": // a heartbeat
		return false, nil
	case status == "404", status == "408": // nothing, or nothing more in time
		return true, nil
	case isDone(m):
		return false, nil // see willCome
	case !p.conn.IsConnected(), strings.Contains(text, "Server Shutdown"):
		// The connection will break, or is broken: that is doubt enough.
		return true, nil
	case status == "503":
		return true, errors.New("the server has no such consumer, or JetStream is not ready")
	}
	return true, errors.New(strings.ToLower(text))
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

// collect turns a message, and what is there behind it, into fragments. What it
// comes upon that is no message, an answer of the server, is returned.
func (p *puller) collect(first *nats.Msg, more <-chan *nats.Msg) (out []Received, answer *nats.Msg) {
	p.turn ^= 1
	out = p.batches[p.turn][:0]
	defer func() { p.batches[p.turn] = out }()
	last := first
	out = append(out, p.received(first))
	for len(out) < deliverAtOnce && answer == nil {
		select {
		case m := <-more:
			if m.Reply == "" {
				answer = m
				continue
			}
			last = m
			out = append(out, p.received(m))
			continue
		default:
		}
		break
	}
	over := p.connection()
	for i := range out {
		out[i].Connection = over
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept[out[len(out)-1].Fragment.Seq] = last.Reply
	return out, answer
}

// ack acknowledges the kept message with that sequence and everything before
// it, and waits for the confirmation.
func (p *puller) ack(ctx context.Context, seq uint64) error {
	p.mu.Lock()
	reply := p.kept[seq]
	p.mu.Unlock()
	if reply == "" {
		return fmt.Errorf("message %d was not kept", seq)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := p.conn.RequestWithContext(ctx, reply, []byte("+ACK")); err != nil {
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

// replied is what the reply subject of a message says.
type replied struct {
	deliveries, stream, consumer uint64
	time                         int64
}

// parseReply reads a reply subject: $JS.ACK., in newer servers domain and
// account, stream, consumer, deliveries, stream sequence, consumer sequence,
// time and pending, and in newer servers one token more.
func parseReply(reply string) (d replied, err error) {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	if !ok {
		return d, fmt.Errorf("%q is no acknowledgement subject", reply)
	}
	skip := 2 // stream, consumer
	if strings.Count(rest, ".") >= 8 {
		skip = 4
	}
	for range skip {
		_, rest, _ = strings.Cut(rest, ".")
	}
	var fields [4]uint64
	for i := range fields {
		var token string
		token, rest, ok = strings.Cut(rest, ".")
		if fields[i], err = strconv.ParseUint(token, 10, 64); err != nil || !ok {
			return replied{}, fmt.Errorf("%q is no acknowledgement subject", reply)
		}
	}
	return replied{deliveries: fields[0], stream: fields[1], consumer: fields[2], time: int64(fields[3])}, nil
}
