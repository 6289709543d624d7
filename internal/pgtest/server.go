// Package pgtest starts a real PostgreSQL for tests, from the server binaries
// of this machine: in a folder of its own, on a free port of the loopback
// interface, as another user where the test runs as root.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// patience bounds every wait, for slow machines.
const patience = 2 * time.Minute

// Server is a PostgreSQL server. The user postgres may do anything without a
// password. Its methods end the test that started it when they fail. They are
// for one goroutine, but for URL and CreateDatabase.
type Server struct {
	fail func(error)
	o    options

	bin    string               // folder of the binaries
	home   string               // its folder
	attr   *syscall.SysProcAttr // of its processes
	port   int
	stop   func(os.Signal)
	ended  chan struct{} // closed when the process has ended; nil before the first start
	copies []string

	databases atomic.Int64
}

type options struct {
	settings []string
	hba      []string
}

// Option changes how a server runs.
type Option func(*options)

// Set gives a setting of the server a value.
func Set(name, value string) Option {
	return func(o *options) { o.settings = append(o.settings, "-c", name+"="+value) }
}

// NoSync lets the server tell a commit before it is on the disk. It is faster;
// an immediate stop of the server alone still loses nothing.
func NoSync() Option { return Set("fsync", "off") }

// HBA adds a line to pg_hba.conf, before the line that trusts everybody.
func HBA(line string) Option {
	return func(o *options) { o.hba = append(o.hba, line) }
}

// Start starts a server that stops at the end of the test.
func Start(t testing.TB, o ...Option) *Server {
	t.Helper()
	s, err := New(o...)
	if err != nil {
		t.Fatal(err)
	}
	s.fail = func(err error) { t.Helper(); t.Fatal(err) }
	t.Cleanup(s.Close)
	return s
}

// New starts a server for a TestMain, which must close it. Its methods panic
// when they fail.
func New(o ...Option) (_ *Server, err error) {
	s := &Server{fail: func(err error) { panic(err) }}
	for _, set := range o {
		set(&s.o)
	}
	if s.bin, err = binaries(); err != nil {
		return nil, err
	}
	// Not in t.TempDir: the other user may not enter that.
	if s.home, err = os.MkdirTemp("", "pgtest-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.attr, err = attributes(s.home); err != nil {
		return nil, err
	}
	if err = s.initialize(); err != nil {
		return nil, err
	}
	return s, s.start()
}

// Close stops the server and removes its folder.
func (s *Server) Close() {
	s.halt(syscall.SIGQUIT)
	for _, dir := range append(s.copies, s.home) {
		if err := os.RemoveAll(dir); err != nil {
			s.fail(err)
		}
	}
}

// URL returns the URL of a database for the user postgres.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User("postgres"), Path: "/" + database, RawQuery: "sslmode=disable",
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
	}
	return u.String()
}

// CreateDatabase creates an empty database in UTF-8 and returns its URL. Clauses
// are those of CREATE DATABASE, such as "encoding 'LATIN1'".
func (s *Server) CreateDatabase(t testing.TB, clauses ...string) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", s.databases.Add(1))
	query := "create database " + name + " template template0"
	for _, c := range clauses {
		query += " " + c
	}
	if err := s.exec(t.Context(), query); err != nil {
		t.Fatal(err)
	}
	return s.URL(name)
}

// Dir returns the data folder.
func (s *Server) Dir() string { return filepath.Join(s.home, "data") }

// StopImmediate stops the server as a crash would: nothing is written any more,
// and the next start recovers.
func (s *Server) StopImmediate() { s.halt(syscall.SIGQUIT) }

// Restart starts the server, after having stopped it if it runs, and waits until
// it takes connections. The port is the same.
func (s *Server) Restart() {
	s.halt(syscall.SIGINT)
	if err := s.start(); err != nil {
		s.fail(err)
	}
}

// CopyTo copies the data folder of the stopped server to a new folder, which
// goes with the server.
func (s *Server) CopyTo(dir string) {
	s.copies = append(s.copies, dir)
	s.copyFolder(s.Dir(), dir)
}

// RestoreFrom puts back what CopyTo copied, while the server is stopped.
func (s *Server) RestoreFrom(dir string) {
	if err := os.RemoveAll(s.Dir()); err != nil {
		s.fail(err)
	}
	s.copyFolder(dir, s.Dir())
}

// copyFolder copies with owners and modes, which the server insists on.
func (s *Server) copyFolder(from, to string) {
	if s.running() {
		s.fail(errors.New("the server runs: stop it before its folder is copied"))
	}
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		s.fail(fmt.Errorf("copy %s: %w\n%s", from, err, out))
	}
}

// binaries returns the folder of the server binaries: that of the PATH, or the
// newest one of Debian's.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "postgres")); err == nil {
				return filepath.Dir(path), nil
			}
		}
	}
	newest, version := "", 0
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // fails for a bad pattern only
	for _, path := range found {
		bin := filepath.Dir(path)
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(bin))); err == nil && v > version {
			newest, version = bin, v
		}
	}
	if newest == "" {
		return "", errors.New("PostgreSQL server binaries not found: apt-get install postgresql")
	}
	return newest, nil
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(s.bin, name), args...)
	c.Dir = s.home
	c.SysProcAttr = s.attr
	return c
}

func (s *Server) initialize() error {
	c := s.command("initdb", "--pgdata", s.Dir(), "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	hba := ""
	for _, line := range append(s.o.hba, "host all all 127.0.0.1/32 trust") {
		hba += line + "\n"
	}
	return os.WriteFile(filepath.Join(s.Dir(), "pg_hba.conf"), []byte(hba), 0o600) // keeps its owner
}

// start starts the server and waits until it takes connections. The first start
// chooses the port.
func (s *Server) start() error {
	if s.port != 0 {
		return s.launch()
	}
	var err error
	for range 5 { // somebody else may take the port in between
		if s.port, err = freePort(); err != nil {
			return err
		}
		if err = s.launch(); err == nil {
			return nil
		}
	}
	return err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (s *Server) launch() error {
	log, err := os.OpenFile(filepath.Join(s.home, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{
		"-D", s.Dir(), "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=" + s.home,
	}, s.o.settings...)
	c := s.command("postgres", args...)
	c.Stdout, c.Stderr = log, log

	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		// The signal at the death of the parent comes at the death of the thread
		// that started the child, so that must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.Start()
		started <- err
		if err == nil {
			c.Wait() // how it ended is in the log
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	s.ended, s.stop = ended, func(sig os.Signal) { c.Process.Signal(sig) }
	return s.ready()
}

// ready waits until the server takes connections.
func (s *Server) ready() error {
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = s.exec(context.Background(), "select 1"); err == nil {
			return nil
		}
		select {
		case <-s.ended:
			log, _ := os.ReadFile(filepath.Join(s.home, "log"))
			return fmt.Errorf("the server ended:\n%s", log[max(0, len(log)-4096):])
		case <-time.After(20 * time.Millisecond):
		}
	}
	s.halt(syscall.SIGQUIT)
	return fmt.Errorf("the server takes no connections: %w", err)
}

func (s *Server) running() bool {
	if s.ended == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// halt signals the server and waits until it has ended, which an immediate stop
// makes sure of.
func (s *Server) halt(sig os.Signal) {
	if !s.running() {
		return
	}
	s.stop(sig)
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.stop(syscall.SIGKILL)
		<-s.ended
	}
}

func (s *Server) exec(ctx context.Context, query string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, query)
	return errors.Join(err, c.Close(ctx))
}
