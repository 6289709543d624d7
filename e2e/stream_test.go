package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// broker is a real NATS server that can be stopped and started again on the
// same port and folder.
type broker struct {
	t    testing.TB
	dir  string
	port int
	size int64 // the most bytes of all streams; 0: no limit
	srv  *server.Server
}

func startBroker(t testing.TB) *broker {
	t.Helper()
	return startSmallBroker(t, 0)
}

// startSmallBroker starts one that stores so many bytes at most.
func startSmallBroker(t testing.TB, size int64) *broker {
	t.Helper()
	b := &broker{t: t, dir: t.TempDir(), port: freePort(t), size: size}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

func (b *broker) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", b.port) }

func (b *broker) start() {
	b.t.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: b.port, JetStream: true, StoreDir: b.dir, NoSigs: true, NoLog: true, MaxPayload: 8 << 20,
		JetStreamMaxStore: b.size,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(20 * time.Second) {
		b.t.Fatal("nats-server not ready")
	}
	b.srv = srv
}

func (b *broker) stop() {
	if b.srv != nil {
		b.srv.Shutdown()
		b.srv.WaitForShutdown()
		b.srv = nil
	}
}

// connect opens a connection of the test's own, which reconnects for ever.
func (b *broker) connect() jetstream.JetStream {
	b.t.Helper()
	nc, err := nats.Connect(b.url(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	return js
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// producer publishes interleaved fragments of many documents, one at a time,
// and repeats with the same message ID what was not acknowledged.
type producer struct {
	t         testing.TB
	js        jetstream.JetStream
	documents int
	fragments int // in all
	pause     time.Duration
	open      bool // documents stay open
	rng       *rand.Rand

	mu    sync.Mutex
	acked map[string]string // message ID to payload
}

func newProducer(t testing.TB, js jetstream.JetStream, seed uint64, documents, fragments int, pause time.Duration) *producer {
	return &producer{t: t, js: js, documents: documents, fragments: fragments, pause: pause,
		rng: rand.New(rand.NewPCG(seed, 1)), acked: map[string]string{}}
}

// run publishes everything. The last fragment of each document is final, unless
// they are to stay open.
func (p *producer) run(ctx context.Context) {
	left := make([]int, p.documents)
	for i := range left {
		left[i] = p.fragments / p.documents
	}
	number := make([]int, p.documents)
	open := p.documents
	alphabet := []rune("abcdefghijklmnopqrstuvwxyz<>&\"'\r\n\t äöüß€漢字😀🎵")
	for open > 0 && ctx.Err() == nil {
		d := p.rng.IntN(p.documents)
		if left[d] == 0 {
			continue
		}
		var text strings.Builder
		fmt.Fprintf(&text, "<r d=%q n=\"%d\">", fmt.Sprint(d), number[d])
		for range p.rng.IntN(200) {
			text.WriteRune(alphabet[p.rng.IntN(len(alphabet))])
		}
		text.WriteString("</r>\n")
		left[d]--
		msg := nats.NewMsg(fmt.Sprintf("fragments.doc-%d", d))
		msg.Data = []byte(text.String())
		id := fmt.Sprintf("doc-%d:%d", d, number[d])
		msg.Header.Set("Nats-Msg-Id", id)
		if left[d] == 0 {
			if !p.open {
				msg.Header.Set("Lobsink-Final", "true")
			}
			open--
		}
		number[d]++
		if !p.publish(ctx, msg) {
			return
		}
		p.mu.Lock()
		p.acked[id] = text.String()
		p.mu.Unlock()
		if p.pause > 0 {
			time.Sleep(p.pause)
		}
	}
}

// publish repeats until the server acknowledges.
func (p *producer) publish(ctx context.Context, msg *nats.Msg) bool {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := p.js.PublishMsg(call, msg)
		cancel()
		if err == nil {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

// truth is what the stream says that every document must be.
type truth struct {
	text map[string]string
	last map[string]uint64 // sequence of the last fragment
	ids  map[string]string // message ID to payload
	seqs map[int]uint64    // last sequence of each partition
}

// readTruth reads the whole stream, in order, without lobsink.
func readTruth(t testing.TB, js jetstream.JetStream, stream string) truth {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := js.Stream(ctx, stream)
	if err != nil {
		t.Fatal(err)
	}
	out := truth{text: map[string]string{}, last: map[string]uint64{}, ids: map[string]string{}, seqs: map[int]uint64{}}
	parts := map[string]*strings.Builder{}
	state := s.CachedInfo().State
	if state.Msgs == 0 {
		return out
	}
	cons, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	it, err := cons.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer it.Stop()
	for {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			t.Fatalf("reading the stream: %v", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		tokens := strings.Split(m.Subject(), ".")
		key := keyOf(tokens[len(tokens)-1])
		partition := 0
		if len(tokens) == 3 {
			fmt.Sscan(tokens[1], &partition)
		}
		if parts[key] == nil {
			parts[key] = &strings.Builder{}
		}
		parts[key].Write(m.Data())
		out.last[key] = meta.Sequence.Stream
		out.seqs[partition] = meta.Sequence.Stream
		out.ids[m.Headers().Get("Nats-Msg-Id")] = string(m.Data())
		if meta.NumPending == 0 {
			break
		}
	}
	for k, b := range parts {
		out.text[k] = b.String()
	}
	return out
}

// ackFloors returns, per partition, the highest ack floor of its consumers.
func ackFloors(t testing.TB, js jetstream.JetStream, stream string) map[int]uint64 {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	floors := map[int]uint64{}
	list := s.ListConsumers(t.Context())
	for info := range list.Info() {
		f := strings.Split(info.Name, "-") // lobsink-<database>-<partition>-<epoch>-<claim>
		var partition int
		if f[0] != "lobsink" {
			continue // one of the tests' own
		}
		if len(f) != 5 {
			t.Fatalf("consumer %q is not named as documented", info.Name)
		}
		fmt.Sscan(f[2], &partition)
		floors[partition] = max(floors[partition], info.AckFloor.Stream)
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		t.Fatal(err)
	}
	return floors
}

// floored waits until the server's ack floor has reached the last message of each
// partition.
func floored(t testing.TB, js jetstream.JetStream, within time.Duration) {
	t.Helper()
	want := readTruth(t, js, streamName).seqs
	eventually(t, within, func() error {
		floors := ackFloors(t, js, streamName)
		for p, last := range want {
			if floors[p] < last {
				return fmt.Errorf("partition %d: ack floor %d, last message %d", p, floors[p], last)
			}
		}
		return nil
	})
}
