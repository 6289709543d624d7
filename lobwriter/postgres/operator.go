package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lobsink/lobsink/lobwriter"
)

// Operator is a lobwriter.Operator of a PostgreSQL database.
type Operator struct {
	Reader
	o Options
	// writers are the connections of what changes something, each with the
	// timeouts of an owner.
	writers *pgxpool.Pool
}

var _ lobwriter.Operator = (*Operator)(nil)

// OpenOperator opens tables of exactly this program's version, to read and to
// change them beside running members.
func OpenOperator(ctx context.Context, o Options) (*Operator, error) {
	o = o.withDefaults()
	r, err := OpenReader(ctx, o)
	if err != nil {
		return nil, err
	}
	writers, err := connect(ctx, o, owner, 1)
	if err != nil {
		r.Close()
		return nil, err
	}
	return &Operator{*r, o, writers}, nil
}

// Close implements lobwriter.Reader.
func (op *Operator) Close() error {
	op.writers.Close()
	return op.Reader.Close()
}

// Limits implements lobwriter.Operator.
func (op *Operator) Limits() lobwriter.Limits { return op.o.limits() }
