package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// lease is that of all members.
const lease = 2 * time.Second

// member is a place for a lobsink with its own links to all servers. Whoever has
// acquired it may start, stop and disturb it.
type member struct {
	name     string
	nats     links
	postgres links
	log      *os.File
	proc     *process // nil: none runs here
	claims   *claims  // of the process
	busy     bool     // somebody has acquired it; see members
}

// start starts a lobsink. If it ends without being asked to, failed is told.
func (m *member) start(binary string, db *postgres, failed func(error)) error {
	var nats []string
	for _, l := range m.nats {
		nats = append(nats, l.listen)
	}
	m.claims = &claims{log: m.log, asked: make(chan struct{}), wrote: make(chan struct{}), made: map[claim]bool{}}
	p, err := startProcess(m.name, m.claims, binary, "run",
		"--nats", natsURLs(nats), "--store", db.through(m.postgres[0].listen),
		"--lease", lease.String(), "--max-age", "200ms", "--http", "off", "--log-format", "json")
	if err != nil {
		return err
	}
	m.proc = p
	asked := m.claims.asked
	go func() {
		<-p.ended
		select {
		case <-asked:
		default:
			failed(fmt.Errorf("%s ended by itself with exit code %d; see its log", p.name, p.exitCode()))
		}
	}()
	return nil
}

// kill ends the process as kill -9 does.
func (m *member) kill() {
	close(m.claims.asked)
	m.proc.kill()
	m.proc = nil
}

// terminate ends it with SIGTERM; it has half a minute to store what it holds,
// and as much again for a slow machine. A process that has hardly begun does not
// listen to signals yet: it has written something first.
func (m *member) terminate() error {
	select {
	case <-m.claims.wrote:
	case <-m.proc.ended:
	case <-time.After(time.Minute):
	}
	close(m.claims.asked)
	err := m.proc.terminate(time.Minute)
	m.proc = nil
	return err
}

// claim is the claim of a partition: no other one of it has the same epoch.
type claim struct {
	partition int
	epoch     int64
}

// claims reads from the log of a process which claims it has made, and passes
// the log on.
type claims struct {
	log   *os.File
	asked chan struct{} // closed when the process is asked, or made, to end

	wrote chan struct{} // closed when it has written a line

	mu   sync.Mutex
	part []byte // of a line
	made map[claim]bool
}

// Write implements io.Writer.
func (c *claims) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.part = append(c.part, p...)
	for {
		line, rest, whole := bytes.Cut(c.part, []byte("\n"))
		if !whole {
			break
		}
		c.read(line)
		c.part = rest
	}
	c.mu.Unlock()
	return c.log.Write(p)
}

func (c *claims) read(line []byte) {
	select {
	case <-c.wrote:
	default:
		close(c.wrote)
	}
	var record struct {
		Msg       string
		Partition int
		Epoch     int64
	}
	if json.Unmarshal(line, &record) == nil && record.Msg == "partition claimed" {
		c.made[claim{record.Partition, record.Epoch}] = true
	}
}

// of returns which of the claims are of this process.
func (c *claims) of(all []claim) (own []claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range all {
		if c.made[one] {
			own = append(own, one)
		}
	}
	return own
}
