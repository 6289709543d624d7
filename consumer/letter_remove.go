package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/batcher"
)

// Remove deletes a letter, whole. One that is not there is no error.
func (d *DeadLetters) Remove(ctx context.Context, r Record) error {
	s, err := d.open(ctx)
	if err != nil {
		return err
	}
	subject := fmt.Sprintf("%s.%s.%d.%d.%d.*", deadRoot(r.Stream), r.DatabaseID, r.Life, r.Sequence, r.Generation)
	err = request(ctx, func(ctx context.Context) error { return s.Purge(ctx, jetstream.WithPurgeSubject(subject)) })
	if err != nil {
		return d.failed(fmt.Errorf("%s: %w", subject, err))
	}
	return nil
}

// ErrAltered means that a letter does not have all that its message had.
var ErrAltered = errors.New("the headers of a dead letter were too long to be kept whole")

// Fragment makes the fragment of a letter that its message was, judged again: one
// of more than maxFragment bytes is a hole.
func (d *DeadLetters) Fragment(ctx context.Context, r Record, maxFragment int) (batcher.Fragment, error) {
	if slices.Contains(r.Altered, "headers") {
		return batcher.Fragment{}, fmt.Errorf("%w (message %d)", ErrAltered, r.Sequence)
	}
	data, err := d.Payload(ctx, r)
	if err != nil {
		return batcher.Fragment{}, err
	}
	f := batcher.Fragment{Seq: r.Sequence, Time: r.Time.UnixNano(), Data: data}
	if r.Key != nil {
		f.Key = *r.Key
	}
	judge(&f, r.Headers, maxFragment)
	return f, nil
}
