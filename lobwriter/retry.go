package lobwriter

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// RetryOptions are the settings of Retry.
type RetryOptions struct {
	// AttemptTimeout is the deadline of one attempt.
	AttemptTimeout time.Duration
	// First and Most are the waits after the first failure and at most, before
	// jitter; 0: 50 ms and 5 s.
	First, Most time.Duration
	// SpaceWait is the wait while the database has no room; 0: 10 s.
	SpaceWait time.Duration
	// OnRetry is told of each failure that is going to be repeated; may be nil.
	OnRetry func(op string, attempt int, err error, wait time.Duration)
}

// Retry returns a store that repeats calls that failed with a Transient or
// Space error: the identical call, with capped and jittered waits, for as long
// as the caller's context lives. Everything else is returned at once.
//
// The end of the context ends the waiting between attempts. It does not cancel
// an attempt under way, whose outcome would then be unknown; that one has its
// own deadline.
func Retry(s Store, o RetryOptions) Store {
	if o.First == 0 {
		o.First = 50 * time.Millisecond
	}
	if o.Most == 0 {
		o.Most = 5 * time.Second
	}
	if o.SpaceWait == 0 {
		o.SpaceWait = 10 * time.Second
	}
	return &retrying{Store: s, o: o}
}

// retrying embeds the store for the calls that are not repeated: Limits, and
// Renew, which has a clock of its own.
type retrying struct {
	Store
	o RetryOptions
}

// pacing is an exponential back-off that waits longer for space.
type pacing struct {
	*backoff.ExponentialBackOff
	space time.Duration
	last  Kind
}

func (p *pacing) NextBackOff() time.Duration {
	d := p.ExponentialBackOff.NextBackOff()
	if p.last == Space {
		return max(d, p.space)
	}
	return d
}

func (r *retrying) repeat(ctx context.Context, op string, try func(ctx context.Context) error) error {
	p := &pacing{
		ExponentialBackOff: backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(r.o.First),
			backoff.WithMaxInterval(r.o.Most),
			// Zero is "never give up"; the default of 15 minutes counts from
			// the creation, not from the first failure.
			backoff.WithMaxElapsedTime(0)),
		space: r.o.SpaceWait,
	}
	attempt := 0
	var last error
	err := backoff.RetryNotify(func() error {
		attempt++
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.AttemptTimeout)
		defer cancel()
		last = try(call)
		p.last = KindOf(last)
		if last == nil || p.last == Transient || p.last == Space {
			return last
		}
		return backoff.Permanent(last)
	}, backoff.WithContext(p, ctx), func(err error, wait time.Duration) {
		if r.o.OnRetry != nil {
			r.o.OnRetry(op, attempt, err, wait)
		}
	})
	if err != nil && ctx.Err() != nil && last != nil {
		return fmt.Errorf("%w, after %d attempts: %w", context.Cause(ctx), attempt, last)
	}
	return err
}

// repeated is repeat for calls that return something.
func repeated[T any](ctx context.Context, r *retrying, op string, try func(ctx context.Context) (T, error)) (out T, err error) {
	err = r.repeat(ctx, op, func(ctx context.Context) (err error) {
		out, err = try(ctx)
		return err
	})
	return out, err
}

func (r *retrying) Flush(ctx context.Context, f *Flush) (Receipt, error) {
	return repeated(ctx, r, "flush", func(ctx context.Context) (Receipt, error) { return r.Store.Flush(ctx, f) })
}

func (r *retrying) Rows(ctx context.Context, partition int, keys []string) ([]Row, error) {
	return repeated(ctx, r, "rows", func(ctx context.Context) ([]Row, error) { return r.Store.Rows(ctx, partition, keys) })
}

func (r *retrying) Fence(ctx context.Context, partition int) (Fence, error) {
	return repeated(ctx, r, "fence", func(ctx context.Context) (Fence, error) { return r.Store.Fence(ctx, partition) })
}

func (r *retrying) Claim(ctx context.Context, c ClaimRequest) (Claim, error) {
	return repeated(ctx, r, "claim", func(ctx context.Context) (Claim, error) { return r.Store.Claim(ctx, c) })
}

func (r *retrying) Bind(ctx context.Context, s Stream) (Binding, error) {
	return repeated(ctx, r, "bind", func(ctx context.Context) (Binding, error) { return r.Store.Bind(ctx, s) })
}

func (r *retrying) Release(ctx context.Context, c Claim) error {
	return r.repeat(ctx, "release", func(ctx context.Context) error { return r.Store.Release(ctx, c) })
}

func (r *retrying) Attend(ctx context.Context, m Member, lease time.Duration) ([]Member, error) {
	return repeated(ctx, r, "attend", func(ctx context.Context) ([]Member, error) { return r.Store.Attend(ctx, m, lease) })
}

func (r *retrying) Leave(ctx context.Context, id string) error {
	return r.repeat(ctx, "leave", func(ctx context.Context) error { return r.Store.Leave(ctx, id) })
}
