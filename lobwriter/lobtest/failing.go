package lobtest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// Fault is what goes wrong with a call.
type Fault struct {
	// Err is what the caller gets; nil: nothing goes wrong.
	Err error
	// Committed: the call is made and only its reply is lost. Otherwise the
	// call is not made.
	Committed bool
}

// Failing is a store that fails on purpose. Limits and Close never fail.
type Failing struct {
	store lobwriter.Store
	fault func(n int, op string) Fault
	calls atomic.Int64
}

var _ lobwriter.Store = (*Failing)(nil)

// NewFailing returns a store that asks before each call what goes wrong with
// it: the n-th, from 1, and its name, such as "flush". Fault is called by many
// goroutines if the store is.
func NewFailing(s lobwriter.Store, fault func(n int, op string) Fault) *Failing {
	return &Failing{store: s, fault: fault}
}

// Nth lets only the n-th call fail. A test that loops over n until Calls stays
// below it has failed each call once.
func Nth(n int, f Fault) func(n int, op string) Fault {
	return func(i int, _ string) Fault {
		if i == n {
			return f
		}
		return Fault{}
	}
}

// Calls returns how many calls there were.
func (f *Failing) Calls() int { return int(f.calls.Load()) }

// failing makes a call, or fails it. A call that fails by itself keeps its error.
func failing[T any](f *Failing, op string, call func() (T, error)) (T, error) {
	fault := f.fault(int(f.calls.Add(1)), op)
	if fault.Err == nil {
		return call()
	}
	var zero T
	if fault.Committed {
		if _, err := call(); err != nil {
			return zero, err
		}
	}
	return zero, fault.Err
}

// Limits implements lobwriter.Store.
func (f *Failing) Limits() lobwriter.Limits { return f.store.Limits() }

// Close implements lobwriter.Store.
func (f *Failing) Close() error { return f.store.Close() }

// Bind implements lobwriter.Store.
func (f *Failing) Bind(ctx context.Context, s lobwriter.Stream) (lobwriter.Binding, error) {
	return failing(f, "bind", func() (lobwriter.Binding, error) { return f.store.Bind(ctx, s) })
}

// Attend implements lobwriter.Store.
func (f *Failing) Attend(ctx context.Context, m lobwriter.Member, lease time.Duration) (lobwriter.Roster, error) {
	return failing(f, "attend", func() (lobwriter.Roster, error) { return f.store.Attend(ctx, m, lease) })
}

// Leave implements lobwriter.Store.
func (f *Failing) Leave(ctx context.Context, id string) error {
	_, err := failing(f, "leave", func() (any, error) { return nil, f.store.Leave(ctx, id) })
	return err
}

// Claim implements lobwriter.Store.
func (f *Failing) Claim(ctx context.Context, r lobwriter.ClaimRequest) (lobwriter.Claim, error) {
	return failing(f, "claim", func() (lobwriter.Claim, error) { return f.store.Claim(ctx, r) })
}

// Renew implements lobwriter.Store.
func (f *Failing) Renew(ctx context.Context, c lobwriter.Claim, lease time.Duration) (lobwriter.Fence, error) {
	return failing(f, "renew", func() (lobwriter.Fence, error) { return f.store.Renew(ctx, c, lease) })
}

// Release implements lobwriter.Store.
func (f *Failing) Release(ctx context.Context, c lobwriter.Claim) error {
	_, err := failing(f, "release", func() (any, error) { return nil, f.store.Release(ctx, c) })
	return err
}

// Fence implements lobwriter.Store.
func (f *Failing) Fence(ctx context.Context, partition int) (lobwriter.Fence, error) {
	return failing(f, "fence", func() (lobwriter.Fence, error) { return f.store.Fence(ctx, partition) })
}

// Rows implements lobwriter.Store.
func (f *Failing) Rows(ctx context.Context, partition int, keys []string) ([]lobwriter.Row, error) {
	return failing(f, "rows", func() ([]lobwriter.Row, error) { return f.store.Rows(ctx, partition, keys) })
}

// Flush implements lobwriter.Store.
func (f *Failing) Flush(ctx context.Context, fl *lobwriter.Flush) (lobwriter.Receipt, error) {
	return failing(f, "flush", func() (lobwriter.Receipt, error) { return f.store.Flush(ctx, fl) })
}
