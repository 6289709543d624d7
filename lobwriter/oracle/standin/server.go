package standin

import (
	"fmt"
	"maps"
	"net"
	"sync"
	"time"
)

// Operations of a Request.
const (
	Login   = "login"
	Execute = "execute"
	LOB     = "lob"
)

// Request is what a client asks for: one round trip.
type Request struct {
	// N counts the requests of the server, from 1.
	N int64
	// Op is login, execute, ping, commit, rollback or lob.
	Op string
	// Procedure is the one that an execute calls, such as "flush"; "": none.
	Procedure string
	// SQL is the text of an execute.
	SQL string
	// Service is what the session has connected to.
	Service string
	// Module, Action and ClientInfo are the session's, as the database shows them.
	Module, Action, ClientInfo string
}

// Fault is what goes wrong with a request; the zero Fault: nothing.
type Fault struct {
	// Code is the error that the client gets, ORA-Code; 0: none.
	Code int
	// Cut ends the connection.
	Cut bool
	// After makes the call first, and commits it; then Code or Cut is the answer.
	After bool
	// Delay is how long the server takes, unless the client gives up.
	Delay time.Duration
	// Null is an OUT parameter whose first element is NULL in the reply.
	Null string
}

// Error is an error of the database.
type Error struct {
	Code int
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("ORA-%05d: %s", e.Code, e.Text) }

func failure(code int, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// Server is a database. It serves the sets of tables that are installed in it.
type Server struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex
	faults   func(Request) Fault
	trips    map[string]int
	requests int64
	conns    map[net.Conn]bool
	schemas  map[string]*Schema
	thawed   chan struct{} // closed: it answers
	account  account
	// compileErrors are the rows of ALL_ERRORS: name, type, line, position, text.
	compileErrors [][]string
	// refused are services without an instance, and the error of a logon there.
	refused map[string]int
	// running and most are how many calls of a procedure run, and have run, at the
	// same time.
	running, most map[string]int
	place         Place
}

// account is who may log on.
type account struct {
	user, password string
	refuse         int // the error of every logon; 0: none
}

// Place is where sessions are, and as what.
type Place struct{ Role, CharacterSet, Database, Container, Instance string }

// Start listens on an address, such as 127.0.0.1:0. Any user with any password may
// log on, see SetAccount.
func Start(address string) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	thawed := make(chan struct{})
	close(thawed)
	s := &Server{
		listener: l, trips: map[string]int{}, conns: map[net.Conn]bool{}, schemas: map[string]*Schema{}, thawed: thawed,
		refused: map[string]int{}, running: map[string]int{}, most: map[string]int{},
		place: Place{Role: "PRIMARY", CharacterSet: "AL32UTF8", Database: "STANDIN", Container: "PDB1", Instance: "standin1"},
	}
	s.wg.Go(s.accept)
	return s, nil
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.wg.Go(func() {
			newSession(s, c).serve()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// Connect is the connect string of a service of the server. Services have no
// meaning beyond their name.
func (s *Server) Connect(service string) string {
	return s.listener.Addr().String() + "/" + service
}

// Close ends all sessions and the server.
func (s *Server) Close() {
	_ = s.listener.Close() // it has nothing to say
	s.Cut()
	s.Freeze(false)
	s.wg.Wait()
}

// Cut ends all connections: clients see ORA-03113.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close() // it has nothing to say
	}
}

// Freeze has the server answer nothing, until it is thawed.
func (s *Server) Freeze(frozen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.thawed:
		if frozen {
			s.thawed = make(chan struct{})
		}
	default:
		if !frozen {
			close(s.thawed)
		}
	}
}

// SetFaults has a function asked what goes wrong with each request; nil: nothing.
// It is called by many goroutines.
func (s *Server) SetFaults(faults func(Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = faults
}

// SetAccount says who may log on; an empty user is external authentication. With
// refuse, every logon fails with that error.
func (s *Server) SetAccount(user, password string, refuse int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.account = account{user, password, refuse}
}

// RefuseService has every logon at a service fail with an error, as the listener
// does when no instance offers it; 0: no longer.
func (s *Server) RefuseService(service string, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[service] = code
}

// MostAtOnce returns how many calls of a procedure have run at the same time.
func (s *Server) MostAtOnce(procedure string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most[procedure]
}

// runs counts a call of a procedure that runs until ended is called.
func (s *Server) runs(procedure string) (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[procedure]++
	s.most[procedure] = max(s.most[procedure], s.running[procedure])
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running[procedure]--
	}
}

// SetCompileErrors says what ALL_ERRORS has: name, type, line, position and text
// of each error.
func (s *Server) SetCompileErrors(rows ...[]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compileErrors = rows
}

// SetPlace says where sessions are, from the next one on.
func (s *Server) SetPlace(change func(*Place)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.place)
}

// Trips returns the round trips since the last call: by operation, for an execute
// of a procedure by the procedure's name, and all of them as "".
func (s *Server) Trips() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	trips := maps.Clone(s.trips)
	clear(s.trips)
	return trips
}

// Install makes an empty set of tables, whose names begin with a prefix, and
// their package. What was there is gone.
func (s *Server) Install(prefix string) *Schema {
	schema := newSchema()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schemas[prefix] = schema
	return schema
}

// Schema returns a set of tables; nil: there is none.
func (s *Server) Schema(prefix string) *Schema {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.schemas[prefix]
}

// ensure makes a set of tables unless it is there.
func (s *Server) ensure(prefix string) {
	if s.Schema(prefix) == nil {
		s.Install(prefix)
	}
}

func (s *Server) remove(prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.schemas, prefix)
}

// arrived counts a request and says what goes wrong with it.
func (s *Server) arrived(r Request) Fault {
	s.mu.Lock()
	s.requests++
	r.N = s.requests
	s.trips[""]++
	if r.Procedure != "" {
		s.trips[r.Procedure]++
	} else {
		s.trips[r.Op]++
	}
	faults, thawed := s.faults, s.thawed
	s.mu.Unlock()
	<-thawed
	if faults == nil {
		return Fault{}
	}
	return faults(r)
}
