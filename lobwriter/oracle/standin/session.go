package standin

import (
	"errors"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// session is one connection of a client.
type session struct {
	server   *Server
	conn     net.Conn
	requests chan []byte
	broken   chan struct{} // a break has arrived
	gone     chan struct{} // closed: the client is gone
	ended    chan struct{} // closed: the session has ended

	service  string
	place    Place
	loggedOn bool
	// build is the transaction that is open; nil: there is none.
	build lobwriter.Build
	// settled: it has the settings without which nothing may be written.
	settled bool
}

func newSession(s *Server, c net.Conn) *session {
	return &session{
		server: s, conn: c, requests: make(chan []byte), broken: make(chan struct{}, 1), gone: make(chan struct{}), ended: make(chan struct{}),
	}
}

// serve answers requests until the connection ends. They are read aside, so that a
// break is seen while a call runs.
func (s *session) serve() {
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(s.gone)
		s.read()
	}()
	for {
		select {
		case b := <-s.requests:
			if s.answer(b) {
				continue
			}
		case <-s.gone:
		}
		break
	}
	close(s.ended)
	s.endBuild()
	_ = s.conn.Close() // it has nothing to say
	<-read
}

func (s *session) read() {
	for {
		b, err := readFrame(s.conn)
		if err != nil {
			return
		}
		if b[0] == opBreak {
			select {
			case s.broken <- struct{}{}:
			default:
			}
			continue
		}
		select {
		case s.requests <- b:
		case <-s.ended:
			return
		}
	}
}

// answer answers a request. It returns false if the connection ends.
func (s *session) answer(b []byte) bool {
	select {
	case <-s.broken: // it came too late for the call that it was meant for
	default:
	}
	f := &frame{b[1:]}
	r := Request{Op: opNames[b[0]], Service: s.service}
	var call *Call
	if b[0] == opExecute {
		call = readCall(f)
		r.SQL, r.Procedure = call.sql, call.procedure
		r.Module, r.Action, r.ClientInfo = call.module, call.action, call.info
	}
	fault := s.server.arrived(r)
	defer s.server.runs(r.Procedure)()
	err := s.wait(fault.Delay)
	if err == nil && (fault == Fault{Delay: fault.Delay, Null: fault.Null} || fault.After) {
		err = s.run(b[0], f, call)
	}
	if fault.Cut {
		return false
	}
	if err == nil && fault.Code != 0 {
		err = failure(fault.Code, "as the test wishes")
	}
	var o reply
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{600, "internal error code, arguments: [" + err.Error() + "]"}
		}
		o.byte(1)
		o.number(e.Code)
		o.text(e.Text)
		o.byte(0)
	} else {
		o.byte(0)
		if call != nil {
			call.null(fault.Null)
			call.write(&o)
		}
	}
	return writeFrame(s.conn, o) == nil
}

// wait waits, unless the client gives up.
func (s *session) wait(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-s.broken:
		return failure(1013, "user requested cancel of current operation")
	case <-s.gone:
		return failure(3113, "end-of-file on communication channel")
	}
}

func (s *session) run(op byte, f *frame, call *Call) error {
	switch op {
	case opLogin:
		return s.logOn(f.number(), f.text(), f.text(), f.text())
	case opCommit, opRollback:
		s.endBuild()
		return nil
	case opLOB:
		return failure(22275, "invalid LOB locator specified: the stand-in has no temporary LOBs")
	case opExecute:
		if !s.loggedOn {
			return failure(1012, "not logged on")
		}
		return s.execute(call)
	}
	return nil
}

// external is how a client says that somebody else knows the user.
const external = 2

func (s *session) logOn(credentials int, user, password, service string) error {
	s.server.mu.Lock()
	a, place, down := s.server.account, s.server.place, s.server.refused[service]
	s.server.mu.Unlock()
	switch {
	case down != 0:
		return failure(down, "as the test wishes")
	case a.refuse != 0:
		return failure(a.refuse, "as the test wishes")
	case a != account{} && (user != a.user || password != a.password), user == "" && credentials != external:
		return failure(1017, "invalid username/password; logon denied")
	}
	s.service, s.place, s.loggedOn = service, place, true
	return nil
}

var (
	// packageCall finds the set of tables and the procedure of a block.
	packageCall = regexp.MustCompile(`(?i)^\s*BEGIN\s+(?:"[^"]+"\.)?(\w*?)v1\.(\w+)\(`)
	makesBody   = regexp.MustCompile(`(?i)^\s*CREATE OR REPLACE PACKAGE BODY\s+(\w*?)v1\b`)
	dropsBody   = regexp.MustCompile(`(?i)DROP PACKAGE\s+(\w*?)v1\b`)
)

// settings are those that a session must have made before it writes.
var settings = []string{"COMMIT_WAIT=FORCE_WAIT", "NLS_COMP=BINARY", "NLS_SORT=BINARY"}

func (s *session) execute(c *Call) error {
	if rest, ok := strings.CutPrefix(c.sql, "ALTER SESSION SET "); ok && strings.Contains(rest, "COMMIT_WAIT") {
		s.settled = true
		for _, want := range settings {
			s.settled = s.settled && strings.Contains(" "+rest+" ", " "+want+" ")
		}
		return nil
	}
	if c.procedure == "" {
		return s.statement(c)
	}
	schema := s.server.Schema(c.prefix)
	run := procedures[c.procedure]
	switch {
	case schema == nil || run == nil:
		return failure(6550, "line 1, column 7: PLS-00201: identifier '%s' must be declared", strings.ToUpper(c.prefix+"v1."+c.procedure))
	case c.mode&commitOnSuccess == 0 && !builds[c.procedure]:
		return failure(20999, "the call would leave a transaction open")
	case c.mode&commitOnSuccess != 0 && builds[c.procedure]:
		return failure(20999, "the call would end the transaction of the build")
	case !s.settled:
		return failure(20999, "the session has not the settings that it needs")
	}
	if err := run(&context{session: s, schema: schema}, c); err != nil {
		return err
	}
	return c.fault
}

// statement is one of an administrator. It is not understood, but for the package
// body: with it comes, or goes, a set of tables.
func (s *session) statement(c *Call) error {
	word := ""
	if words := strings.Fields(c.sql); len(words) > 0 {
		word = strings.ToUpper(words[0])
	}
	switch word {
	case "SET", "CREATE", "ALTER", "DROP", "GRANT", "COMMENT", "INSERT", "UPDATE", "DELETE", "MERGE", "DECLARE", "BEGIN", "COMMIT":
		if m := makesBody.FindStringSubmatch(c.sql); m != nil {
			s.server.ensure(strings.ToLower(m[1]))
		}
		for _, m := range dropsBody.FindAllStringSubmatch(c.sql, -1) {
			s.server.remove(strings.ToLower(m[1]))
		}
		return nil
	case "SELECT":
		return s.server.query(c)
	}
	return failure(900, "invalid SQL statement")
}

// endBuild ends the transaction of a build. What was swapped in is so already.
func (s *session) endBuild() {
	if s.build != nil {
		_ = s.build.Close() // the reference store has nothing to say
		s.build = nil
	}
}

// context is what a procedure runs in.
type context struct {
	session *session
	schema  *Schema
}
