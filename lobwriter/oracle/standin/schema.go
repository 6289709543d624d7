package standin

import (
	"sync"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// limits are far above what a flush may have: only the store keeps to its own.
var limits = lobwriter.Limits{Documents: 1 << 20, Bytes: 1 << 30, ChunkBytes: 32767, Unit: lobwriter.UTF16}

// lockWait is how long a call waits for a fence row.
const lockWait = 5 * time.Second

// defaultHistory is how many flushes Rewind can go back, unless KeepHistory says
// otherwise.
const defaultHistory = 16

// Schema is a set of tables and its package.
type Schema struct {
	// Memory is what the tables hold.
	Memory *lobtest.Memory

	mu sync.Mutex
	// fences are the locks of the fence rows, leases those of the lease rows.
	fences, leases map[int64]chan struct{}
	// databaseID is that of the binding; "": the reference store's own.
	databaseID string
	writes     int64
	last       body
	damaged    map[string]bool
	refused    map[string]int
	// before are the tables as they were before the last flushes, the latest
	// last; keep of them.
	before []lobtest.Snapshot
	keep   int
}

func newSchema() *Schema {
	return &Schema{
		Memory: lobtest.NewMemory(limits), fences: map[int64]chan struct{}{}, leases: map[int64]chan struct{}{},
		damaged: map[string]bool{}, refused: map[string]int{}, keep: defaultHistory,
	}
}

// Hold locks the fence row of a partition, as a flush under way does.
func (s *Schema) Hold(partition int) (release func()) {
	lock := s.lock(s.fences, int64(partition))
	lock <- struct{}{}
	return func() { <-lock }
}

// HoldLease locks the lease row of a partition, as a claim under way does.
func (s *Schema) HoldLease(partition int) (release func()) {
	lock := s.lock(s.leases, int64(partition))
	lock <- struct{}{}
	return func() { <-lock }
}

func (s *Schema) lock(of map[int64]chan struct{}, partition int64) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of[partition] == nil {
		of[partition] = make(chan struct{}, 1)
	}
	return of[partition]
}

// SetDatabaseID gives the tables an identity of their own.
func (s *Schema) SetDatabaseID(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.databaseID = id
}

func (s *Schema) identity() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.databaseID
}

// LOBWrites counts the calls of DBMS_LOB.WRITEAPPEND that were committed.
func (s *Schema) LOBWrites() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Damage has one byte of a document's text read as another one.
func (s *Schema) Damage(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damaged[key] = true
}

// Refuse has every write to a document fail with an error, as a damaged block
// does; 0: no longer.
func (s *Schema) Refuse(key string, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[key] = code
}

// KeepHistory has the tables of the last n flushes kept for Rewind.
func (s *Schema) KeepHistory(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep = n
}

// Rewind takes the tables back to before the last k flushes, as a failover to a
// late standby does. It returns false if there were not as many.
func (s *Schema) Rewind(k int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := len(s.before) - k
	if k < 1 || at < 0 {
		return false
	}
	s.Memory.Restore(s.before[at])
	s.before = s.before[:at]
	return true
}

// remember takes a snapshot before a flush.
func (s *Schema) remember() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keep == 0 {
		return
	}
	if len(s.before) == s.keep {
		s.before = append(s.before[:0], s.before[1:]...)
	}
	s.before = append(s.before, s.Memory.Snapshot())
}

// lockFence waits for a fence row as SELECT FOR UPDATE WAIT 5 does.
func (c *context) lockFence(partition int64) (unlock func(), err error) {
	lock := c.schema.lock(c.schema.fences, partition)
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	default:
	}
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-c.session.gone:
		return nil, failure(3113, "end-of-file on communication channel")
	case <-c.session.broken:
		return nil, failure(1013, "user requested cancel of current operation")
	case <-time.After(lockWait):
		return nil, failure(30006, "resource busy; acquire with WAIT timeout expired")
	}
}

// lockLease takes a lease row as SELECT FOR UPDATE SKIP LOCKED does.
func (c *context) lockLease(partition int64) (unlock func(), ok bool) {
	lock := c.schema.lock(c.schema.leases, partition)
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, true
	default:
		return nil, false
	}
}
