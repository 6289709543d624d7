// Command producer publishes one document in three fragments, in order, and each
// of them once, also when an answer is lost.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	server := "nats://127.0.0.1:4222"
	if len(os.Args) > 1 {
		server = os.Args[1]
	}
	// Without a buffer nothing is sent later than it was meant to be.
	nc, err := nats.Connect(server, nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	fragments := []string{"<order id='1'>", "<line>ä</line>", "</order>"}
	for i, text := range fragments {
		if err := publish(js, "order/1", text, i+1, i == len(fragments)-1); err != nil {
			log.Fatal(err)
		}
	}
}

// publish publishes the n-th fragment of a document, and returns when the stream
// has it. Only then may the next one be published: that keeps the order.
func publish(js jetstream.JetStream, key, text string, n int, final bool) error {
	m := nats.NewMsg("fragments." + token(key))
	m.Data = []byte(text)
	m.Header.Set(jetstream.MsgIDHeader, fmt.Sprintf("%s:%d", key, n)) // a repeat is not stored again
	m.Header.Set("Lobsink-Index", strconv.Itoa(n))
	if final {
		m.Header.Set("Lobsink-Final", "true")
	}
	for attempt := 1; ; attempt++ {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err := js.PublishMsg(ctx, m)
		cancel()
		if err == nil || attempt == 10 {
			return err
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		time.Sleep(time.Duration(attempt) * 100 * time.Millisecond)
	}
}

// token percent-encodes a key: every byte but A-Z a-z 0-9 - _ is %XX in upper-case
// hex.
func token(key string) string {
	// PathEscape leaves more characters alone than a key may have.
	return strings.NewReplacer(".", "%2E", "~", "%7E", "$", "%24", "&", "%26", "+", "%2B", "=", "%3D", ":", "%3A", "@", "%40").
		Replace(url.PathEscape(key))
}
