package postgres_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/postgres"
)

// wire forwards connections to a server and counts its ReadyForQuery messages:
// one ends each round trip of the protocol.
type wire struct {
	addr       string
	roundTrips atomic.Int64
	// cut closes the connection before the next ReadyForQuery, and is then false
	// again.
	cut atomic.Bool
}

func tap(t *testing.T, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: l.Addr().String()}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			wg.Go(func() {
				io.Copy(server, client)
				server.Close()
			})
			wg.Go(func() {
				w.count(client, server)
				client.Close()
			})
		}
	})
	return w
}

// count forwards the server's messages: a type of one byte, a length of four
// that counts itself, and the rest.
func (w *wire) count(client io.Writer, server io.Reader) {
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		if head[0] == 'Z' {
			w.roundTrips.Add(1)
			if w.cut.CompareAndSwap(true, false) {
				return
			}
		}
		if _, err := client.Write(head); err != nil {
			return
		}
		if _, err := io.CopyN(client, server, int64(binary.BigEndian.Uint32(head[1:]))-4); err != nil {
			return
		}
	}
}

// tapped returns a tap and options that lead over it.
func tapped(t *testing.T, o postgres.Options) (*wire, postgres.Options) {
	t.Helper()
	u, err := url.Parse(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := tap(t, u.Host)
	u.Host = w.addr
	o.URL = u.String()
	return w, o
}

// TestOneRoundTrip: one flush of 64 documents whose rows the owner knows is one
// transaction and one round trip.
func TestOneRoundTrip(t *testing.T) {
	o := database(t, shared)
	w, over := tapped(t, o)
	s := open(t, over)
	own := claim(t, s, 0)
	const documents = 64
	seq := uint64(0)
	flush := func() *lobwriter.Flush {
		var groups []lobwriter.Group
		for d := range documents {
			seq++
			groups = append(groups, own.Append(fmt.Sprint("doc", d), lobtest.Text(seq, strings.Repeat("<r>ä</r>", 100))))
		}
		return own.NewFlush(groups...)
	}
	send := func(f *lobwriter.Flush) {
		r, err := s.Flush(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range r.Answers {
			if a.Status != lobwriter.Appended {
				t.Fatalf("group %d: %s", i, a.Status)
			}
		}
		own.Settle(f, r)
	}
	send(flush()) // the documents become known, the statement prepared
	f := flush()
	xid := func() (id int64) {
		c := connection(t, o)
		if err := c.QueryRow(t.Context(), `select pg_current_xact_id()::text::bigint`).Scan(&id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	before, trips := xid(), w.roundTrips.Load()
	send(f)
	if n := w.roundTrips.Load() - trips; n != 1 {
		t.Errorf("%d round trips", n)
	}
	// The question itself takes one transaction ID.
	if n := xid() - before - 1; n != 1 {
		t.Errorf("%d transactions", n)
	}
}
