package consumer

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
)

// publishLetters publishes dead letters in order, each until it is confirmed.
// It returns false when ctx ended first.
func (o *owner) publishLetters(ctx context.Context, letters []Refused) bool {
	for i := range letters {
		l := o.letter(ctx, &letters[i])
		wait := backoff.NewExponentialBackOff(backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
		err := backoff.RetryNotify(func() error { return o.letters.Publish(ctx, l) }, backoff.WithContext(wait, ctx),
			func(err error, wait time.Duration) {
				o.log.Error("dead letter not published: the checkpoint waits for it; make room in the dead-letter stream, or create it with: lobsink setup",
					"stream", DeadStream(o.cfg.Stream), "seq", l.Seq, "wait", wait, "err", err)
			})
		if err != nil {
			return false
		}
		o.metrics.lettered(l.Reason.Code)
		o.log.Warn("dead letter", "seq", l.Seq, "doc", l.Key, "code", l.Reason.Code, "text", l.Reason.Text)
	}
	return true
}

// letter completes a refused fragment with what only the stream knows: its
// subject and headers. A message that the stream has discarded meanwhile is
// described by what was kept of it.
func (o *owner) letter(ctx context.Context, r *Refused) Letter {
	f := &r.Fragment
	bound := o.bound.Load()
	l := Letter{
		Stream: o.cfg.Stream, DatabaseID: bound.DatabaseID, Life: bound.Life,
		Seq: f.Seq, Generation: r.Generation, Key: f.Key, Time: f.Time, Data: f.Data, Reason: r.Reason,
	}
	m, err := o.stream.message(ctx, f.Seq)
	if err == nil && m != nil && m.Time.UnixNano() == f.Time {
		l.Subject, l.Header = m.Subject, m.Header
	}
	if l.Subject == "" {
		if err != nil {
			o.log.Debug("original message not read again", "seq", f.Seq, "err", err)
		}
		if token, err := Token(f.Key); err == nil {
			l.Subject = o.layout.Stored(o.index, token)
		}
		l.Header = nats.Header{}
	}
	return l
}
