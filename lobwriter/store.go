// Package lobwriter is the contract between lobsink and a database that keeps
// documents: claim, renew, release, flush, read.
//
// Each store is a sub-package that knows this package, batcher and one driver.
// lobtest holds the contract as a test suite with one subtest per sentence of
// the comments below.
package lobwriter

import (
	"context"
	"time"
)

// Store is what the owner of partitions needs of a database.
//
// All methods are safe for concurrent use. Every error has a Kind (see KindOf);
// an error without one counts as Transient: its outcome is unknown and the
// identical call may be repeated. No method retries by itself; see Retry.
//
// Times are Unix nanoseconds of the database's clock at the statement.
type Store interface {
	// Limits returns what one flush may carry. It never changes.
	Limits() Limits

	// Bind ties the set of tables to one stream. The first call stores the
	// stream; later calls compare. Another name or partition count is a Fatal
	// error that names both sides. Another creation time is no error: the
	// binding returns the stored one and the caller decides.
	Bind(ctx context.Context, s Stream) (Binding, error)

	// Attend writes the member row: the member is live until lease from now;
	// with a lease of 0 it is live no longer, and the row is gone. Rows of
	// members that are not live any more may be removed. It returns the
	// roster as it stands then.
	Attend(ctx context.Context, m Member, lease time.Duration) (Roster, error)

	// Leave removes the member row and frees every lease that is still the
	// member's, so that others may claim at once. Having neither is no error.
	Leave(ctx context.Context, memberID string) error

	// Claim takes a free, expired or own (same member ID) lease of a
	// partition, raises the epoch, stores the claim ID and sets the flush
	// number to 0. It waits for a flush of the previous owner that is under
	// way. A lease that somebody else holds is a Held error.
	Claim(ctx context.Context, r ClaimRequest) (Claim, error)

	// Renew extends the lease of a claim to lease from now and returns the
	// fence row as it stands. It never waits for a flush. When the lease row
	// is no longer of this claim it changes nothing and returns a Fenced error.
	Renew(ctx context.Context, c Claim, lease time.Duration) (Fence, error)

	// Release frees the lease of a claim, so that another member may claim at
	// once. When the lease row is no longer of this claim it does nothing.
	Release(ctx context.Context, c Claim) error

	// Fence reads the fence row of a partition without waiting for a flush.
	// A partition that was never claimed has the zero Fence with its life.
	Fence(ctx context.Context, partition int) (Fence, error)

	// Rows reads the stored rows of keys, in their order. A document that is
	// not there gives the zero Row.
	Rows(ctx context.Context, partition int, keys []string) ([]Row, error)

	// Flush stores groups of one partition in one transaction.
	//
	// It locks the fence row and compares life, epoch, claim ID and flush
	// number. Any difference: nothing is written and the error is a
	// *FencedError with the stored fence row.
	//
	// Then each group answers for itself, see Status. A group that is
	// rejected keeps nothing of itself and does not touch its neighbours.
	// Every answer but Appended brings the stored row.
	//
	// The flush number rises by 1 with every flush that is not fenced. The
	// checkpoint moves only forward, and only if every group was appended or
	// already there. Highest moves only forward.
	//
	// When Flush returns without an error the transaction is durable. After an
	// error that is neither Fenced nor Rejected nor Fatal the outcome is
	// unknown; only the identical flush may follow.
	Flush(ctx context.Context, f *Flush) (Receipt, error)

	// Close ends all connections. It does not release claims.
	Close() error
}

// Reader is what reading commands need of a database. It works while owners
// write, changes nothing, and sees only committed documents.
type Reader interface {
	// Document returns the row of one document, or ErrNotFound.
	Document(ctx context.Context, key string) (Document, error)

	// Documents returns up to q.Limit documents in byte order of the key,
	// beginning after q.After.
	Documents(ctx context.Context, q Query) ([]Document, error)

	// Read calls chunk for each piece of the document's text in order and
	// returns the row that belongs to exactly that text (one snapshot). The
	// piece is valid only during the call. An error of chunk ends the reading
	// and is returned. A document that is not there gives ErrNotFound.
	Read(ctx context.Context, key string, chunk func(piece []byte) error) (Document, error)

	// Fence reads the fence row of a partition, as Store.Fence does.
	Fence(ctx context.Context, partition int) (Fence, error)

	// Binding returns what the set of tables is bound to, or ErrNotFound
	// before the first Bind.
	Binding(ctx context.Context) (Binding, error)

	// Roster returns the live members and the leases, as Attend does.
	Roster(ctx context.Context) (Roster, error)

	Close() error
}

// Limits is what one flush may carry.
type Limits struct {
	// Documents is the most groups of one flush.
	Documents int
	// Bytes is the most text of one flush; a single larger fragment goes alone.
	Bytes int
	// ChunkBytes is the most bytes of one chunk.
	ChunkBytes int
	// Unit is how the store itself counts the length of text.
	Unit Unit
}

// Stream identifies the stream that a set of tables serves.
type Stream struct {
	Name string
	// Created is the stream's creation time in Unix nanoseconds.
	Created int64
	// Partitions is the stream's partition count, from 1.
	Partitions int
}

// Binding is what a set of tables is bound to.
type Binding struct {
	Stream
	// DatabaseID is random, drawn when the tables were made: 8 hex digits.
	DatabaseID string
	// Life counts the existences of the stream, from 1.
	Life int64
}

// Member is one running lobsink.
type Member struct {
	// ID is random, drawn at the start of the process: 16 hex digits.
	ID      string
	Name    string
	Version string
}

// Roster is who is there, and who may flush what.
type Roster struct {
	// Members are the live members, ordered by ID.
	Members []Presence
	// Leases are the lease rows, ordered by partition. A partition without one
	// is free.
	Leases []Lease
}

// Presence is the row of a live member.
type Presence struct {
	Member
	// Left is for how long it is live without attending again, by the
	// database's clock; above 0.
	Left time.Duration
}

// Lease is the lease row of a partition.
type Lease struct {
	Partition int
	MemberID  string
	// Left is the time to the end of the lease, by the database's clock. At or
	// below 0 it has ended, so long ago, and anybody may claim.
	Left time.Duration
}

// ClaimRequest asks for a partition.
type ClaimRequest struct {
	Partition int
	MemberID  string
	// ClaimID is random, drawn for this request: 16 hex digits.
	ClaimID string
	Lease   time.Duration
}

// Claim is the right to flush a partition, until somebody else claims it.
type Claim struct {
	Partition int
	MemberID  string
	// Fence is the fence row as the claim left it: its epoch and claim ID are
	// the claim's own, its flush number is 0.
	Fence Fence
}

// Fence is the fence row of a partition.
type Fence struct {
	Life    int64
	Epoch   int64
	ClaimID string
	// Flush is the number of the next flush that is accepted.
	Flush int64
	// Checkpoint: everything of the partition up to it is stored or
	// dead-lettered. Its time is the witness. Zero: none in this life.
	Checkpoint Position
	// Highest is the highest message of the partition that was ever stored.
	Highest Position
}

// Position is a message of the stream: its sequence and its time, in Unix
// nanoseconds. The zero Position is none.
type Position struct {
	Seq  uint64
	Time int64
}

// Mark is the last message of a document that is stored in it.
type Mark struct {
	Life int64
	Seq  uint64
}

// Before reports whether m lies before o.
func (m Mark) Before(o Mark) bool {
	return m.Life < o.Life || m.Life == o.Life && m.Seq < o.Seq
}

// State is the state of a document.
type State int16

// The states of a document. Their numbers are stored in databases.
const (
	Open        State = 1 // takes fragments
	Complete    State = 2 // final fragment stored, no holes; closed
	Incomplete  State = 3 // something of it is missing; takes fragments
	Quarantined State = 4 // the store refused a fragment; closed
)

// Closed reports whether a document in this state takes no more text.
func (s State) Closed() bool { return s == Complete || s == Quarantined }

func (s State) String() string {
	switch s {
	case Open:
		return "open"
	case Complete:
		return "complete"
	case Incomplete:
		return "incomplete"
	case Quarantined:
		return "quarantined"
	}
	return "absent"
}

// Row is the row of a document, without its times.
type Row struct {
	// Generation is one build of the document, from 1; 0: there is no row.
	Generation int64
	State      State
	Mark       Mark
	// First is the stream sequence of the first fragment.
	First uint64
	// Fragments counts all members: text, empty ones, holes and late ones.
	Fragments int64
	// Holes counts fragments that went to the dead letters.
	Holes int64
	// Late counts fragments that came after completion, and went to the dead
	// letters if they carried text.
	Late int64
	// Bytes is the length of the text.
	Bytes int64
	// Units is the length of the text in the store's own unit.
	Units int64
	// Chunks counts the chunks of the text: LOB writes or chunk rows.
	Chunks int64
	// CRC is the CRC-32C (Castagnoli) of the text.
	CRC uint32
	// Reason says why the document is incomplete or quarantined.
	Reason string
}

// Absent reports that there is no row.
func (r Row) Absent() bool { return r.Generation == 0 }

// Same reports whether two rows agree in what a flush compares: generation,
// state, mark, bytes and CRC.
func (r Row) Same(o Row) bool {
	return r.Generation == o.Generation && r.State == o.State && r.Mark == o.Mark && r.Bytes == o.Bytes && r.CRC == o.CRC
}

// Document is a document row as a reader sees it. Times are Unix nanoseconds
// of the database's clock.
type Document struct {
	Key       string
	Partition int
	Row
	CreatedAt int64
	UpdatedAt int64
}

// Query selects documents.
type Query struct {
	// After is the key after which to begin; "" begins at the first.
	After string
	// Prefix selects keys that begin with it, byte by byte.
	Prefix string
	// State selects one state; 0: all.
	State State
	// Limit is the most documents returned, from 1.
	Limit int
}

// Flush is one transaction for a partition's due groups. Groups may be empty.
type Flush struct {
	Partition int
	// Life, Epoch, ClaimID and Number are compared with the fence row.
	Life    int64
	Epoch   int64
	ClaimID string
	Number  int64
	// Checkpoint is where the checkpoint may move; zero: it stays.
	Checkpoint Position
	// Highest is the highest message read so far; zero: it stays.
	Highest Position
	// Groups has at most one group per key.
	Groups []Group
}

// Group is what a flush carries for one document.
type Group struct {
	Key string
	// Believed is the row that the owner believes to be stored; zero: none.
	Believed Row
	// After is the row after the group.
	After Row
	// First and Last are the sequences of the group's fragments, in the
	// flush's life. After.Mark is (life, Last).
	First, Last uint64
	// Chunks is the text, each at most ChunkBytes, none empty, each valid
	// UTF-8. A group of zero-length members has none.
	Chunks [][]byte
}

// Carries reports whether the group brings text or a state, which a closed
// document does not take.
func (g *Group) Carries() bool {
	return len(g.Chunks) > 0 || g.After.State != g.Believed.State
}

// Status is a group's answer. The order of the constants is the order in which
// they are decided. It is never 0.
type Status int16

// The answers of a group. Their numbers are used by stored procedures.
const (
	// AlreadyThere: the stored mark is at or above the group's last sequence.
	AlreadyThere Status = 1
	// Stale: the stored row differs from the believed one, or the group's
	// first sequence is not above the stored mark.
	Stale Status = 2
	// Closed: the document is complete or quarantined and the group carries
	// text or a state.
	Closed Status = 3
	// Appended: the chunks are appended and the row is Group.After.
	Appended Status = 4
	// Rejected: the database refuses this group for its content; nothing of
	// it is kept.
	Rejected Status = 5
)

func (s Status) String() string {
	switch s {
	case AlreadyThere:
		return "already there"
	case Stale:
		return "stale"
	case Closed:
		return "closed"
	case Appended:
		return "appended"
	case Rejected:
		return "rejected"
	}
	return "no answer"
}

// Answer is what became of one group.
type Answer struct {
	Status Status
	// Row is the stored row, for every status but Appended.
	Row Row
	// Code and Text say why, for Rejected: the database's own code
	// (SQLSTATE, ORA-nnnnn) and message.
	Code, Text string
}

// Receipt is the result of a flush.
type Receipt struct {
	// Number is the flush number that the next flush must carry.
	Number int64
	// Checkpoint is the stored checkpoint after the flush.
	Checkpoint Position
	// Answers are in the order of the flush's groups.
	Answers []Answer
}
