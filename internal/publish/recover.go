package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// BrokenError means that a fragment is not where it belongs, and cannot be
// brought there: later fragments of its document are in the stream.
type BrokenError struct {
	Key string
	// Number counts the fragments of the key that this run published, from 1.
	Number uint64
	Cause  error
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("document %q is broken in the stream: fragment %d is missing in its place (%v); publish the document again under another key", e.Key, e.Number, e.Cause)
}

func (e *BrokenError) Unwrap() error { return e.Cause }

// recover repeats what the stream has not stored, after a message has failed.
// First everything sent is answered, so that nothing is under way any more.
func (p *Publisher) recover(ctx context.Context) error {
	for _, m := range p.sent {
		if err := m.await(ctx); err != nil {
			return err
		}
	}
	// Messages of a key follow each other in sent, so the one before the first
	// that failed is the document's last, and after that the repeated one is.
	before := map[*document]uint64{}
	for _, m := range p.sent {
		if _, ok := before[m.document]; !ok {
			before[m.document] = m.document.last
		}
		if m.err != nil {
			if err := p.repeat(ctx, m, before[m.document]); err != nil {
				return err
			}
		}
		before[m.document] = m.seq
	}
	return nil
}

// repeat publishes a message again, directly behind the sequence before. It may
// be stored already: then the stream refuses it, and has it there.
func (p *Publisher) repeat(ctx context.Context, m *message, before uint64) error {
	cause := m.err
	what := fmt.Sprintf("publishing fragment %d of %q", m.number, m.Key)
	return p.patiently(ctx, what, func(ctx context.Context) error {
		ack, err := p.js.PublishMsg(ctx, m.msg, jetstream.WithRetryAttempts(0), jetstream.WithExpectLastSequencePerSubject(before))
		if err == nil {
			m.seq, m.err = ack.Sequence, nil
			return nil
		}
		if !isWrongLast(err) {
			return err
		}
		next, err := p.stream.GetMsg(ctx, before+1, jetstream.WithGetMsgSubject(m.document.stored))
		if err != nil {
			return err // a replica may be behind: not even "not found" is an answer
		}
		if next.Header.Get(jetstream.MsgIDHeader) != p.id(m.document, m.number) {
			return backoff.Permanent(&BrokenError{Key: m.Key, Number: m.number,
				Cause: fmt.Errorf("%w, but sequence %d was stored", cause, next.Sequence)})
		}
		m.seq, m.err = next.Sequence, nil
		return nil
	})
}

// isWrongLast reports that the last sequence of a subject is another one. A
// replicated stream has a code of its own for it.
func isWrongLast(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// tooLarge is "message size exceeds maximum allowed" (nats-server,
// server/errors.json, JSStreamMessageExceedsMaximumErr).
const tooLarge jetstream.ErrorCode = 10054

// hopeless reports an error that no repetition can change.
func hopeless(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrMaxPayload) ||
		errors.Is(err, jetstream.ErrStreamNotFound) || errors.As(err, &api) && api.ErrorCode == tooLarge
}

// The pauses between tries.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// patiently repeats try for RetryFor. Whatever try does must bear repetition.
func (p *Publisher) patiently(ctx context.Context, what string, try func(context.Context) error) error {
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstPause),
		backoff.WithMaxInterval(longestPause), backoff.WithMaxElapsedTime(p.o.RetryFor))
	err := backoff.RetryNotify(func() error {
		call, cancel := context.WithTimeout(ctx, p.o.AnswerWithin)
		defer cancel()
		err := try(call)
		if hopeless(err) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(pauses, ctx), func(err error, pause time.Duration) {
		p.o.Log.Warn(what+": will try again", "err", err, "pause", pause)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
