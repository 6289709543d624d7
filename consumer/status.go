package consumer

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lobsink/lobsink/lobwriter"
)

// Status is what a running consumer says about itself, for readiness. The zero
// value is not ready to use; see NewStatus.
type Status struct {
	mu       sync.Mutex
	natsErr  error
	dbErr    error
	dbSeen   bool
	owned    []bool
	holdings []Holding
	assigned []bool        // the partitions that this member is to own; nil: not known yet
	reported map[int]error // why a partition stands still
}

// errDisconnected is the state of a connection that is being made again.
var errDisconnected = errors.New("NATS does not answer")

// NewStatus returns the status of a consumer that has not begun.
func NewStatus() *Status { return &Status{natsErr: errDisconnected, reported: map[int]error{}} }

// Check is one thing that must be well for the consumer to be ready.
type Check struct {
	Name string
	// Err says what is not well; nil: it is.
	Err error
}

// Checks returns all checks, in a fixed order.
func (s *Status) Checks() []Check {
	s.mu.Lock()
	defer s.mu.Unlock()
	checks := []Check{{Name: "nats", Err: s.natsErr}, {Name: "database"}, {Name: "partitions"}}
	switch {
	case !s.dbSeen:
		checks[1].Err = fmt.Errorf("the database has not answered yet")
	case s.dbErr != nil:
		checks[1].Err = s.dbErr
	}
	// A member without a share is ready: it stands by.
	n, share := 0, 0
	for i, assigned := range s.assigned {
		if assigned {
			share++
		}
		if assigned && s.owned[i] {
			n++
		}
	}
	switch {
	case s.assigned == nil:
		checks[2].Err = errors.New("this member has not learned its share of the partitions yet")
	case n < share:
		checks[2].Err = fmt.Errorf("%d of %d partitions owned", n, share)
	}
	for i := range s.owned {
		switch err := s.reported[i]; {
		case err == nil:
		case checks[2].Err == nil:
			checks[2].Err = err
		default:
			checks[2].Err = fmt.Errorf("%w; %w", checks[2].Err, err)
		}
	}
	return checks
}

// nats notes the last word of NATS; nil: all is well.
func (s *Status) nats(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.natsErr = err
}

// database notes the outcome of a call: a lease that is held or a claim that is
// fenced is an answer.
func (s *Status) database(err error) {
	if k := lobwriter.KindOf(err); err != nil && (k == lobwriter.Held || k == lobwriter.Fenced) {
		err = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dbErr, s.dbSeen = err, s.dbSeen || err == nil
}

func (s *Status) serves(partitions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned = make([]bool, partitions)
	s.holdings = make([]Holding, partitions)
}

// partition notes that a partition came to be owned, or is not any more.
func (s *Status) partition(i int, owned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned[i] = owned
	if owned {
		delete(s.reported, i)
	}
}

// shares notes which partitions this member is to own.
func (s *Status) shares(assigned []bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned = assigned
	for i, own := range assigned {
		if !own {
			delete(s.reported, i) // another member says so
		}
	}
}

// report notes why a partition stands still; nil: it does not.
func (s *Status) report(i int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.reported, i)
		return
	}
	s.reported[i] = err
}
