package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startServer starts a server on a free port, without JetStream.
func startServer(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	o.Host, o.NoLog, o.NoSigs = "127.0.0.1", true, true
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	srv, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return srv
}

// TestServerRefuses: a server that is there, but not for us.
func TestServerRefuses(t *testing.T) {
	plain := startServer(t, server.Options{})
	locked := startServer(t, server.Options{Username: "lobsink", Password: "geheim"})
	for _, test := range []struct {
		name, url string
		args      []string
		code      int
		says      string
	}{
		{"no JetStream, dlq", plain.ClientURL(), []string{"dlq", "ls"}, exitUnavailable, "start it with -js"},
		{"no JetStream, setup", plain.ClientURL(), []string{"setup"}, exitUnavailable, "start it with -js"},
		{"no password", locked.ClientURL(), []string{"dlq", "ls"}, exitConfig, "refuses who we are"},
		{"wrong password", strings.Replace(locked.ClientURL(), "//", "//lobsink:falsch@", 1), []string{"dlq", "ls"}, exitConfig, "refuses who we are"},
		{"no credentials file", plain.ClientURL(), []string{"dlq", "ls", "--nats-creds", "none.creds"}, exitConfig, "none.creds"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			environ := []string{"LOBSINK_NATS=" + test.url, "LOBSINK_DATA_DIR=" + t.TempDir()}
			code := run(t.Context(), test.args, environ, &out, &errs)
			if code != test.code || !strings.Contains(errs.String(), test.says) || strings.Contains(errs.String(), "falsch") {
				t.Errorf("exit %d, want %d with %q: %s", code, test.code, test.says, errs.String())
			}
		})
	}
}

// TestConnectBeforeTheServer: a connection that is asked for first is there when
// the server is, under a name that an operator recognises.
func TestConnectBeforeTheServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()

	cfg := defaultConfig()
	cfg.NATS = fmt.Sprintf("nats://127.0.0.1:1,nats://127.0.0.1:%d", port)
	nc, err := connectNATS(&cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if nc.IsConnected() {
		t.Fatal("connected to no server")
	}
	srv := startServer(t, server.Options{Port: port})
	for end := time.Now().Add(30 * time.Second); !nc.IsConnected(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not connected within 30 s")
		}
	}
	conns, err := srv.Connz(nil)
	if err != nil || len(conns.Conns) != 1 || !strings.HasPrefix(conns.Conns[0].Name, "lobsink/"+version()+" ") {
		t.Errorf("%v, %+v", err, conns)
	}
}
