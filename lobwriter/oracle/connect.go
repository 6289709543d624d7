package oracle

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/lobsink/lobsink/lobwriter"
)

const (
	// firstRetry and lastRetry are the waits between logons at a service that does
	// not answer, before a jitter of half of them.
	firstRetry, lastRetry = 100 * time.Millisecond, 5 * time.Second
	// maxLife is how long a session is used. Sessions that a service was taken
	// from stay where they are; this brings them back to it.
	maxLife = 10 * time.Minute
	// maxIdle ends sessions that nobody has used, before a firewall or IDLE_TIME
	// does it silently.
	maxIdle = time.Minute
	// setupTimeout is for what is done with a new session before it is used.
	setupTimeout = 15 * time.Second
)

// sessionSettings are those of each session. FORCE_WAIT: a commit is confirmed
// when it is durable, whatever the instance says (COMMIT_WAIT in the Database
// Reference). BINARY: keys are compared byte by byte, whatever a logon trigger or
// the environment says.
const sessionSettings = `ALTER SESSION SET COMMIT_WAIT=FORCE_WAIT NLS_COMP=BINARY NLS_SORT=BINARY`

// connector opens the sessions of one service.
type connector struct {
	o       Options
	service Service
	metrics *metrics
	// dialing has room for one: whoever waits for it can be told off, and a wrong
	// password is not tried by all at once.
	dialing chan struct{}
	pending sync.WaitGroup
	// bare has a session used without tables, which may not be there yet.
	bare bool

	// home is what all services must lead to.
	home *home

	mu sync.Mutex
	// failing is since when the service has not answered, by the error last; zero:
	// it does. It is not tried again before retry.
	failing, retry time.Time
	last           error
	wait           *backoff.ExponentialBackOff
	// seen is the environment that was logged last.
	seen environment
}

var _ driver.Connector = (*connector)(nil)

func newConnector(o Options, s Service, m *metrics, h *home) *connector {
	return &connector{
		o: o, service: s, metrics: m, home: h, dialing: make(chan struct{}, 1),
		wait: backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstRetry), backoff.WithMaxInterval(lastRetry), backoff.WithMaxElapsedTime(0)),
	}
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return nil }

// session is a connection that is ready for calls.
type session struct {
	driverConn
	instance string
	closed   func()
}

// Close implements driver.Conn.
func (s *session) Close() error {
	s.closed()
	return s.driverConn.Close()
}

// Connect implements driver.Connector. The driver cannot end a logon, so that a
// server that does not answer would hold its caller: who waits, waits here.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	select {
	case c.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("another logon does not end: %w", ctx.Err())
	}
	type result struct {
		s   *session
		err error
	}
	done := make(chan result)
	abandoned := make(chan struct{})
	c.pending.Go(func() {
		s, err := c.logOn(ctx)
		<-c.dialing
		select {
		case done <- result{s, err}:
		case <-abandoned:
			if err == nil {
				_ = s.Close() // nobody wants it any more
			}
		}
	})
	select {
	case r := <-done:
		if r.err != nil {
			return nil, r.err
		}
		return r.s, nil
	case <-ctx.Done():
		close(abandoned)
		return nil, fmt.Errorf("the logon does not end: %w", ctx.Err())
	}
}

// logOn opens a session at the service, or at the one that takes over.
func (c *connector) logOn(ctx context.Context) (*session, error) {
	s, err := c.logOnHere(ctx)
	c.mu.Lock()
	takeover := err != nil && c.service.Takeover != "" && !c.failing.IsZero() && time.Since(c.failing) >= c.o.TakeoverAfter
	c.mu.Unlock()
	if takeover {
		c.o.Log.Warn("the service does not answer, another one takes over", "service", c.service.Connect, "takeover", c.service.Takeover, "err", err)
		return c.logOnTo(ctx, c.service.Takeover)
	}
	return s, err
}

// logOnHere opens a session at the service. One that does not answer is tried with
// growing waits between, in which nobody is kept waiting.
func (c *connector) logOnHere(ctx context.Context) (*session, error) {
	c.mu.Lock()
	if time.Now().Before(c.retry) {
		defer c.mu.Unlock()
		return nil, c.last
	}
	c.mu.Unlock()
	s, err := c.logOnTo(ctx, c.service.Connect)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || lobwriter.KindOf(err) != lobwriter.Transient {
		c.failing, c.retry, c.last = time.Time{}, time.Time{}, nil
		c.wait.Reset()
		return s, err
	}
	if c.failing.IsZero() {
		c.failing = time.Now()
	}
	c.last, c.retry = err, time.Now().Add(c.wait.NextBackOff())
	return nil, err
}

// answers reports whether the service did when it was tried last.
func (c *connector) answers() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failing.IsZero()
}

func (c *connector) logOnTo(ctx context.Context, connect string) (*session, error) {
	password := ""
	if c.o.Password != nil && c.o.User != "" {
		var err error
		if password, err = c.o.Password(ctx); err != nil {
			return nil, &lobwriter.Error{Kind: lobwriter.Credentials, Op: "connect", Err: fmt.Errorf("the password cannot be read: %w", err)}
		}
	}
	if err := c.o.Gate.enter(time.Now()); err != nil {
		return nil, err
	}
	dc, err := dial(c.o.User, password, connect, c.o.ClientDir)
	err = classify("connect", err)
	c.o.Gate.leave(time.Now(), err)
	if err != nil {
		return nil, err
	}
	env, err := c.prepare(ctx, dc)
	if err != nil {
		_ = dc.Close() // the first error counts
		return nil, classify("connect", err)
	}
	return c.ready(dc, env), nil
}

// ready counts a session in, and later out.
func (c *connector) ready(dc driverConn, env environment) *session {
	c.mu.Lock()
	news := env != c.seen && !c.bare
	c.seen = env
	c.mu.Unlock()
	if news {
		c.o.Log.Info("connected to the database", slog.String("database", env.database), slog.String("container", env.container),
			slog.String("instance", env.instance), slog.String("service", env.service))
		if env.service == "SYS$USERS" {
			c.o.Log.Warn("the connection names no service: instances cannot be addressed, nor work moved", "instance", env.instance)
		}
	}
	c.metrics.sessions(env.instance, 1)
	var once sync.Once
	return &session{driverConn: dc, instance: env.instance, closed: func() {
		once.Do(func() { c.metrics.sessions(env.instance, -1) })
	}}
}

// environment is where a session is.
type environment struct {
	schema                                                     int64
	role, characterSet, database, container, instance, service string
}

// prepare makes the settings of a session and checks where it is.
func (c *connector) prepare(ctx context.Context, dc driverConn) (env environment, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), setupTimeout)
	defer cancel()
	ctx = tagged(ctx, "connect", c.o.clientInfo())
	if err := execute(ctx, dc, sessionSettings); err != nil || c.bare {
		return env, err
	}
	var version number
	if err := execute(ctx, dc, c.o.in(environmentBlock),
		sql.Named("p_schema_version", sql.Out{Dest: &version}), sql.Named("p_role", sql.Out{Dest: &env.role}),
		sql.Named("p_character_set", sql.Out{Dest: &env.characterSet}), sql.Named("p_database", sql.Out{Dest: &env.database}),
		sql.Named("p_container", sql.Out{Dest: &env.container}), sql.Named("p_instance", sql.Out{Dest: &env.instance}),
		sql.Named("p_service", sql.Out{Dest: &env.service})); err != nil {
		return env, err
	}
	env.schema = version.Int64
	if err := env.check(); err != nil {
		return env, err
	}
	var b bindingOut
	var args []sql.NamedArg
	for _, a := range b.binds() {
		args = append(args, a.(sql.NamedArg))
	}
	if err := execute(ctx, dc, c.o.in(bindingBlock), args...); err != nil {
		return env, err
	}
	return env, c.home.check(b.databaseID, env)
}

// home is the set of tables that all sessions of a store must lead to, whatever
// their service.
type home struct {
	mu sync.Mutex
	id string
	at environment
}

func (h *home) check(id string, at environment) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.id == "" {
		h.id, h.at = id, at
	}
	if h.id == id && id != "" {
		return nil
	}
	return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "connect",
		Err: fmt.Errorf("service %s leads to database %s, container %s, with other tables (%s) than service %s, which leads to database %s, container %s (%s)",
			at.service, at.database, at.container, id, h.at.service, h.at.database, h.at.container, h.id),
		Hint: "correct oracle_services: all must be services of one database"}
}

// schemaVersion is the migration that this program needs: the newest one in
// deploy/oracle.
const schemaVersion = 3

func (e environment) check() error {
	switch {
	case e.characterSet != "AL32UTF8":
		return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "connect",
			Err:  fmt.Errorf("the character set of database %s is %s, which cannot hold every document", e.database, e.characterSet),
			Hint: "use a database, or a pluggable one, in AL32UTF8"}
	case e.role != "PRIMARY":
		return &lobwriter.Error{Kind: lobwriter.Transient, Op: "connect",
			Err:  fmt.Errorf("the role of database %s is %s, which takes no writes", e.database, e.role),
			Hint: "connect to a service with the role PRIMARY"}
	case e.schema < schemaVersion:
		return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "connect",
			Err: fmt.Errorf("the tables have version %d, this program needs %d", e.schema, schemaVersion), Hint: hintSchema}
	}
	return nil
}

// execute runs a statement on a connection that database/sql does not know yet.
func execute(ctx context.Context, dc driverConn, text string, args ...sql.NamedArg) (err error) {
	preparer, ok := dc.(driver.ConnPrepareContext)
	if !ok {
		return errors.ErrUnsupported
	}
	st, err := preparer.PrepareContext(ctx, text)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	runner, ok := st.(driver.StmtExecContext)
	if !ok {
		return errors.ErrUnsupported
	}
	values := make([]driver.NamedValue, len(args))
	for i, a := range args {
		values[i] = driver.NamedValue{Name: a.Name, Ordinal: i + 1, Value: a.Value}
	}
	_, err = runner.ExecContext(ctx, values)
	return err
}

// clientInfo is CLIENT_INFO of the sessions: at most 64 bytes.
func (o Options) clientInfo() string {
	info := o.Name + " " + o.Version
	return info[:lobwriter.Border([]byte(info), 64)]
}
