package lobtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/lobsink/lobsink/lobwriter"
)

// Memory is the store contract as a program: an in-memory Store and Reader that
// says in plain Go what the others say in SQL. It starts no goroutine and
// decides by nothing but the calls made and its clock, so that a simulation may
// replay it.
//
// Beyond the contract it refuses, as Invalid, a flush that no owner may send.
type Memory struct {
	// Now is the database's clock, in Unix nanoseconds.
	Now func() int64

	limits lobwriter.Limits
	mu     sync.Mutex
	tables tables
}

var (
	_ lobwriter.Store  = (*Memory)(nil)
	_ lobwriter.Reader = (*Memory)(nil)
)

// tables is all that Memory remembers.
type tables struct {
	binding   lobwriter.Binding
	members   map[string]member
	fences    map[int]lobwriter.Fence
	leases    map[int]lease
	documents map[string]document
	purged    map[int]lobwriter.Mark
}

type member struct {
	lobwriter.Member
	until int64
}

// lease is the lease row of a partition: whose claim it is of, and until when.
type lease struct {
	memberID string
	epoch    int64
	claimID  string
	until    int64
}

func (l lease) of(c lobwriter.Claim) bool {
	return l.memberID == c.MemberID && l.epoch == c.Fence.Epoch && l.claimID == c.Fence.ClaimID
}

type document struct {
	lobwriter.Document
	text    []byte
	repairs []lobwriter.Repair
}

// NewMemory returns an empty database with the given limits, whose clock is the
// one of package time.
func NewMemory(l lobwriter.Limits) *Memory {
	return &Memory{
		Now:    func() int64 { return time.Now().UnixNano() },
		limits: l,
		tables: tables{
			binding:   lobwriter.Binding{DatabaseID: "0badcafe"},
			members:   map[string]member{},
			fences:    map[int]lobwriter.Fence{},
			leases:    map[int]lease{},
			documents: map[string]document{},
			purged:    map[int]lobwriter.Mark{},
		},
	}
}

// Snapshot is the content of a Memory at one moment, as a backup has it.
type Snapshot struct{ tables tables }

// Snapshot takes a backup of everything. Later calls do not change it.
func (m *Memory) Snapshot() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Snapshot{m.tables.clone()}
}

// Restore goes back to a snapshot, which can be restored again.
func (m *Memory) Restore(s Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables = s.tables.clone()
}

func (t tables) clone() tables {
	t.members = maps.Clone(t.members)
	t.fences = maps.Clone(t.fences)
	t.leases = maps.Clone(t.leases)
	t.documents = maps.Clone(t.documents)
	t.purged = maps.Clone(t.purged)
	for key, d := range t.documents {
		// Text only ever grows at its end, so a copy may share it if the next
		// append has to copy it.
		d.text = slices.Clip(d.text)
		t.documents[key] = d
	}
	return t
}

// Limits returns what NewMemory was given.
func (m *Memory) Limits() lobwriter.Limits { return m.limits }

// Close does nothing: the content stays.
func (m *Memory) Close() error { return nil }

// Bind implements lobwriter.Store.
func (m *Memory) Bind(ctx context.Context, s lobwriter.Stream) (lobwriter.Binding, error) {
	defer m.lock()()
	b := &m.tables.binding
	switch {
	case ctx.Err() != nil:
		return lobwriter.Binding{}, ctx.Err()
	case b.Life == 0:
		b.Stream, b.Life = s, 1
	case b.Name != s.Name || b.Partitions != s.Partitions:
		return lobwriter.Binding{}, failure("bind", lobwriter.Fatal,
			"the tables serve stream %s with %d partitions, not %s with %d", b.Name, b.Partitions, s.Name, s.Partitions)
	}
	return *b, nil
}

// Attend implements lobwriter.Store.
func (m *Memory) Attend(ctx context.Context, who lobwriter.Member, d time.Duration) (lobwriter.Roster, error) {
	defer m.lock()()
	if ctx.Err() != nil {
		return lobwriter.Roster{}, ctx.Err()
	}
	now := m.Now()
	m.tables.members[who.ID] = member{who, now + int64(d)}
	maps.DeleteFunc(m.tables.members, func(_ string, o member) bool { return o.until <= now })
	return m.roster(now), nil
}

func (m *Memory) roster(now int64) (r lobwriter.Roster) {
	for _, id := range slices.Sorted(maps.Keys(m.tables.members)) {
		if o := m.tables.members[id]; o.until > now {
			r.Members = append(r.Members, lobwriter.Presence{Member: o.Member, Left: time.Duration(o.until - now)})
		}
	}
	for _, p := range slices.Sorted(maps.Keys(m.tables.leases)) {
		l := m.tables.leases[p]
		r.Leases = append(r.Leases, lobwriter.Lease{Partition: p, MemberID: l.memberID, Left: time.Duration(l.until - now)})
	}
	return r
}

// Leave implements lobwriter.Store.
func (m *Memory) Leave(ctx context.Context, memberID string) error {
	defer m.lock()()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	delete(m.tables.members, memberID)
	maps.DeleteFunc(m.tables.leases, func(_ int, l lease) bool { return l.memberID == memberID })
	return nil
}

// Claim implements lobwriter.Store.
func (m *Memory) Claim(ctx context.Context, r lobwriter.ClaimRequest) (lobwriter.Claim, error) {
	defer m.lock()()
	if ctx.Err() != nil {
		return lobwriter.Claim{}, ctx.Err()
	}
	if r.Partition < 0 || r.Partition >= m.tables.binding.Partitions {
		return lobwriter.Claim{}, failure("claim", lobwriter.Invalid, "no partition %d", r.Partition)
	}
	now := m.Now()
	if l := m.tables.leases[r.Partition]; l.until > now && l.memberID != r.MemberID {
		return lobwriter.Claim{}, failure("claim", lobwriter.Held, "partition %d is held by %s", r.Partition, l.memberID)
	}
	f := m.fence(r.Partition)
	f.Epoch++
	f.ClaimID = r.ClaimID
	f.Flush = 0
	m.tables.fences[r.Partition] = f
	m.tables.leases[r.Partition] = lease{r.MemberID, f.Epoch, f.ClaimID, now + int64(r.Lease)}
	return lobwriter.Claim{Partition: r.Partition, MemberID: r.MemberID, Fence: f}, nil
}

// Renew implements lobwriter.Store.
func (m *Memory) Renew(ctx context.Context, c lobwriter.Claim, d time.Duration) (lobwriter.Fence, error) {
	defer m.lock()()
	if ctx.Err() != nil {
		return lobwriter.Fence{}, ctx.Err()
	}
	l := m.tables.leases[c.Partition]
	if !l.of(c) {
		return lobwriter.Fence{}, &lobwriter.FencedError{Stored: m.fence(c.Partition)}
	}
	l.until = m.Now() + int64(d)
	m.tables.leases[c.Partition] = l
	return m.fence(c.Partition), nil
}

// Release implements lobwriter.Store.
func (m *Memory) Release(ctx context.Context, c lobwriter.Claim) error {
	defer m.lock()()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if m.tables.leases[c.Partition].of(c) {
		delete(m.tables.leases, c.Partition)
	}
	return nil
}

// Fence implements lobwriter.Store and lobwriter.Reader.
func (m *Memory) Fence(ctx context.Context, partition int) (lobwriter.Fence, error) {
	defer m.lock()()
	if ctx.Err() != nil {
		return lobwriter.Fence{}, ctx.Err()
	}
	return m.fence(partition), nil
}

func (m *Memory) fence(partition int) lobwriter.Fence {
	if f, ok := m.tables.fences[partition]; ok {
		return f
	}
	return lobwriter.Fence{Life: m.tables.binding.Life}
}

// Rows implements lobwriter.Store.
func (m *Memory) Rows(ctx context.Context, _ int, keys []string) ([]lobwriter.Row, error) {
	defer m.lock()()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	rows := make([]lobwriter.Row, len(keys))
	for i, key := range keys {
		rows[i] = m.tables.documents[key].Row
	}
	return rows, nil
}

// Flush implements lobwriter.Store.
func (m *Memory) Flush(ctx context.Context, f *lobwriter.Flush) (lobwriter.Receipt, error) {
	defer m.lock()()
	if ctx.Err() != nil {
		return lobwriter.Receipt{}, ctx.Err()
	}
	fence, claimed := m.tables.fences[f.Partition]
	if !claimed || fence.Life != f.Life || fence.Epoch != f.Epoch || fence.ClaimID != f.ClaimID || fence.Flush != f.Number {
		return lobwriter.Receipt{}, &lobwriter.FencedError{Stored: m.fence(f.Partition)}
	}
	if err := m.check(f); err != nil {
		return lobwriter.Receipt{}, err
	}
	answers := make([]lobwriter.Answer, len(f.Groups))
	stored := true
	for i := range f.Groups {
		answers[i] = m.answer(f, &f.Groups[i])
		stored = stored && (answers[i].Status == lobwriter.Appended || answers[i].Status == lobwriter.AlreadyThere)
	}
	fence.Flush++
	if stored && f.Checkpoint.Seq > fence.Checkpoint.Seq {
		fence.Checkpoint = f.Checkpoint
	}
	if f.Highest.Seq > fence.Highest.Seq {
		fence.Highest = f.Highest
	}
	m.tables.fences[f.Partition] = fence
	return lobwriter.Receipt{Number: fence.Flush, Checkpoint: fence.Checkpoint, Answers: answers}, nil
}

// answer decides a group in the order of the statuses, and appends it if that is
// the answer.
func (m *Memory) answer(f *lobwriter.Flush, g *lobwriter.Group) lobwriter.Answer {
	d := m.tables.documents[g.Key]
	switch {
	case !d.Mark.Before(lobwriter.Mark{Life: f.Life, Seq: g.Last}):
		return lobwriter.Answer{Status: lobwriter.AlreadyThere, Row: d.Row}
	case !d.Row.Same(g.Believed), !d.Mark.Before(lobwriter.Mark{Life: f.Life, Seq: g.First}):
		return lobwriter.Answer{Status: lobwriter.Stale, Row: d.Row}
	case d.State.Closed() && g.Carries():
		return lobwriter.Answer{Status: lobwriter.Closed, Row: d.Row}
	}
	for _, c := range g.Chunks {
		if why := refusal(c); why != "" {
			return lobwriter.Answer{Status: lobwriter.Rejected, Row: d.Row, Code: "text", Text: why}
		}
	}
	now := m.Now()
	if d.Absent() {
		d.Key, d.Partition, d.CreatedAt = g.Key, f.Partition, now
	}
	for _, c := range g.Chunks {
		d.text = append(d.text, c...)
	}
	d.Row, d.UpdatedAt = g.After, now
	m.tables.documents[g.Key] = d
	return lobwriter.Answer{Status: lobwriter.Appended}
}

// refusal says why a database takes no such text, or "".
func refusal(text []byte) string {
	if !utf8.Valid(text) {
		return "invalid UTF-8"
	}
	if bytes.IndexByte(text, 0) >= 0 {
		return "U+0000"
	}
	return ""
}

// check refuses a flush that breaks what lobwriter says of Flush and Group.
func (m *Memory) check(f *lobwriter.Flush) error {
	if len(f.Groups) > m.limits.Documents {
		return failure("flush", lobwriter.Invalid, "%d groups, the limit is %d", len(f.Groups), m.limits.Documents)
	}
	size := int64(0)
	keys := make(map[string]bool, len(f.Groups))
	for i := range f.Groups {
		g := &f.Groups[i]
		text := int64(0)
		for _, c := range g.Chunks {
			if len(c) == 0 || len(c) > m.limits.ChunkBytes {
				return failure("flush", lobwriter.Invalid, "%q has a chunk of %d bytes, the limit is %d", g.Key, len(c), m.limits.ChunkBytes)
			}
			text += int64(len(c))
		}
		size += text
		switch {
		case keys[g.Key]:
			return failure("flush", lobwriter.Invalid, "two groups of %q", g.Key)
		case g.First == 0 || g.First > g.Last || g.After.Mark != lobwriter.Mark{Life: f.Life, Seq: g.Last}:
			return failure("flush", lobwriter.Invalid, "%q has fragments %d to %d and mark %v", g.Key, g.First, g.Last, g.After.Mark)
		case g.After.Bytes != g.Believed.Bytes+text || g.After.Absent() || g.After.State < lobwriter.Open || g.After.State > lobwriter.Quarantined:
			return failure("flush", lobwriter.Invalid, "%q has %d bytes and a row that does not follow from the believed one", g.Key, text)
		}
		keys[g.Key] = true
	}
	if size > int64(m.limits.Bytes) && len(f.Groups) > 1 {
		return failure("flush", lobwriter.Invalid, "%d bytes, the limit is %d", size, m.limits.Bytes)
	}
	return nil
}

// lock makes a call a transaction: `defer m.lock()()`.
func (m *Memory) lock() (unlock func()) {
	m.mu.Lock()
	return m.mu.Unlock
}

func failure(op string, kind lobwriter.Kind, format string, args ...any) error {
	return &lobwriter.Error{Kind: kind, Op: op, Err: fmt.Errorf(format, args...)}
}
