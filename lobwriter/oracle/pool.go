package oracle

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/lobsink/lobsink/lobwriter"
)

// leaseConnections of a service are for what must not wait for a flush.
const leaseConnections = 2

// pool is the sessions of one service.
type pool struct {
	o         Options
	connector *connector
	// documents are the sessions of what may wait for the fence row of a
	// partition, and leases those of what may not.
	documents, leases *sql.DB
	// writers limits how many sessions write LOBs at the same time.
	writers *semaphore.Weighted
}

func newPool(o Options, s Service, m *metrics, h *home) *pool {
	c := newConnector(o, s, m, h)
	open := func(most int) *sql.DB {
		db := sql.OpenDB(c)
		db.SetMaxOpenConns(most)
		db.SetMaxIdleConns(most)
		db.SetConnMaxLifetime(maxLife)
		db.SetConnMaxIdleTime(maxIdle)
		return db
	}
	return &pool{
		o: o, connector: c,
		// One more, so that a claim that waits for a fence row is in nobody's way.
		documents: open(o.Flushes + 1), leases: open(leaseConnections),
		writers: semaphore.NewWeighted(int64(o.Flushes)),
	}
}

// close ends all sessions. A logon that does not end is not waited for.
func (p *pool) close() error {
	err := errors.Join(p.documents.Close(), p.leases.Close())
	ended := make(chan struct{})
	go func() {
		p.connector.pending.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		p.o.Log.Warn("a logon does not end", "service", p.connector.service.Connect)
	}
	return err
}

// call makes one call: one round trip, committed with it. n is the longest table.
// It returns the instance that served it.
func call(ctx context.Context, o Options, db *sql.DB, op, block string, n int, binds ...any) (instance string, err error) {
	ctx, cancel := deadline(ctx, o.FlushTimeout)
	defer cancel()
	conn, err := db.Conn(ctx)
	if err != nil {
		return "", classify(op, err)
	}
	defer conn.Close() // it has nothing to say: the call is committed or it failed
	if err := conn.Raw(func(c any) error {
		instance = c.(*session).instance
		return nil
	}); err != nil {
		return "", classify(op, err)
	}
	_, err = conn.ExecContext(tagged(ctx, op, o.clientInfo()), o.in(block), append(callOptions(n), binds...)...)
	if err != nil {
		// Whatever it was, the session may be gone, in another role, or in the
		// middle of a transaction. A new one is none of it.
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return instance, classify(op, err)
}

// deadline gives a call one, which the driver needs: the one of an earlier call
// stays on the session otherwise.
func deadline(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

// roundedUp is the size of a table that is announced to the driver.
func roundedUp(n int) int {
	for _, size := range []int{64, 256, 1024, 4096, 16384} {
		if n <= size {
			return size
		}
	}
	return 65536 // the driver's own limit
}

// busy repeats a call that found a row locked, which it says instead of waiting
// for it.
func busy(ctx context.Context, op string, try func() (again bool, err error)) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		again, err := try()
		if err != nil || !again {
			return err
		}
		select {
		case <-ctx.Done():
			return &lobwriter.Error{Kind: lobwriter.Transient, Op: op, Err: errors.Join(errors.New("another call holds the row"), ctx.Err())}
		case <-time.After(wait):
		}
	}
}
