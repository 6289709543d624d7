package embednats

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A server that stores nothing any more starts again at the same address, and
// has what it acknowledged.
func TestStartsAgain(t *testing.T) {
	s := start(t, Options{Listen: "127.0.0.1:0", SyncAlways: true})
	inside, js := connect(t, s)
	stream(t, js)
	if _, err := js.Publish(t.Context(), "s.a", []byte("before")); err != nil {
		t.Fatal(err)
	}
	outside, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	again := make(chan struct{}, 1)
	outside.SetReconnectHandler(func(*nats.Conn) { again <- struct{}{} })

	s.current().Errorf("Filestore [S] Critical write error: %v", "no space left on device")
	for s.Err() == nil && len(again) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Err(); err != nil && !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("Err is %q, want the server's own words in it", err)
	}
	<-again
	for _, nc := range []*nats.Conn{inside, outside} {
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		publish := func() (*jetstream.PubAck, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return js.Publish(ctx, "s.a", []byte("after"))
		}
		ack, err := publish()
		for ; err != nil && t.Context().Err() == nil; ack, err = publish() {
			time.Sleep(10 * time.Millisecond)
		}
		if ack.Sequence < 2 {
			t.Errorf("sequence %d: the message of before is gone", ack.Sequence)
		}
	}
	if err := s.Err(); err != nil {
		t.Errorf("Err is %v after the server has started again", err)
	}
}
