package e2e

import (
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// proxy stands between lobsink and a server, for what goes wrong on the way.
type proxy struct {
	target string
	listen net.Listener
	wg     sync.WaitGroup

	mu     sync.Mutex
	moves  sync.Cond
	delay  time.Duration // how late every request arrives
	silent bool          // nothing passes, and nobody is told
	cut    int           // connections to break at their next answer
	ended  bool
	open   map[net.Conn]bool
}

// startProxy forwards connections to an address.
func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: target, listen: l, open: map[net.Conn]bool{}}
	p.moves.L = &p.mu
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// startProxyOf stands in front of the server of a URL, and returns the URL that
// leads through it.
func startProxyOf(t testing.TB, server string) (p *proxy, through string) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	p = startProxy(t, u.Host)
	u.Host = p.address()
	return p, u.String()
}

func (p *proxy) address() string { return p.listen.Addr().String() }

// silence has nothing pass any more, without a word to either side, or has
// everything go on.
func (p *proxy) silence(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = on
	p.moves.Broadcast()
}

// cutAnswers breaks the next n answers: what was asked is done, and who asked
// does not learn it.
func (p *proxy) cutAnswers(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut += n
}

// cutsLeft returns how many answers are still to be broken.
func (p *proxy) cutsLeft() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut
}

func (p *proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		if p.ended {
			client.Close()
			server.Close()
		}
		p.open[client], p.open[server] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { p.forward(client, server, false) })
		p.wg.Go(func() { p.forward(server, client, true) })
	}
}

// late has every piece of a request arrive so much later: latency, not a lack of
// bandwidth.
func (p *proxy) late(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
}

// due returns when what has come now has to arrive.
func (p *proxy) due(answer bool) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answer {
		return time.Now()
	}
	return time.Now().Add(p.delay)
}

// passes waits while nothing may pass, and tells whether this may.
func (p *proxy) passes(answer bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.silent && !p.ended {
		p.moves.Wait()
	}
	if answer && p.cut > 0 {
		p.cut--
		return false
	}
	return !p.ended
}

func (p *proxy) forward(from, to net.Conn, answers bool) {
	defer func() {
		from.Close()
		to.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, from)
		delete(p.open, to)
	}()
	type piece struct {
		data []byte
		due  time.Time
	}
	pieces := make(chan piece, 4096)
	p.wg.Go(func() {
		defer close(pieces)
		for {
			buf := make([]byte, 64<<10)
			n, err := from.Read(buf)
			if n > 0 {
				pieces <- piece{buf[:n], p.due(answers)}
			}
			if err != nil {
				return
			}
		}
	})
	defer func() {
		from.Close() // ends the reader
		for range pieces {
		}
	}()
	for piece := range pieces {
		time.Sleep(time.Until(piece.due))
		if !p.passes(answers) {
			return
		}
		if _, err := to.Write(piece.data); err != nil {
			return
		}
	}
}

func (p *proxy) close() {
	p.listen.Close()
	p.mu.Lock()
	p.ended = true
	p.moves.Broadcast()
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}
