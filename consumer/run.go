package consumer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/lobwriter"
)

// member is what the owners of one process share.
type member struct {
	cfg        *Config
	store      lobwriter.Store // one try each
	stream     *source
	layout     Layout
	binding    lobwriter.Binding
	letters    *DeadLetters
	budget     *budget
	maxMessage int64
	metrics    *Metrics
	status     *Status
	// silent: the stream did not answer when it was last asked, whatever the
	// connection says.
	silent atomic.Bool
}

// ErrNotDrained: a soft stop took longer than Config.DrainTimeout.
var ErrNotDrained = errors.New("not everything was flushed in time; what is left is read again at the next start")

// errStopped is why owners stop when the caller asks them to.
var errStopped = errors.New("stopped")

// Run consumes the stream until stop is closed and everything read has been
// flushed and acknowledged, or until ctx ends. It waits for NATS and for the
// database as long as it takes. It returns an error for what an operator has to
// change (no such stream, a stream that cannot be served, a database that serves
// another one, too little memory), nats.ErrConnectionClosed when the connection
// is closed for good, ErrNotDrained, and the cause of ctx's end.
//
// When it returns, everything that it started has ended. After the end of ctx
// that takes as long as one attempt of the database may, for its outcome counts.
func Run(ctx context.Context, stop <-chan struct{}, cfg Config) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if cfg.Status == nil {
		cfg.Status = NewStatus()
	}
	m, err := begin(ctx, stop, &cfg)
	if err != nil || m == nil {
		return err
	}
	owners := make([]*owner, m.layout.Partitions)
	for i := range owners {
		owners[i] = newOwner(m, i)
	}
	cfg.Control.serve(owners)
	defer cfg.Control.serve(nil)
	// The end of soft asks the owners to stop, the end of ctx makes them.
	soft, endSoft := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endSoft(nil)
	watching, endWatching := context.WithCancel(ctx)
	defer endWatching()
	var wg, owning sync.WaitGroup
	wg.Go(func() { m.watch(watching, owners, endSoft) })
	wg.Go(func() { m.share(watching, soft.Done(), owners) })
	wg.Go(func() {
		select {
		case <-stop:
			endSoft(errStopped)
		case <-soft.Done():
		case <-watching.Done():
			return
		}
		select {
		case <-time.After(cfg.DrainTimeout):
			end(ErrNotDrained)
		case <-watching.Done():
		}
	})
	for _, o := range owners {
		owning.Go(func() { o.run(ctx, soft.Done()) })
	}
	owning.Wait()
	endWatching()
	wg.Wait()
	// Last: share would come back. What no owner has given back is free then.
	m.leave(context.WithoutCancel(ctx))
	return errors.Join(stopped(context.Cause(soft)), context.Cause(ctx))
}

// stopped returns nil in place of errStopped.
func stopped(err error) error {
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// begin waits for NATS and for the database, and finds out what to serve.
func begin(ctx context.Context, stop <-chan struct{}, cfg *Config) (*member, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	var js jetstream.JetStream
	var err error
	api := jetstream.DefaultAPIPrefix
	if cfg.Domain != "" {
		api = "$JS." + cfg.Domain + ".API."
		js, err = jetstream.NewWithDomain(cfg.NATS, cfg.Domain)
	} else {
		js, err = jetstream.New(cfg.NATS)
	}
	if err != nil {
		return nil, err
	}
	m := &member{cfg: cfg, store: cfg.Store, metrics: cfg.Metrics, status: cfg.Status}
	info, err := findStream(ctx, stop, cfg, js)
	if err != nil {
		return nil, stopped(err)
	}
	layout, warnings, err := DescribeStream(info)
	if err != nil {
		return nil, &lobwriter.Error{Kind: lobwriter.Fatal, Op: "stream " + cfg.Stream, Err: err}
	}
	for _, w := range warnings {
		cfg.Log.Warn(w, "stream", cfg.Stream)
	}
	if err := m.fits(layout, info); err != nil {
		return nil, err
	}
	m.layout = layout
	m.stream = &source{js: js, conn: cfg.NATS, api: api, name: cfg.Stream, layout: layout, maxFragment: cfg.MaxFragment}
	err = patiently(ctx, stop, cfg.Log, "waiting for the database", cfg.FlushTimeout, func(ctx context.Context) (err error) {
		m.binding, err = cfg.Store.Bind(ctx, lobwriter.Stream{Name: cfg.Stream, Created: info.Created.UnixNano(), Partitions: layout.Partitions})
		cfg.Status.database(err)
		return err
	})
	if err != nil {
		return nil, stopped(err)
	}
	m.letters = NewDeadLetters(js, cfg.Stream)
	m.budget = newBudget(cfg.Memory, layout.Partitions)
	m.metrics.budgeted(cfg.Memory)
	m.metrics.streamed(info)
	cfg.Status.serves(layout.Partitions)
	cfg.Log.Info("serving", "stream", cfg.Stream, "partitions", layout.Partitions, "database", m.binding.DatabaseID, "life", m.binding.Life, "ack_wait_seconds", ackWait.Seconds())
	return m, nil
}

// domainSilence is for how long a connected server may say nothing in a domain
// that is configured, before the domain is taken for a wrong one. With one more
// request it makes less than 10 s.
const domainSilence = 6 * time.Second

// findStream waits until NATS says what the stream is, and that there is one for
// its dead letters.
func findStream(ctx context.Context, stop <-chan struct{}, cfg *Config, js jetstream.JetStream) (info *jetstream.StreamInfo, err error) {
	fatal := func(hint, format string, a ...any) error {
		return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "start", Err: fmt.Errorf(format, a...), Hint: hint}
	}
	in := ""
	if cfg.Domain != "" {
		in = fmt.Sprintf(" in the JetStream domain %q", cfg.Domain)
	}
	var silent time.Time // since when nobody answers in the domain
	err = patiently(ctx, stop, cfg.Log, "waiting for NATS", requestTimeout, func(ctx context.Context) error {
		asked := time.Now()
		s, err := js.Stream(ctx, cfg.Stream)
		cfg.Status.nats(err)
		if errors.Is(err, nats.ErrConnectionClosed) {
			return closed(cfg.NATS)
		}
		switch nobody := err != nil && unanswered(err) && cfg.NATS.IsConnected(); {
		case !nobody || cfg.Domain == "":
			silent = time.Time{}
		case silent.IsZero():
			silent = asked
		case time.Since(silent) >= domainSilence:
			return fatal("correct the domain, or connect the leaf node to it", "nobody answers for stream %s%s: %w", cfg.Stream, in, err)
		}
		if err == nil {
			info = s.CachedInfo()
			// Not at the first dead letter, when it would hold a partition up.
			_, err = js.Stream(ctx, DeadStream(cfg.Stream))
		}
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound) && info == nil:
			return fatal("run: lobsink setup", "stream %s does not exist%s", cfg.Stream, in)
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return fatal("run: lobsink setup", "stream %s does not exist%s", DeadStream(cfg.Stream), in)
		case errors.Is(err, nats.ErrNoResponders) && cfg.Domain == "":
			return fmt.Errorf("no JetStream answers; behind a leaf node it needs a domain: %w", err)
		}
		return err
	})
	return info, err
}

// messageOverhead is what a message takes beside its payload limit: headers
// beyond it, subject, and our own bookkeeping.
const messageOverhead = 64 << 10

// fits checks the layout against the configuration.
func (m *member) fits(l Layout, info *jetstream.StreamInfo) error {
	cfg := m.cfg
	fatal := func(format string, a ...any) error {
		return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "stream " + cfg.Stream, Err: fmt.Errorf(format, a...)}
	}
	if l.Root != cfg.Root {
		return fatal("its subjects begin with %q, the configuration says %q: set root to %q", l.Root, cfg.Root, l.Root)
	}
	if cfg.Partitions != 0 && l.Partitions != cfg.Partitions {
		return fatal("it has %d partitions, the configuration says %d: set partitions to %d, or change the number with lobsink checkpoint partitions", l.Partitions, cfg.Partitions, l.Partitions)
	}
	m.maxMessage = maxPayload(cfg.NATS, info) + messageOverhead
	if need := 2 * int64(l.Partitions) * m.maxMessage; cfg.Memory < need {
		return fatal("memory is %d bytes, but %d partitions of messages up to %d bytes need at least %d: raise memory, or lower the stream's max_msg_size", cfg.Memory, l.Partitions, m.maxMessage, need)
	}
	return nil
}

// patiently repeats try, each time with a deadline, until it succeeds, or fails
// with something that waiting does not change.
func patiently(ctx context.Context, stop <-chan struct{}, log *slog.Logger, what string, timeout time.Duration, try func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		call, cancel := context.WithTimeout(ctx, timeout)
		err := try(call)
		cancel()
		if err == nil {
			return nil
		}
		switch lobwriter.KindOf(err) {
		case lobwriter.Fatal, lobwriter.Invalid, lobwriter.Credentials:
			return err
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		log.Warn(what, "attempt", attempt, "err", err)
		select {
		case <-time.After(time.Second):
		case <-stop:
			return errStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch tells all owners about the connection and about the stream. It ends
// soft when the connection is closed for good.
func (m *member) watch(ctx context.Context, owners []*owner, endSoft context.CancelCauseFunc) {
	changes := m.cfg.NATS.StatusChanged()
	defer m.cfg.NATS.RemoveStatusListener(changes)
	tell := func(event func(o *owner) func(time.Time)) {
		for _, o := range owners {
			select {
			case o.events <- event(o):
			case <-o.done:
			case <-ctx.Done():
			}
		}
	}
	check := time.NewTicker(m.cfg.Renew)
	defer check.Stop()
	known, lost := m.stream.connection(), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-check.C:
		}
		// nats.go drops changes when there are many, and what came is old: they
		// only say when to look.
		if m.cfg.NATS.IsClosed() {
			endSoft(closed(m.cfg.NATS))
			return
		}
		connected := m.cfg.NATS.IsConnected()
		if !lost && (!connected || m.stream.connection() != known) {
			lost = true
			m.status.nats(errDisconnected)
			m.cfg.Log.Warn("connection to NATS lost, reconnecting")
			tell(func(o *owner) func(time.Time) {
				return func(now time.Time) { o.part.Connected(now, false) }
			})
		}
		if !connected {
			continue
		}
		facts, stream, err := m.stream.facts(ctx)
		if ctx.Err() != nil {
			return
		}
		m.silent.Store(err != nil)
		if err != nil {
			m.status.nats(fmt.Errorf("stream %s: %w", m.cfg.Stream, err))
			m.cfg.Log.Warn("the stream does not answer", "stream", m.cfg.Stream, "err", err)
			continue
		}
		m.status.nats(nil)
		m.metrics.streamed(stream.CachedInfo())
		if lost {
			known, lost = facts.Connection, false
			m.cfg.Log.Info("connection to NATS is back")
			tell(func(o *owner) func(time.Time) {
				return func(now time.Time) { o.part.Reconnected(now, facts) }
			})
			continue
		}
		tell(func(o *owner) func(time.Time) {
			return func(now time.Time) { o.part.StreamChecked(now, facts) }
		})
	}
}

// closed tells that the connection does not come back, and why: nats.go gives up
// when its credentials are refused twice.
func closed(nc *nats.Conn) error {
	err := nc.LastError()
	if err == nil {
		return fmt.Errorf("%w for good", nats.ErrConnectionClosed)
	}
	return fmt.Errorf("%w for good (last error: %w): correct what that says and start again", nats.ErrConnectionClosed, err)
}

// consumerPrefix begins the names of all consumers of a partition.
func (o *owner) consumerPrefix() string {
	return fmt.Sprintf("lobsink-%s-%d-", o.binding.DatabaseID, o.index)
}

// consumerName is the name of a claim's own consumer.
func (o *owner) consumerName(c lobwriter.Claim) string {
	id := c.Fence.ClaimID
	return fmt.Sprintf("%s%d-%s", o.consumerPrefix(), c.Fence.Epoch, id[:min(len(id), 8)])
}

// NewID draws a random member or claim ID: 16 hex digits.
func NewID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand
	return hex.EncodeToString(b[:])
}
