// Package postgres keeps documents in PostgreSQL: one row for each document, and
// its text in rows of one chunk each, so that nothing that is stored is ever
// written again.
//
// A flush is one call of one function in autocommit: write and commit are one
// round trip. The function is in deploy/postgres.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/schema"
	"github.com/lobsink/lobsink/lobwriter"
)

// The limits of one flush. Larger ones are no faster, see BenchmarkFlush.
const (
	maxDocuments = 1024
	maxBytes     = 4 << 20
	chunkBytes   = 32767
)

// Options are the settings of a store and of a reader.
type Options struct {
	// URL is the database's, in any form that libpq knows.
	URL string
	// Prefix is what the names of the tables begin with; "": lobsink_.
	Prefix string
	// ChunkBytes is the most bytes of one chunk; 0: 32,767.
	ChunkBytes int
	// Lease and FlushTimeout bound how long a session may wait for locks and
	// for a statement, so that a member that is gone leaves none behind;
	// 0: 10 s and 8 s.
	Lease, FlushTimeout time.Duration
}

func (o Options) withDefaults() Options {
	o.Prefix = cmp.Or(o.Prefix, "lobsink_")
	o.ChunkBytes = cmp.Or(o.ChunkBytes, chunkBytes)
	o.Lease = cmp.Or(o.Lease, 10*time.Second)
	o.FlushTimeout = cmp.Or(o.FlushTimeout, 8*time.Second)
	return o
}

// Store is a lobwriter.Store in PostgreSQL. Any number of members may share the
// tables.
type Store struct {
	tables
	o Options
}

var _ lobwriter.Store = (*Store)(nil)

// Open connects to a database whose tables are of exactly this program's
// version. Anything else is a Fatal error that says what to do; a server that
// does not answer is a Transient one.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	t, err := connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Store{tables: t, o: o}, nil
}

// Limits implements lobwriter.Store.
func (s *Store) Limits() lobwriter.Limits {
	return lobwriter.Limits{Documents: maxDocuments, Bytes: maxBytes, ChunkBytes: s.o.ChunkBytes, Unit: lobwriter.Runes}
}

// Close implements lobwriter.Store.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

// tables are the tables of one prefix, over a pool of connections.
type tables struct {
	pool   *pgxpool.Pool
	prefix string
}

// sql puts the prefix into a statement, which is written with lobsink_.
func (t *tables) sql(query string) string {
	if t.prefix == "lobsink_" {
		return query
	}
	return strings.ReplaceAll(query, "lobsink_", t.prefix)
}

func connect(ctx context.Context, o Options) (tables, error) {
	cfg, err := poolConfig(o)
	if err != nil {
		return tables{}, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return tables{}, classify("connect", err)
	}
	t := tables{pool: pool, prefix: o.Prefix}
	if err := t.check(ctx, cfg.ConnConfig, o); err != nil {
		pool.Close()
		return tables{}, classify("connect", err)
	}
	return t, nil
}

// check makes sure that text can be stored as it is and that the tables are of
// this version.
func (t *tables) check(ctx context.Context, cfg *pgx.ConnConfig, o Options) error {
	var encoding string
	if err := t.pool.QueryRow(ctx, "show server_encoding").Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF8" {
		return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "connect",
			Err:  fmt.Errorf("the encoding of database %s is %s, which cannot hold every document", cfg.Database, encoding),
			Hint: "create one with: create database NAME encoding 'UTF8' template template0"}
	}
	db := openDB(cfg)
	defer db.Close()
	return schema.Check(ctx, db, schema.PostgreSQL, deploy.PostgreSQL(), o.Prefix, "lobsink setup --store postgres://...")
}

// Flush implements lobwriter.Store.
func (s *Store) Flush(ctx context.Context, f *lobwriter.Flush) (lobwriter.Receipt, error) {
	a := newArguments(f)
	r, err := s.flush(ctx, f, a, false)
	if refusesContent(err) {
		// The answer of the database: nothing of it is kept. Once more, so
		// that only what it refuses is left out.
		r, err = s.flush(ctx, f, a, true)
	}
	return r, classify("flush", err)
}

func (s *Store) flush(ctx context.Context, f *lobwriter.Flush, a *arguments, oneByOne bool) (lobwriter.Receipt, error) {
	rows, err := s.pool.Query(ctx, s.sql(flushSQL), a.list(f, oneByOne)...)
	if err != nil {
		return lobwriter.Receipt{}, err
	}
	defer rows.Close()
	r := lobwriter.Receipt{Answers: make([]lobwriter.Answer, len(f.Groups))}
	answered := 0
	fenced := (*lobwriter.FencedError)(nil)
	for rows.Next() {
		row, err := scanAnswer(rows)
		switch {
		case err != nil:
			return lobwriter.Receipt{}, err
		case row.ord == 0 && row.fenced:
			fenced = &lobwriter.FencedError{Stored: row.fence}
		case row.ord == 0:
			r.Number, r.Checkpoint = row.fence.Flush, row.fence.Checkpoint
		case row.ord > len(f.Groups) || r.Answers[row.ord-1].Status != 0 || row.answer.Status == 0:
			return lobwriter.Receipt{}, fmt.Errorf("answer %d of %d is not one that a flush has", row.ord, len(f.Groups))
		default:
			r.Answers[row.ord-1] = row.answer
			answered++
		}
	}
	switch {
	case rows.Err() != nil:
		return lobwriter.Receipt{}, rows.Err()
	case fenced != nil:
		return lobwriter.Receipt{}, fenced
	case r.Number == 0 || answered != len(f.Groups):
		return lobwriter.Receipt{}, fmt.Errorf("%d answers to %d groups", answered, len(f.Groups))
	}
	return r, nil
}

// refusesContent reports whether the database refuses what a flush contains,
// and has undone it.
func refusesContent(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && lobwriter.KindOf(classify("flush", err)) == lobwriter.Invalid
}
