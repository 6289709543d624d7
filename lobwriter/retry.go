package lobwriter

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// RetryOptions are the settings of Retry.
type RetryOptions struct {
	// AttemptTimeout is the deadline of one attempt; 0: 8 s.
	AttemptTimeout time.Duration
	// First and Most are the waits after the first failure and at most, before
	// a jitter of half of them; 0: 50 ms and 5 s.
	First, Most time.Duration
	// SpaceWait is added to the wait while the database has no room; 0: 10 s.
	SpaceWait time.Duration
	// OnRetry is told of each failure that is going to be repeated, and after
	// what wait; may be nil. Attempts count from 1.
	OnRetry func(op string, attempt int, err error, wait time.Duration)
}

// Retry returns a store that repeats calls that failed with a Transient or
// Space error: the identical call, with capped and jittered waits, for as long
// as the caller's context lives. Everything else is returned at once.
//
// The end of the context ends the waiting between attempts: the error is then
// both the context's and that of the last attempt. It does not cancel an attempt
// under way, whose outcome would then be unknown; that one has its own deadline.
// Renew alone follows its context everywhere, because a late renewal is worth
// nothing. A context that has ended begins nothing.
func Retry(s Store, o RetryOptions) Store {
	o.AttemptTimeout = cmp.Or(o.AttemptTimeout, 8*time.Second)
	o.First = cmp.Or(o.First, 50*time.Millisecond)
	o.Most = cmp.Or(o.Most, 5*time.Second)
	o.SpaceWait = cmp.Or(o.SpaceWait, 10*time.Second)
	return &retrying{Store: s, o: o}
}

// retrying embeds the store for the calls that cannot fail for a while.
type retrying struct {
	Store
	o RetryOptions
}

func (r *retrying) Bind(ctx context.Context, s Stream) (Binding, error) {
	return repeat(ctx, r, "bind", func(ctx context.Context) (Binding, error) { return r.Store.Bind(ctx, s) })
}

func (r *retrying) Attend(ctx context.Context, m Member, lease time.Duration) (Roster, error) {
	return repeat(ctx, r, "attend", func(ctx context.Context) (Roster, error) { return r.Store.Attend(ctx, m, lease) })
}

func (r *retrying) Leave(ctx context.Context, id string) error {
	_, err := repeat(ctx, r, "leave", func(ctx context.Context) (none, error) { return none{}, r.Store.Leave(ctx, id) })
	return err
}

func (r *retrying) Claim(ctx context.Context, c ClaimRequest) (Claim, error) {
	return repeat(ctx, r, "claim", func(ctx context.Context) (Claim, error) { return r.Store.Claim(ctx, c) })
}

func (r *retrying) Renew(ctx context.Context, c Claim, lease time.Duration) (Fence, error) {
	return repeat(ctx, r, "renew", func(attempt context.Context) (Fence, error) {
		attempt, cancel := context.WithCancel(attempt)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return r.Store.Renew(attempt, c, lease)
	})
}

func (r *retrying) Release(ctx context.Context, c Claim) error {
	_, err := repeat(ctx, r, "release", func(ctx context.Context) (none, error) { return none{}, r.Store.Release(ctx, c) })
	return err
}

func (r *retrying) Fence(ctx context.Context, partition int) (Fence, error) {
	return repeat(ctx, r, "fence", func(ctx context.Context) (Fence, error) { return r.Store.Fence(ctx, partition) })
}

func (r *retrying) Rows(ctx context.Context, partition int, keys []string) ([]Row, error) {
	return repeat(ctx, r, "rows", func(ctx context.Context) ([]Row, error) { return r.Store.Rows(ctx, partition, keys) })
}

func (r *retrying) Flush(ctx context.Context, f *Flush) (Receipt, error) {
	return repeat(ctx, r, "flush", func(ctx context.Context) (Receipt, error) { return r.Store.Flush(ctx, f) })
}

// none is the result of a call that has none.
type none struct{}

// repeat calls try until it succeeds, fails for good, or ctx ends.
func repeat[T any](ctx context.Context, r *retrying, op string, try func(ctx context.Context) (T, error)) (T, error) {
	if ctx.Err() != nil {
		var zero T
		return zero, fmt.Errorf("%s not begun: %w", op, ctx.Err())
	}
	// New for each call, and without an end: the default of 15 minutes would
	// count from here, not from the first failure.
	waits := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(r.o.First),
		backoff.WithMaxInterval(r.o.Most),
		backoff.WithMaxElapsedTime(0))
	for attempt := 1; ; attempt++ {
		result, err := once(ctx, r.o.AttemptTimeout, try)
		if !repeatable(err) {
			return result, err
		}
		if ctx.Err() == nil {
			wait := waits.NextBackOff()
			if KindOf(err) == Space {
				wait += r.o.SpaceWait
			}
			if r.o.OnRetry != nil {
				r.o.OnRetry(op, attempt, err, wait)
			}
			pause(ctx, wait)
		}
		if ctx.Err() != nil {
			return result, fmt.Errorf("%s: %w, after %d attempts, of which the last: %w", op, ctx.Err(), attempt, err)
		}
	}
}

// once makes one attempt, which outlives ctx but not its timeout.
func once[T any](ctx context.Context, timeout time.Duration, try func(ctx context.Context) (T, error)) (T, error) {
	attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return try(attempt)
}

func repeatable(err error) bool {
	return err != nil && (KindOf(err) == Transient || KindOf(err) == Space)
}

// pause waits, at most until ctx ends.
func pause(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}
