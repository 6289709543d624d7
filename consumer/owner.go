package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// owner is the shell around one Partition: it carries out the actions, each in
// a goroutine of its own, and brings the answers back one at a time.
type owner struct {
	*member
	index int
	part  *Partition
	log   *slog.Logger
	// retrying repeats what is unanswered, in place of store.
	retrying lobwriter.Store
	gauges   *gauges

	// events are answers, applied by the loop in the order in which they come.
	events chan func(now time.Time)
	done   chan struct{} // closed when run has returned
	wg     sync.WaitGroup

	// What follows belongs to the loop.
	turn     context.Context // ends when the turn is dropped
	endTurn  context.CancelFunc
	pull     *puller
	fetching int64 // bytes asked for by the fetch under way
	owned    bool  // as the status was told

	ended time.Time // when the lease ended that is to be taken over; zero: none did

	// bound is what the database is bound to; another life of the stream begins
	// with a claim.
	bound   atomic.Pointer[lobwriter.Binding]
	flushed atomic.Bool // the last attempt to flush succeeded
	waited  atomic.Bool // the log has that the lease is another member's
}

// flushesFailed is after how many attempts a flush makes lobsink not ready. A
// renewal that succeeds in the meantime says nothing about flushes.
const flushesFailed = 3

func newOwner(m *member, index int) *owner {
	o := &owner{member: m, index: index, events: make(chan func(time.Time)), done: make(chan struct{})}
	o.log = m.cfg.Log.With("partition", index)
	o.gauges = m.metrics.partition(index)
	o.flushed.Store(true)
	o.bound.Store(&m.binding)
	o.retrying = lobwriter.Retry(m.store, lobwriter.RetryOptions{
		AttemptTimeout: m.cfg.FlushTimeout,
		OnRetry: func(op string, attempt int, err error, wait time.Duration) {
			o.flushed.Store(o.flushed.Load() && op != "flush")
			o.status.database(err)
			if op == "flush" && (attempt >= flushesFailed || lobwriter.KindOf(err) == lobwriter.Space) {
				o.status.report(o.index, fmt.Errorf("partition %d is not stored: %w", o.index, err))
			}
			if o.cfg.OnRetry != nil {
				o.cfg.OnRetry(op, attempt, err, wait)
			}
			o.log.Warn("database: will try again", "op", op, "attempt", attempt, "kind", lobwriter.KindOf(err).String(), "code", lobwriter.CodeOf(err), "wait", wait, "err", err)
		},
	})
	limits := m.store.Limits()
	limits.ChunkBytes = min(limits.ChunkBytes, m.cfg.ChunkBytes)
	guaranteed := m.budget.each
	o.part = New(Options{
		Partition:  index,
		Binding:    m.binding,
		Batch:      batcher.Limits{MaxAge: m.cfg.MaxAge, ChunkBytes: limits.ChunkBytes},
		Flush:      limits,
		MaxMessage: m.maxMessage,
		Rows:       guaranteed / 4,
		Lease:      m.cfg.Lease,
		Renew:      m.cfg.Renew,
		Quiet:      m.cfg.quiet(),
	})
	o.part.Assign(time.Now(), false) // until the share of this member is known
	return o
}

// run owns the partition until stop is closed and everything is handed over, or
// until ctx ends. It returns when everything that it started has ended.
func (o *owner) run(ctx context.Context, stop <-chan struct{}) {
	o.turn, o.endTurn = context.WithCancel(ctx)
	defer func() {
		o.endTurn()
		close(o.done)
		o.wg.Wait()
		o.budget.release(o.index)
		o.status.partition(o.index, false)
		o.gauges.clear()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	o.part.Connected(time.Now(), true)
	for {
		for _, a := range o.part.Actions() {
			o.perform(ctx, a)
		}
		o.allow() // notes the fetch that was just begun
		o.observe()
		if o.part.Ended() {
			return
		}
		wake := time.Hour
		if d := o.part.Deadline(); !d.IsZero() {
			wake = time.Until(d)
		}
		timer.Reset(wake)
		select {
		case event := <-o.events:
			o.allow() // the others may use more by now
			event(time.Now())
		case <-timer.C:
			o.allow()
			o.part.Tick(time.Now())
		case <-stop:
			stop = nil
			o.part.Stop(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// allow tells the budget what the partition uses, and the partition what it may.
func (o *owner) allow() {
	o.part.Allow(o.budget.allowance(o.index, o.part.Bytes()+o.fetching, o.flushed.Load()))
}

// answer hands an event to the loop. It gives up with ctx.
func (o *owner) answer(ctx context.Context, event func(now time.Time)) {
	select {
	case o.events <- event:
	case <-ctx.Done():
	case <-o.done:
	}
}

// start runs work in a goroutine that the owner waits for. The context is the
// turn's.
func (o *owner) start(work func(ctx context.Context)) {
	ctx := o.turn
	o.wg.Go(func() { work(ctx) })
}

func (o *owner) perform(ctx context.Context, a Action) {
	switch a := a.(type) {
	case DoClaim:
		o.start(func(ctx context.Context) { o.claim(ctx, a) })
	case DoInspect:
		o.start(func(ctx context.Context) {
			in, err := o.stream.inspect(ctx, a.Checkpoint, a.Highest)
			o.answer(ctx, func(now time.Time) { o.part.Inspected(now, a.Turn, in, err) })
		})
	case DoOpen:
		o.start(func(ctx context.Context) {
			p, err := o.stream.open(ctx, o.consumerConfig(a.Claim, a.Start))
			o.answer(ctx, func(now time.Time) {
				if a.Turn == o.part.Turn() {
					o.pull = p
				}
				o.part.Opened(now, a.Turn, err)
			})
		})
	case DoConfirm:
		o.start(func(ctx context.Context) {
			call, cancel := context.WithTimeout(ctx, o.cfg.FlushTimeout)
			defer cancel()
			f, err := o.store.Fence(call, o.index)
			o.answer(ctx, func(now time.Time) { o.part.Confirmed(now, a.Turn, f, err) })
		})
	case DoSweep:
		o.start(func(ctx context.Context) { o.sweep(ctx, a.Claim) })
	case DoFetch:
		o.fetch(a)
	case DoHalt:
		if o.pull != nil {
			o.pull.halt()
		}
	case DoLook:
		pull := o.pull
		o.start(func(ctx context.Context) {
			l, err := o.stream.look(ctx, pull, a)
			o.answer(ctx, func(now time.Time) { o.part.Looked(now, a.Turn, l, err) })
		})
	case DoRenew:
		o.start(func(ctx context.Context) { o.renew(ctx, a) })
		o.measure()
	case DoRead:
		o.start(func(ctx context.Context) {
			rows, err := o.retrying.Rows(ctx, o.index, a.Keys)
			o.answer(ctx, func(now time.Time) { o.part.RowsRead(now, a.Turn, rows, err) })
		})
	case DoLetters:
		o.start(func(ctx context.Context) {
			if o.publishLetters(ctx, a.Letters) {
				o.answer(ctx, func(now time.Time) { o.part.Lettered(now, a.Turn, a.Batch) })
			}
		})
	case DoFlush:
		o.start(func(ctx context.Context) { o.flush(ctx, a) })
	case DoAck:
		pull := o.pull
		o.start(func(ctx context.Context) {
			err := pull.ack(ctx, a.Seq)
			if err != nil {
				o.log.Debug("acknowledgement failed, will be repeated", "seq", a.Seq, "err", err)
			}
			o.answer(ctx, func(now time.Time) { o.part.Acked(now, a.Turn, a.Seq, err) })
		})
	case DoRelease:
		// Not of the turn, which ends now.
		o.wg.Go(func() {
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.cfg.FlushTimeout)
			defer cancel()
			if err := o.store.Release(call, a.Claim); err != nil {
				o.log.Warn("lease not given back, it will run out", "err", err)
			}
			o.answer(ctx, func(now time.Time) { o.part.Released(now, a.Turn) })
		})
	case DoDrop:
		o.endTurn()
		o.turn, o.endTurn = context.WithCancel(ctx)
		o.pull, o.fetching = nil, 0
		o.metrics.doubt(a.Reason)
		if a.Reason != "" {
			o.log.Warn("claiming the partition again", "reason", string(a.Reason), "detail", a.Detail)
		}
	case DoReport:
		o.log.Error(a.Err.Error())
		o.status.report(o.index, a.Err)
	}
}

// assign tells the partition whether it is this member's to own. ended is when the
// lease of another member ended; zero: it did not.
func (o *owner) assign(now time.Time, own bool, ended time.Time) {
	o.ended = ended
	if own {
		o.log.Debug("partition is to be claimed")
	} else {
		o.log.Info("partition is another member's to own: handing it over")
	}
	o.part.Assign(now, own)
}

func (o *owner) claim(ctx context.Context, a DoClaim) {
	call, cancel := context.WithTimeout(ctx, o.cfg.FlushTimeout)
	defer cancel()
	sent := time.Now()
	c, err := o.store.Claim(call, lobwriter.ClaimRequest{
		Partition: o.index, MemberID: o.cfg.Member.ID, ClaimID: NewID(), Lease: o.cfg.Lease,
	})
	bound := *o.bound.Load()
	if err == nil && c.Fence.Life != bound.Life {
		bound, err = o.store.Bind(call, bound.Stream)
	}
	if ctx.Err() != nil {
		return // what the end of the turn has canceled says nothing
	}
	o.status.database(err)
	switch kind := lobwriter.KindOf(err); {
	case err == nil:
		o.waited.Store(false)
		o.log.Info("partition claimed", "epoch", c.Fence.Epoch, "checkpoint", c.Fence.Checkpoint.Seq)
	case kind == lobwriter.Held:
		o.gauges.elsewhere()
		if !o.waited.Swap(true) {
			o.log.Info("waiting for the lease of another member", "err", err)
		}
	default:
		o.log.Warn("partition not claimed, will try again", "kind", kind.String(), "err", err)
	}
	o.answer(ctx, func(now time.Time) {
		if err == nil {
			o.metrics.claimed(now, o.ended)
			o.ended = time.Time{}
			o.bound.Store(&bound)
			o.part.Rebound(bound)
		}
		o.part.Claimed(now, a.Turn, sent, c, err)
	})
}

func (o *owner) renew(ctx context.Context, a DoRenew) {
	// One that hangs leaves time for others before the lease runs out.
	call, cancel := context.WithTimeout(ctx, o.cfg.Renew)
	defer cancel()
	sent := time.Now()
	f, err := o.store.Renew(call, a.Claim, o.cfg.Lease)
	if ctx.Err() != nil {
		return // what the end of the turn has canceled says nothing
	}
	o.status.database(err)
	if err != nil {
		o.log.Warn("lease not renewed", "err", err)
	}
	o.answer(ctx, func(now time.Time) { o.part.Renewed(now, a.Turn, sent, f, err) })
}

func (o *owner) flush(ctx context.Context, a DoFlush) {
	r, err := o.retrying.Flush(ctx, a.Flush)
	answered := time.Now()
	if err == nil {
		o.flushed.Store(true)
		o.metrics.flushed(r)
		o.status.database(nil)
		o.status.report(o.index, nil)
	}
	o.answer(ctx, func(now time.Time) {
		if fl := o.part.flight; err == nil && fl != nil && fl.flush == a.Flush {
			o.metrics.committed(answered, fl.works, r)
		}
		o.part.Flushed(now, a.Turn, r, err)
	})
}

// fetchBytes is how much one fetch asks for at most: enough for a flush of any
// store. A fetch never asks for more than is guaranteed to its partition: while
// it waits for messages it would keep from others what it may never use.
const fetchBytes = 4 << 20

func (o *owner) fetch(a DoFetch) {
	pull := o.pull
	bytes := min(a.Bytes, max(fetchBytes, o.maxMessage), o.budget.each)
	o.fetching = bytes
	pull.begin()
	o.start(func(ctx context.Context) {
		quiet, err := pull.fetch(ctx, bytes, o.cfg.fetchWait(), func(batch []Received) {
			o.metrics.received(batch)
			o.answer(ctx, func(now time.Time) { o.part.Received(now, a.Turn, batch) })
		})
		o.answer(ctx, func(now time.Time) {
			if a.Turn == o.part.Turn() {
				o.fetching = 0
			}
			o.part.Fetched(now, a.Turn, quiet, err)
		})
	})
}

// sweep deletes every other consumer of the partition.
func (o *owner) sweep(ctx context.Context, c lobwriter.Claim) {
	err := o.stream.sweep(ctx, o.consumerPrefix(), o.consumerName(c), func(ctx context.Context) error {
		call, cancel := context.WithTimeout(ctx, o.cfg.FlushTimeout)
		defer cancel()
		f, err := o.store.Fence(call, o.index)
		if err == nil && (f.Epoch != c.Fence.Epoch || f.ClaimID != c.Fence.ClaimID) {
			err = &lobwriter.FencedError{Stored: f}
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		o.log.Warn("old consumers not deleted, the next claim will", "err", err)
	}
}

func (o *owner) consumerConfig(c lobwriter.Claim, start uint64) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       o.consumerName(c),
		Description:   "lobsink " + o.cfg.Member.Name,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:   start,
		AckPolicy:     jetstream.AckAllPolicy,
		AckWait:       ackWait,
		MaxDeliver:    -1,
		MaxAckPending: -1,
		// What is left of a consumer after a restart of the server is never used:
		// that is doubt. Writing it down, with up to 100,000 pending messages, took
		// a quarter of the server's processor time.
		MemoryStorage: true,
		FilterSubject: o.layout.Filter(o.index),
	}
}

// ackWait is so long that the server never redelivers by itself: recovery is a
// new claim, never a redelivery.
const ackWait = 168 * time.Hour

// observe publishes what the partition holds.
func (o *owner) observe() {
	if owned := o.part.Owning(); owned != o.owned {
		o.owned = owned
		o.status.partition(o.index, owned)
	}
	o.gauges.holds(o.part)
	o.status.holds(o.part.holding(time.Now()))
}
