package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// link is the way from one lobsink to one server: a proxy with faults. It is for
// one goroutine at a time.
//
// A fault of it always ends with broken connections. To take a fault off an open
// connection, toxiproxy waits 5 s for the reader of what is on the way, and then
// goes on without it; bytes from the middle of a connection would be gone, which
// no network does.
type link struct {
	name     string
	listen   string
	upstream string
	server   *toxiproxy.ApiServer
	proxy    *toxiproxy.Proxy // nil: cut
}

// toxic is a fault on a link in toxiproxy's own form.
type toxic struct {
	Type       string           `json:"type"`
	Stream     string           `json:"stream"` // upstream: requests, downstream: answers
	Attributes map[string]int64 `json:"attributes"`
}

func openLink(name, listen, upstream string) (*link, error) {
	l := &link{name: name, listen: listen, upstream: upstream,
		server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())}
	return l, l.restore()
}

// cut breaks all connections and refuses new ones.
func (l *link) cut() {
	if l.proxy != nil {
		l.proxy.Stop()
		l.proxy = nil
	}
}

// restore breaks all connections and lets new ones pass without a fault.
func (l *link) restore() (err error) {
	l.cut()
	for range 100 {
		p := toxiproxy.NewProxy(l.server, l.name, l.listen, l.upstream)
		if err = p.Start(); err == nil {
			l.proxy = p
			return nil
		}
		time.Sleep(50 * time.Millisecond) // somebody else's connection sits on the port
	}
	return fmt.Errorf("link %s: %w", l.name, err)
}

// spoil puts faults on the open connections and on those to come.
func (l *link) spoil(toxics ...toxic) error {
	for _, t := range toxics {
		data, err := json.Marshal(t)
		if err != nil {
			return err
		}
		if _, err := l.proxy.Toxics.AddToxicJson(bytes.NewReader(data)); err != nil {
			return fmt.Errorf("link %s: %s: %w", l.name, t.Type, err)
		}
	}
	return nil
}

// broken ends a connection within what the server sends, after so many bytes.
func broken(after int64) []toxic {
	return []toxic{{"limit_data", "downstream", map[string]int64{"bytes": after}}}
}

// silent lets nothing pass either way.
func silent() []toxic {
	return []toxic{{"timeout", "upstream", map[string]int64{"timeout": 0}}, {"timeout", "downstream", map[string]int64{"timeout": 0}}}
}

// slow delays everything, either way.
func slow(by time.Duration) []toxic {
	late := map[string]int64{"latency": by.Milliseconds(), "jitter": by.Milliseconds() / 2}
	return []toxic{{"latency", "upstream", late}, {"latency", "downstream", late}}
}

// links are the ways of one lobsink to all servers of one kind.
type links []*link

func (ls links) cut() {
	for _, l := range ls {
		l.cut()
	}
}

func (ls links) restore() error {
	for _, l := range ls {
		if err := l.restore(); err != nil {
			return err
		}
	}
	return nil
}

func (ls links) spoil(toxics ...toxic) error {
	for _, l := range ls {
		if err := l.spoil(toxics...); err != nil {
			return err
		}
	}
	return nil
}

// openLinks opens a link to each address.
func openLinks(name string, free *ports, upstreams ...string) (ls links, err error) {
	for i, upstream := range upstreams {
		if _, _, err := net.SplitHostPort(upstream); err != nil {
			return ls, err
		}
		listen, err := free.next()
		if err != nil {
			return ls, err
		}
		l, err := openLink(fmt.Sprintf("%s-%d", name, i+1), listen, upstream)
		if err != nil {
			return ls, err
		}
		ls = append(ls, l)
	}
	return ls, nil
}
