package main

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// echo starts a server that sends back what it gets.
func echo(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { l.Close() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				io.Copy(c, c)
			})
		}
	})
	return l.Addr().String()
}

// ask sends a text and returns what comes back of it.
func ask(c net.Conn, text string, within time.Duration) (string, error) {
	c.SetDeadline(time.Now().Add(within))
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	got := make([]byte, len(text))
	n, err := io.ReadFull(c, got)
	return string(got[:n]), err
}

const patient = time.Minute

// TestLink: every fault does what it says to connections that are open, and ends
// with a link that works.
func TestLink(t *testing.T) {
	ls, err := openLinks("test", &ports{}, echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ls.cut)
	connect := func(t *testing.T) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", ls[0].listen)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	works := func(t *testing.T, c net.Conn) {
		t.Helper()
		if got, err := ask(c, "hello", patient); got != "hello" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	restored := func(t *testing.T) {
		t.Helper()
		if err := ls.restore(); err != nil {
			t.Fatal(err)
		}
		works(t, connect(t))
	}
	t.Run("cut", func(t *testing.T) {
		c := connect(t)
		works(t, c)
		ls.cut()
		if got, err := ask(c, "hello", patient); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q, %v; want a broken connection", got, err)
		}
		if _, err := net.Dial("tcp", ls[0].listen); err == nil {
			t.Error("a cut link takes connections")
		}
		restored(t)
	})
	t.Run("broken", func(t *testing.T) {
		c := connect(t)
		works(t, c)
		if err := ls.spoil(broken(3)...); err != nil {
			t.Fatal(err)
		}
		if got, err := ask(c, "hello", patient); got != "hel" || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q, %v; want three bytes and a broken connection", got, err)
		}
		restored(t)
	})
	t.Run("silent", func(t *testing.T) {
		c := connect(t)
		works(t, c)
		if err := ls.spoil(silent()...); err != nil {
			t.Fatal(err)
		}
		if got, err := ask(c, "hello", 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q, %v; want nothing, and an open connection", got, err)
		}
		restored(t)
	})
	t.Run("slow", func(t *testing.T) {
		c := connect(t)
		works(t, c)
		if err := ls.spoil(slow(200 * time.Millisecond)...); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		works(t, c)
		if took := time.Since(began); took < 200*time.Millisecond { // a half of twice the latency is sure
			t.Errorf("an answer came after %s", took)
		}
		restored(t)
	})
}
