// Package postgres keeps documents in PostgreSQL: one row for each document, and
// its text in rows of one chunk each, so that nothing that is stored is ever
// written again.
//
// What has to be one transaction is one function of the database, in
// deploy/postgres. Called in autocommit, a flush is one round trip.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lobsink/lobsink/internal/schema"
	"github.com/lobsink/lobsink/lobwriter"
)

// The limits of one flush. Beyond them a flush only holds the fence row longer,
// and eight partitions hold more memory: with the server on the same two cores,
// 40 MB in documents of 80 KB were stored as fast with 1 MiB as with 4 MiB, with
// 210 MB resident in place of 250. BenchmarkFlush: 1,024 documents of 300 bytes
// take 44 ms.
const (
	maxDocuments = 1024
	maxBytes     = 1 << 20
	// chunkBytes fits, as the default, every store of lobsink.
	chunkBytes = 32767
)

// Connections of a Store.
const (
	// defaultFlushes is the default of Options.Flushes, and that of partitions.
	defaultFlushes = 8
	// leaseConnections are for what must not wait for a flush.
	leaseConnections = 2
	// readConnections are the most of a Reader.
	readConnections = 4
)

// Options are the settings of a store and of a reader.
type Options struct {
	// URL is the database's, in any form that libpq knows.
	URL string
	// Prefix is what the names of all objects begin with; "": lobsink_.
	Prefix string
	// ChunkBytes is the most bytes of one chunk; 0: 32,767.
	ChunkBytes int
	// Lease is the lease of the claims, a third of which is the longest wait for
	// a lock; 0: 10 s.
	Lease time.Duration
	// FlushTimeout is the deadline that the caller gives a flush. The server
	// gives up a second later; 0: 8 s.
	FlushTimeout time.Duration
	// Flushes is the most flushes at the same time, each on its own connection;
	// more wait. 0: 8.
	Flushes int
}

func (o Options) withDefaults() Options {
	o.Prefix = cmp.Or(o.Prefix, schema.Prefix)
	o.ChunkBytes = cmp.Or(o.ChunkBytes, chunkBytes)
	o.Lease = cmp.Or(o.Lease, 10*time.Second)
	o.FlushTimeout = cmp.Or(o.FlushTimeout, 8*time.Second)
	o.Flushes = cmp.Or(o.Flushes, defaultFlushes)
	return o
}

// Store is a lobwriter.Store in PostgreSQL. Any number of members share the
// tables.
type Store struct {
	o Options
	// documents are the connections of what may wait for the fence row of a
	// partition, and leases those of what may not.
	documents, leases *pgxpool.Pool
}

var _ lobwriter.Store = (*Store)(nil)

// Open connects to a database with tables of exactly this program's version.
// Anything else is a Fatal error that says what to do; a server that does not
// answer is a Transient one.
//
// A URL of several hosts leads to the one that takes writes.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	documents, err := connect(ctx, o, owner, o.Flushes)
	if err != nil {
		return nil, err
	}
	if err := checkTables(ctx, documents, o); err != nil {
		documents.Close()
		return nil, err
	}
	leases, err := connect(ctx, o, owner, leaseConnections)
	if err != nil {
		documents.Close()
		return nil, err
	}
	return &Store{o, documents, leases}, nil
}

// Close implements lobwriter.Store.
func (s *Store) Close() error {
	s.documents.Close()
	s.leases.Close()
	return nil
}

// Limits implements lobwriter.Store.
func (s *Store) Limits() lobwriter.Limits { return s.o.limits() }

func (o Options) limits() lobwriter.Limits {
	return lobwriter.Limits{Documents: maxDocuments, Bytes: maxBytes, ChunkBytes: o.ChunkBytes, Unit: lobwriter.Runes}
}

// Flush implements lobwriter.Store.
//
// The first call does all groups at once. If the database refuses the content of
// one, it has undone the call as a whole, which is an answer and no unknown
// outcome: the same flush once more, group by group, finds out which it is.
func (s *Store) Flush(ctx context.Context, f *lobwriter.Flush) (receipt lobwriter.Receipt, err error) {
	c, err := newCall(f)
	if err != nil {
		return lobwriter.Receipt{}, err
	}
	err = use(ctx, s.documents, "flush", func(conn *pgx.Conn) error {
		receipt, err = s.flush(ctx, conn, c, atOnce)
		if isContent(err) {
			receipt, err = s.flush(ctx, conn, c, oneByOne)
		}
		return err
	})
	if err != nil {
		return lobwriter.Receipt{}, err
	}
	return receipt, nil
}

// flush makes one call. Whatever does not look like a reply to this very call is
// an error: no answer is inferred from something missing.
func (s *Store) flush(ctx context.Context, conn *pgx.Conn, c *call, m mode) (lobwriter.Receipt, error) {
	rows, err := conn.Query(ctx, withPrefix(flushQuery, s.o.Prefix), c.arguments(m)...)
	if err != nil {
		return lobwriter.Receipt{}, err
	}
	defer rows.Close()
	if !rows.Next() {
		return lobwriter.Receipt{}, errors.Join(rows.Err(), errNoReply)
	}
	accepted, fence, err := scanVerdict(rows)
	if err != nil {
		return lobwriter.Receipt{}, err
	}
	answers := make([]lobwriter.Answer, 0, len(c.flush.Groups))
	for rows.Next() {
		a, err := scanAnswer(rows, len(answers)+1)
		if err != nil {
			return lobwriter.Receipt{}, err
		}
		answers = append(answers, a)
	}
	// Here ends what the server sent, and with it the transaction.
	switch {
	case rows.Err() != nil:
		return lobwriter.Receipt{}, rows.Err()
	case !accepted:
		return lobwriter.Receipt{}, &lobwriter.FencedError{Stored: fence}
	case len(answers) != len(c.flush.Groups) || fence.Flush != c.flush.Number+1:
		return lobwriter.Receipt{}, errNoReply
	}
	return lobwriter.Receipt{Number: fence.Flush, Checkpoint: fence.Checkpoint, Answers: answers}, nil
}

// withPrefix names the objects of a statement.
func withPrefix(query, prefix string) string {
	return strings.ReplaceAll(query, schema.Prefix, prefix)
}
