// Package embednats runs a nats-server with JetStream inside the process.
package embednats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// DefaultMaxPayload is the largest message, in bytes: the largest that
// nats-server takes without a warning, and the default of max_fragment_bytes.
const DefaultMaxPayload = 8 << 20

// defaultPort is the port of NATS.
const defaultPort = 4222

// Options are the settings of a server.
type Options struct {
	// Dir is the folder of the streams; it is made if it is not there. One
	// server at a time uses it.
	Dir string
	// Listen is the address to listen on: HOST:PORT or nats://HOST:PORT, port
	// 0 for any free one. "": none, and only this process connects.
	Listen string
	// SyncAlways has every message on disk before its publisher is answered.
	// Without it the server writes back every two minutes, and a power failure
	// loses acknowledged messages.
	SyncAlways bool
	// MaxPayload is the largest message in bytes; 0 is DefaultMaxPayload.
	MaxPayload int32
	// MaxStore is the most bytes of all streams together; 0: nearly all that
	// the disk has. Above it publishers are refused.
	MaxStore int64
	// Log takes the server's warnings and errors, and its notices as debug
	// messages. It may be nil.
	Log *slog.Logger
}

// Server is a running server. When it cannot write its streams it starts again as
// soon as the disk takes data; meanwhile Err says so.
type Server struct {
	dir  string
	opts *server.Options // with the real port
	max  int64           // Options.MaxStore
	log  *slog.Logger
	lock *os.File

	stop context.CancelFunc
	done chan struct{} // closed when keep has returned

	mu      sync.Mutex
	srv     *server.Server
	writing error // why nothing is written; nil: it is
}

// Start starts a server and returns when it takes connections, which for
// millions of stored messages takes seconds. Its errors say what to do.
func Start(ctx context.Context, o Options) (*Server, error) {
	opts := &server.Options{
		ServerName: "lobsink",
		JetStream:  true,
		StoreDir:   o.Dir,
		SyncAlways: o.SyncAlways,
		MaxPayload: DefaultMaxPayload,
		DontListen: o.Listen == "",
		NoSigs:     true,
		// Nothing of ours is kept in memory but short-lived consumers.
		JetStreamMaxMemory: 256 << 20,
		JetStreamMaxStore:  o.MaxStore,
	}
	if o.MaxPayload > 0 {
		opts.MaxPayload = o.MaxPayload
	}
	if o.Listen != "" {
		var err error
		if opts.Host, opts.Port, err = parseAddress(o.Listen); err != nil {
			return nil, err
		}
		if err := free(opts.Host, opts.Port); err != nil {
			return nil, fmt.Errorf("embedded NATS server: cannot listen on %s: %w; stop what listens there or choose another address, or if it is a NATS server, use it in place of the embedded one", o.Listen, err)
		}
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT
		}
	}
	lock, err := claim(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: filepath.Clean(o.Dir), opts: opts, max: o.MaxStore, log: o.Log, lock: lock, done: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	failed, err := s.launch(ctx)
	if err != nil {
		unlock(lock)
		return nil, err
	}
	if a, ok := s.srv.Addr().(*net.TCPAddr); ok {
		opts.Port = a.Port
	}
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	go func() {
		defer close(s.done)
		s.keep(keeping, failed)
	}()
	return s, nil
}

// pollReady is how often a starting server is asked whether it is ready.
const pollReady = 5 * time.Millisecond

// launch starts a server. The channel gets the first error after which that
// server stores nothing more.
func (s *Server) launch(ctx context.Context) (failed <-chan error, err error) {
	opts := s.opts.Clone()
	if opts.JetStreamMaxStore = s.max; s.max <= 0 {
		opts.JetStreamMaxStore = storeLimit(s.dir)
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	l := newLogger(s.log)
	srv.SetLoggerV2(l, false, false, false)
	// Start opens every stream before it returns, and must not be shut down
	// meanwhile: what it opens after that would stay open.
	srv.Start()
	ready := false
	for l.fatal() == "" && ctx.Err() == nil && !ready {
		ready = srv.ReadyForConnections(pollReady)
	}
	switch {
	case l.fatal() != "":
		// The server only logs what it cannot start with.
		err = fmt.Errorf("embedded NATS server: %s", l.fatal())
	case !ready:
		err = fmt.Errorf("embedded NATS server: stopped while starting: %w", context.Cause(ctx))
	case !srv.JetStreamEnabled():
		err = fmt.Errorf("embedded NATS server: cannot open its streams in %s; its log says why", s.dir)
	default:
		s.mu.Lock()
		s.srv = srv
		s.mu.Unlock()
		return l.failed, nil
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil, err
}

func parseAddress(listen string) (host string, port int, err error) {
	bad := fmt.Errorf("embedded NATS server: %q is not an address to listen on; write HOST:PORT, such as 127.0.0.1:4222", listen)
	if !strings.Contains(listen, "://") {
		listen = "nats://" + listen
	}
	u, err := url.Parse(listen)
	if err != nil || u.Scheme != "nats" || u.Hostname() == "" || u.User != nil || u.Path != "" && u.Path != "/" {
		return "", 0, bad
	}
	if u.Port() == "" {
		return u.Hostname(), defaultPort, nil
	}
	port, err = strconv.Atoi(u.Port())
	if err != nil || port < 0 || port > 65535 {
		return "", 0, bad
	}
	return u.Hostname(), port, nil
}

// free tries to listen: it gives the system's own reason, and gives it before
// the server has opened a single stream.
func free(host string, port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}

// unknownFree is taken for the free space where the system does not tell.
const unknownFree = 1 << 40

// lockName is the file in the folder whose lock says that a server uses it.
const lockName = "lobsink.lock"

var errLocked = errors.New("locked")

// claim makes the folder and locks it. The system releases the lock with the
// process, however it ends; nats-server itself has none, and two of them ruin
// each other's files.
func claim(dir string) (*os.File, error) {
	dir = filepath.Clean(dir)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("embedded NATS server: cannot make the folder of its streams: %w; choose another folder, or let this user write there", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: cannot write to the folder of its streams: %w; choose another folder, or let this user write there", err)
	}
	if err := tryLock(f); err != nil {
		_ = f.Close()
		if errors.Is(err, errLocked) {
			return nil, fmt.Errorf("embedded NATS server: the folder %s is in use by another process; stop that one, or choose another folder", dir)
		}
		return nil, fmt.Errorf("embedded NATS server: cannot lock the folder %s: %w; choose one on a local disk", dir, err)
	}
	return f, nil
}

// unlock releases the folder. The file stays: removing it would let a third
// server lock a new file while a second one holds the old.
func unlock(f *os.File) { _ = f.Close() }

// storeLimit is what all streams together may take: what they take already and
// most of what is free. The server's own default, three quarters of the free
// space, shrinks with every start of a server that stores much. Short of a full
// disk the server refuses publishers with a reason; a full disk makes it close
// JetStream altogether.
func storeLimit(dir string) int64 {
	var used int64
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			used += info.Size()
		}
		return nil
	})
	return used + diskFree(dir)/10*9
}

// ClientURL returns the address for other processes; "" if there is none.
func (s *Server) ClientURL() string {
	if s.opts.DontListen {
		return ""
	}
	return s.current().ClientURL()
}

// Connect opens a connection within the process, without a port. It is lost, and
// made again by its own rules, when the server has to start again.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("", append(opts, nats.InProcessServer(s))...)
}

// InProcessConn implements nats.InProcessConnProvider.
func (s *Server) InProcessConn() (net.Conn, error) { return s.current().InProcessConn() }

func (s *Server) current() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.srv
}

// Shutdown stops the server, waits until it has written everything, and
// releases the folder. A second call does nothing.
func (s *Server) Shutdown() {
	s.stop()
	<-s.done
	srv := s.current()
	srv.Shutdown()
	srv.WaitForShutdown()
	unlock(s.lock)
}
