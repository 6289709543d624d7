package consumer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/lobwriter"
)

// member is what the owners of one process share.
type member struct {
	cfg        *Config
	store      lobwriter.Store // one try each
	retrying   lobwriter.Store // repeats what is unanswered
	stream     *source
	layout     Layout
	binding    lobwriter.Binding
	letters    *DeadLetters
	budget     *budget
	maxMessage int64
	metrics    *Metrics
	status     *Status
}

// Run consumes the stream until stop is closed and everything read has been
// flushed and acknowledged, or until ctx ends. It waits for NATS and for the
// database as long as it takes. It returns an error only for what an operator
// has to change: no such stream, a stream that cannot be served, a database
// that serves another one, too little memory.
//
// When it returns, everything that it started has ended.
func Run(ctx context.Context, stop <-chan struct{}, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if cfg.Status == nil {
		cfg.Status = NewStatus()
	}
	m, err := begin(ctx, stop, &cfg)
	if err != nil || m == nil {
		return err
	}
	var wg sync.WaitGroup
	owners := make([]*owner, m.layout.Partitions)
	for i := range owners {
		owners[i] = newOwner(m, i)
	}
	watching, endWatching := context.WithCancel(ctx)
	wg.Go(func() { m.watch(watching, owners) })
	wg.Go(func() { m.attend(watching) })

	var owning sync.WaitGroup
	for _, o := range owners {
		owning.Go(func() { o.run(ctx, stop) })
	}
	wg.Go(func() {
		select {
		case <-stop:
			timer := time.NewTimer(cfg.DrainTimeout)
			defer timer.Stop()
			select {
			case <-timer.C:
				cfg.Log.Warn("not everything was flushed in time; what is left is read again at the next start", "drain_timeout", cfg.DrainTimeout)
				cancel()
			case <-watching.Done():
			}
		case <-watching.Done():
		}
	})
	owning.Wait()
	m.leave(context.WithoutCancel(ctx))
	endWatching()
	wg.Wait()
	return ctx.Err()
}

// errStopped tells that stop was closed before anything was owned.
var errStopped = errors.New("stopped")

// begin waits for NATS and for the database, and finds out what to serve.
func begin(ctx context.Context, stop <-chan struct{}, cfg *Config) (*member, error) {
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
	var info *jetstream.StreamInfo
	err = patiently(ctx, stop, cfg.Log, "waiting for NATS", func(ctx context.Context) error {
		s, err := js.Stream(ctx, cfg.Stream)
		cfg.Status.nats(err == nil)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "start", Err: fmt.Errorf("stream %s does not exist", cfg.Stream), Hint: "run: lobsink setup"}
		}
		if err == nil {
			info = s.CachedInfo()
		}
		return err
	})
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
	m.retrying = lobwriter.Retry(cfg.Store, lobwriter.RetryOptions{
		AttemptTimeout: cfg.FlushTimeout,
		OnRetry: func(op string, attempt int, err error, wait time.Duration) {
			cfg.Status.database(err)
			if cfg.OnRetry != nil {
				cfg.OnRetry(op, attempt, err, wait)
			}
			cfg.Log.Warn("database: will try again", "op", op, "attempt", attempt, "kind", lobwriter.KindOf(err).String(), "code", lobwriter.CodeOf(err), "wait", wait, "err", err)
		},
	})
	err = patiently(ctx, stop, cfg.Log, "waiting for the database", func(ctx context.Context) (err error) {
		m.binding, err = cfg.Store.Bind(ctx, lobwriter.Stream{Name: cfg.Stream, Created: info.Created.UnixNano(), Partitions: layout.Partitions})
		cfg.Status.database(err)
		return err
	})
	if err != nil {
		return nil, stopped(err)
	}
	m.letters = NewDeadLetters(js, cfg.Stream)
	m.budget = newBudget(cfg.Memory, layout.Partitions)
	cfg.Status.serves(layout.Partitions)
	cfg.Log.Info("serving", "stream", cfg.Stream, "partitions", layout.Partitions, "database", m.binding.DatabaseID, "life", m.binding.Life, "ack_wait_seconds", ackWait.Seconds())
	return m, nil
}

func stopped(err error) error {
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
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
		return fatal("it has %d partitions, the configuration says %d: set partitions to %d; changing the number needs an empty stream and empty tables", l.Partitions, cfg.Partitions, l.Partitions)
	}
	m.maxMessage = maxPayload(cfg.NATS, info) + messageOverhead
	if need := 2 * int64(l.Partitions) * m.maxMessage; cfg.Memory < need {
		return fatal("memory is %d bytes, but %d partitions of messages up to %d bytes need at least %d: raise memory, or lower the stream's max_msg_size", cfg.Memory, l.Partitions, m.maxMessage, need)
	}
	return nil
}

// patiently repeats try until it succeeds, or fails with something that only an
// operator can change.
func patiently(ctx context.Context, stop <-chan struct{}, log *slog.Logger, what string, try func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		call, cancel := context.WithTimeout(ctx, requestTimeout)
		err := try(call)
		cancel()
		if err == nil {
			return nil
		}
		if k := lobwriter.KindOf(err); k == lobwriter.Fatal || k == lobwriter.Invalid {
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

// watch tells all owners about the connection and about the stream.
func (m *member) watch(ctx context.Context, owners []*owner) {
	changes := m.cfg.NATS.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
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
	lost := false
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-changes:
			if s != nats.CONNECTED && !lost {
				lost = true
				m.status.nats(false)
				m.cfg.Log.Warn("connection to NATS lost, reconnecting")
				tell(func(o *owner) func(time.Time) {
					return func(now time.Time) { o.part.Connected(now, false) }
				})
			}
		case <-check.C:
		}
		if !m.cfg.NATS.IsConnected() {
			continue
		}
		facts, _, err := m.stream.facts(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			m.status.nats(false)
			m.cfg.Log.Warn("the stream does not answer", "stream", m.cfg.Stream, "err", err)
			continue
		}
		m.status.nats(true)
		if lost {
			lost = false
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

// attend keeps the member row alive.
func (m *member) attend(ctx context.Context) {
	every := time.NewTicker(m.cfg.Renew)
	defer every.Stop()
	for {
		call, cancel := context.WithTimeout(ctx, m.cfg.Lease)
		_, err := m.store.Attend(call, m.cfg.Member, m.cfg.Lease)
		cancel()
		if err != nil && ctx.Err() == nil {
			m.cfg.Log.Debug("member row not written", "err", err)
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

func (m *member) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := m.store.Leave(ctx, m.cfg.Member.ID); err != nil {
		m.cfg.Log.Debug("member row not removed, it will expire", "err", err)
	}
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
