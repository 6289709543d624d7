package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestReadStream(t *testing.T) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(time.Minute) {
		t.Fatal("nats-server is not ready")
	}
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*.*"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadStream(t.Context(), srv.ClientURL(), "S"); len(got) != 0 || err != nil {
		t.Errorf("%v, %v for an empty stream", got, err)
	}
	const n = 1000
	for i := range n {
		m := nats.NewMsg(fmt.Sprintf("s.%d.%s", i%2, []string{"a", "b%2F%C3%9F"}[i%2]))
		m.Data = fmt.Appendf(nil, "%d;", i)
		m.Header.Set(jetstream.MsgIDHeader, fmt.Sprint(i))
		if i >= n-2 {
			m.Header.Set("Lobsink-Final", "true")
		}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadStream(t.Context(), srv.ClientURL(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Errorf("%d keys, want 2", len(got))
	}
	for first, key := range []string{"a", "b/ß"} {
		if len(got[key]) != n/2 {
			t.Fatalf("%d fragments of %s, want %d", len(got[key]), key, n/2)
		}
		for k, f := range got[key] {
			i := first + 2*k
			if want := (Fragment{uint64(i + 1), fmt.Sprint(i), fmt.Sprintf("%d;", i), i >= n-2}); f != want {
				t.Fatalf("%+v, want %+v", f, want)
			}
		}
	}
	if err := s.DeleteMsg(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadStream(t.Context(), srv.ClientURL(), "S"); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("%v for a stream that lacks a message", err)
	}
}
