// Package embednats runs a nats-server with JetStream inside the process.
package embednats

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// MaxPayload is the largest message of the embedded server, in bytes: the
// default of max_fragment_bytes.
const MaxPayload = 8 << 20

// Options are the settings of a server.
type Options struct {
	// Dir is the folder of its streams. It is made if it is not there.
	Dir string
	// Listen is the address to listen on, such as nats://127.0.0.1:4222;
	// "": none, only this process connects.
	Listen string
	// SyncAlways has every message on disk before its publisher is answered.
	// Without it the server writes back every two minutes.
	SyncAlways bool
	// MaxStore is the most bytes of all streams together; 0: what the disk
	// has.
	MaxStore int64
	Log      *slog.Logger
}

// Server is a running server.
type Server struct {
	srv *server.Server
}

// readyWithin is how long a server may take to start: it reads its streams'
// indexes, which takes seconds for millions of messages.
const readyWithin = time.Minute

// Start starts a server.
func Start(o Options) (*Server, error) {
	opts := &server.Options{
		ServerName: "lobsink", JetStream: true, StoreDir: o.Dir, SyncAlways: o.SyncAlways,
		DontListen: o.Listen == "", NoSigs: true, MaxPayload: MaxPayload, JetStreamMaxStore: o.MaxStore,
	}
	if o.Listen != "" {
		host, port, err := hostPort(o.Listen)
		if err != nil {
			return nil, err
		}
		// The server itself only logs that a port is taken.
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("the embedded NATS server cannot listen on %s: %w; stop what listens there, or use it with --nats nats://%s:%d", o.Listen, err, host, port)
		}
		l.Close()
		opts.Host, opts.Port = host, port
	}
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("the embedded NATS server needs a folder for its streams: %w", err)
	}
	probe, err := os.CreateTemp(o.Dir, ".probe")
	if err != nil {
		return nil, fmt.Errorf("the embedded NATS server cannot write to %s: %w", filepath.Clean(o.Dir), err)
	}
	probe.Close()
	os.Remove(probe.Name())

	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	if o.Log != nil {
		srv.SetLoggerV2(&logger{o.Log}, false, false, false)
	}
	srv.Start()
	if !srv.ReadyForConnections(readyWithin) {
		srv.Shutdown()
		return nil, errors.New("the embedded NATS server did not become ready")
	}
	if !srv.JetStreamEnabled() {
		srv.Shutdown()
		return nil, fmt.Errorf("the embedded NATS server could not open its streams in %s", filepath.Clean(o.Dir))
	}
	return &Server{srv: srv}, nil
}

func hostPort(listen string) (string, int, error) {
	u, err := url.Parse(listen)
	if err != nil || u.Hostname() == "" {
		return "", 0, fmt.Errorf("%q is not an address to listen on: write nats://HOST:PORT", listen)
	}
	port := 4222
	if p := u.Port(); p != "" {
		port, err = strconv.Atoi(p)
	}
	return u.Hostname(), port, err
}

// ClientURL returns the address for other processes; "" if there is none.
func (s *Server) ClientURL() string {
	if s.srv.Addr() == nil {
		return ""
	}
	return s.srv.ClientURL()
}

// Connect opens a connection within the process.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("", append(opts, nats.InProcessServer(s.srv))...)
}

// Shutdown stops the server and waits until it has written everything.
func (s *Server) Shutdown() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

// logger hands the server's log on.
type logger struct{ log *slog.Logger }

func (l *logger) Noticef(format string, v ...any) {
	l.log.Debug("nats-server: " + fmt.Sprintf(format, v...))
}
func (l *logger) Warnf(format string, v ...any) {
	l.log.Warn("nats-server: " + fmt.Sprintf(format, v...))
}
func (l *logger) Fatalf(format string, v ...any) {
	l.log.Error("nats-server: " + fmt.Sprintf(format, v...))
}
func (l *logger) Errorf(format string, v ...any) {
	l.log.Error("nats-server: " + fmt.Sprintf(format, v...))
}
func (l *logger) Debugf(format string, v ...any) {}
func (l *logger) Tracef(format string, v ...any) {}
