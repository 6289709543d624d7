package consumer

import (
	"fmt"
	"sync"

	"github.com/lobsink/lobsink/lobwriter"
)

// Status is what a running consumer says about itself, for readiness. The zero
// value is not ready to use; see NewStatus.
type Status struct {
	mu       sync.Mutex
	natsUp   bool
	dbErr    error
	dbSeen   bool
	owned    []bool
	reported map[int]error
}

// NewStatus returns the status of a consumer that has not begun.
func NewStatus() *Status { return &Status{reported: map[int]error{}} }

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
	checks := []Check{{Name: "nats"}, {Name: "database"}, {Name: "partitions"}}
	if !s.natsUp {
		checks[0].Err = fmt.Errorf("NATS does not answer")
	}
	switch {
	case !s.dbSeen:
		checks[1].Err = fmt.Errorf("the database has not answered yet")
	case s.dbErr != nil:
		checks[1].Err = s.dbErr
	}
	n := 0
	for _, owned := range s.owned {
		if owned {
			n++
		}
	}
	if n < len(s.owned) || n == 0 {
		checks[2].Err = fmt.Errorf("%d of %d partitions owned", n, len(s.owned))
		for i := range s.owned {
			if err := s.reported[i]; err != nil {
				checks[2].Err = fmt.Errorf("%w; %w", checks[2].Err, err)
			}
		}
	}
	return checks
}

func (s *Status) nats(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.natsUp = up
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
}

func (s *Status) partition(i int, owned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned[i] = owned
	if owned {
		delete(s.reported, i)
	}
}

func (s *Status) report(i int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported[i] = err
}
