package embednats

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func start(t *testing.T, o Options) *Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func connect(t *testing.T, s *Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

func stream(t *testing.T, js jetstream.JetStream) jetstream.Stream {
	t.Helper()
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}, Discard: jetstream.DiscardNew})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRestartKeepsMessages(t *testing.T) {
	dir := t.TempDir()
	for want := uint64(1); want <= 3; want++ {
		s := start(t, Options{Dir: dir, SyncAlways: true})
		if url := s.ClientURL(); url != "" {
			t.Errorf("ClientURL is %q, want none: the server does not listen", url)
		}
		nc, js := connect(t, s)
		if want == 1 {
			stream(t, js)
		}
		ack, err := js.Publish(t.Context(), "s.a", []byte("x"))
		if err != nil || ack.Sequence != want {
			t.Fatalf("publish %d: %+v, %v", want, ack, err)
		}
		nc.Close()
		s.Shutdown()
		s.Shutdown() // does nothing
	}
}

func TestListen(t *testing.T) {
	s := start(t, Options{Listen: "nats://127.0.0.1:0", MaxPayload: 1 << 20})
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if got := nc.MaxPayload(); got != 1<<20 {
		t.Errorf("max payload is %d, want %d", got, 1<<20)
	}

	addr := strings.TrimPrefix(s.ClientURL(), "nats://")
	dir := t.TempDir()
	refused(t, Options{Dir: dir, Listen: addr}, "cannot listen on "+addr, "choose another address")
	if _, err := os.Stat(filepath.Join(dir, "jetstream")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a server that cannot listen opened its streams: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:4333": "127.0.0.1:4333", "nats://[::1]:4333": "[::1]:4333", "localhost": "localhost:4222",
	} {
		host, port, err := parseAddress(listen)
		if got := net.JoinHostPort(host, strconv.Itoa(port)); err != nil || got != want {
			t.Errorf("%q is %s, %v; want %s", listen, got, err, want)
		}
	}
	for _, listen := range []string{"http://a:1", ":4222", "a:b", "a:70000", "nats://a:1/x", "nats://me@a:1"} {
		if _, _, err := parseAddress(listen); err == nil || !strings.Contains(err.Error(), "HOST:PORT") {
			t.Errorf("%q: %v, want an error that says how to write it", listen, err)
		}
	}
}

func TestFolder(t *testing.T) {
	t.Run("in use", func(t *testing.T) {
		dir := t.TempDir()
		s := start(t, Options{Dir: dir})
		refused(t, Options{Dir: dir}, "is in use by another process", "stop that one")
		s.Shutdown()
		start(t, Options{Dir: dir})
	})
	t.Run("below a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, Options{Dir: filepath.Join(file, "streams")}, "cannot make the folder", "choose another folder")
	})
	t.Run("unwritable", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("root may write everywhere")
		}
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		refused(t, Options{Dir: dir}, "cannot write to the folder", "let this user write there")
	})
	t.Run("no store", func(t *testing.T) {
		// A file where nats-server wants a folder: its own reason must come out.
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, Options{Dir: dir}, "JetStream")
	})
}

func TestStartIsStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if _, err := Start(ctx, Options{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Start: %v, want canceled", err)
	}
	start(t, Options{Dir: dir}) // the folder is free again
}

// TestStoreFull/O47: a full store refuses publishers with a reason, still gives
// what it has, and takes messages again once there is room.
func TestStoreFull(t *testing.T) {
	t.Run("O47", func(t *testing.T) {
		_, js := connect(t, start(t, Options{MaxStore: 1 << 20}))
		s := stream(t, js)
		stored, err := fill(t, js)
		if stored == 0 {
			t.Fatalf("nothing was stored: %v", err)
		}
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.ErrorCode != 10023 {
			t.Fatalf("refused with %v, want 10023, insufficient resources", err)
		}
		// A claim makes a durable consumer, also while the store is full.
		c, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "D", AckPolicy: jetstream.AckAllPolicy})
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, c); got != stored {
			t.Errorf("read %d of %d stored messages", got, stored)
		}
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if again, err := fill(t, js); again == 0 {
			t.Errorf("nothing was stored after a purge: %v", err)
		}
	})
}

// fill publishes until it is refused.
func fill(t *testing.T, js jetstream.JetStream) (stored int, err error) {
	for stored < 100 {
		if _, err = js.Publish(t.Context(), "s.a", make([]byte, 100<<10)); err != nil {
			return stored, err
		}
		stored++
	}
	t.Fatal("a store of 1 MiB took 10 MB")
	return 0, nil
}

func read(t *testing.T, c jetstream.Consumer) (n int) {
	batch, err := c.FetchNoWait(1000)
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		if err := m.Ack(); err != nil {
			t.Error(err)
		}
		n++
	}
	return n
}

// TestOversize/O48: a message above the limit is a named error, and the
// connection goes on.
func TestOversize(t *testing.T) {
	t.Run("O48", func(t *testing.T) {
		nc, js := connect(t, start(t, Options{}))
		stream(t, js)
		if got := nc.MaxPayload(); got != DefaultMaxPayload {
			t.Errorf("max payload is %d, want %d", got, DefaultMaxPayload)
		}
		if _, err := js.Publish(t.Context(), "s.a", make([]byte, DefaultMaxPayload+1)); !errors.Is(err, nats.ErrMaxPayload) {
			t.Errorf("one byte too many: %v, want %v", err, nats.ErrMaxPayload)
		}
		for _, size := range []int{10, DefaultMaxPayload} {
			if _, err := js.Publish(t.Context(), "s.a", make([]byte, size)); err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
		if nc.Stats().Reconnects != 0 {
			t.Error("the connection broke")
		}
	})
}

func TestStoreLimitCountsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	before := storeLimit(dir)
	if before <= 0 {
		t.Fatalf("limit is %d", before)
	}
	// A sparse file: it has a size and takes no room.
	f, err := os.Create(filepath.Join(dir, "1.blk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	if after := storeLimit(dir); after < 1<<40 {
		t.Errorf("limit is %d, below what is stored already", after)
	}
}

// refused expects Start to fail with an error that has all of the words.
func refused(t *testing.T, o Options, words ...string) {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err == nil {
		s.Shutdown()
		t.Fatal("Start succeeded")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}
