package consumer

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
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
