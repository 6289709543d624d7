package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/lobsink/lobsink/lobwriter"
)

// Operator is a lobwriter.Operator of a SQLite file. It needs no lock of the
// operating system: SQLite's own write lock, held for one short transaction at a
// time, is that of every fence row.
type Operator struct {
	Reader
	store *Store
	// scratch has one connection, on which generations are built.
	scratch *sql.DB
}

var _ lobwriter.Operator = (*Operator)(nil)

// OpenOperator opens an existing file with tables of exactly this program's
// version, to read and to change it beside a running lobsink.
func OpenOperator(ctx context.Context, o Options) (*Operator, error) {
	o = o.withDefaults()
	f, err := openFile(ctx, o, true)
	if err != nil {
		return nil, err
	}
	scratch, err := openScratch(ctx, o.Path)
	if err != nil {
		f.close()
		return nil, classify("open "+o.Path, err)
	}
	return &Operator{Reader{f, o.Now}, &Store{o: o, file: f}, scratch}, nil
}

// openScratch opens a connection that writes as others do, and keeps what is
// built in a temporary file of SQLite, which has no name that outlives it.
func openScratch(ctx context.Context, path string) (*sql.DB, error) {
	db, err := openWriter(path, "rw")
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(1)
	conn, err := db.Conn(ctx)
	if err == nil {
		err = conn.Close()
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// Close implements lobwriter.Reader.
func (op *Operator) Close() error { return errors.Join(op.scratch.Close(), op.Reader.Close()) }

// Limits implements lobwriter.Operator.
func (op *Operator) Limits() lobwriter.Limits { return op.store.Limits() }
