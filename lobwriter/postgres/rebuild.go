package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lobsink/lobsink/lobwriter"
)

// build is a generation in one long transaction, which takes no lock that an
// owner could wait for until it is swapped in.
type build struct {
	op         *Operator
	conn       *pgxpool.Conn
	tx         pgx.Tx
	partition  int
	key        string
	document   int64
	generation int64
	chunks     int64
}

// beginBuild finds the ID of the document, or draws one for a new one. While a
// build is under way its transaction waits for the stream; only a program that was
// frozen for an hour is ended before Swap sets another timeout.
const beginBuild = `
	select coalesce((select id from lobsink_documents where doc_key = $1), nextval('lobsink_documents_id_seq')),
	       set_config('idle_in_transaction_session_timeout', '1h', true)`

// Build implements lobwriter.Rebuilder.
func (op *Operator) Build(ctx context.Context, partition int, key string, generation int64) (lobwriter.Build, error) {
	conn, err := op.writers.Acquire(ctx)
	if err != nil {
		return nil, classify("begin a build", err)
	}
	b := &build{op: op, conn: conn, partition: partition, key: key, generation: generation}
	if b.tx, err = conn.Begin(ctx); err == nil {
		err = b.tx.QueryRow(ctx, withPrefix(beginBuild, op.o.Prefix), key).Scan(&b.document, nil)
	}
	if err != nil {
		b.Close()
		return nil, classify("begin a build", err)
	}
	return b, nil
}

// fillBuild appends chunks: bound as bytes, what is no text is an error of the
// data.
const fillBuild = `
	insert into lobsink_chunks (document, generation, n, body)
	select $1, $2, $3 + n, convert_from(body, 'UTF8') from unnest($4::bytea[]) with ordinality as c (body, n)`

// fillBytes is how much text one call appends.
const fillBytes = 1 << 20

// Append implements lobwriter.Build.
func (b *build) Append(ctx context.Context, chunks [][]byte) error {
	for part := range slices.Chunk(chunks, max(1, fillBytes/b.op.o.ChunkBytes)) {
		if _, err := b.tx.Exec(ctx, withPrefix(fillBuild, b.op.o.Prefix), b.document, b.generation, b.chunks, part); err != nil {
			return classify("build a document", err)
		}
		b.chunks += int64(len(part))
	}
	return nil
}

// swapQuery has a parameter for each of lobsink_swap_v1, in its order.
const swapQuery = `
	select swapped, ` + rowColumns + `
	  from lobsink_swap_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`

// Swap implements lobwriter.Build. If it is not swapped in, the savepoint gives
// the lock of the fence row back, and keeps the chunks.
func (b *build) Swap(ctx context.Context, row lobwriter.Row, repairs []lobwriter.Repair) (stored lobwriter.Row, swapped bool, err error) {
	const op = "swap a document"
	if row.Chunks != b.chunks || row.Generation != b.generation {
		return lobwriter.Row{}, false, &lobwriter.Error{Kind: lobwriter.Invalid, Op: op,
			Err: fmt.Errorf("generation %d has %d chunks, not generation %d with %d", b.generation, b.chunks, row.Generation, row.Chunks)}
	}
	undone, err := b.tx.Begin(ctx)
	if err != nil {
		return lobwriter.Row{}, false, classify(op, err)
	}
	// A program that freezes now does not keep the lock.
	timeout := strconv.FormatInt(max(1, b.op.o.Lease.Milliseconds()/3), 10)
	if _, err := undone.Exec(ctx, `select set_config('idle_in_transaction_session_timeout', $1, true)`, timeout); err != nil {
		return lobwriter.Row{}, false, classify(op, err)
	}
	err = undone.QueryRow(ctx, withPrefix(swapQuery, b.op.o.Prefix), b.swapArguments(row, repairs)...).
		Scan(append([]any{&swapped}, rowFields(&stored)...)...)
	if err != nil {
		return lobwriter.Row{}, false, classify(op, err)
	}
	if !swapped {
		return stored, false, classify(op, undone.Rollback(ctx))
	}
	if err := errors.Join(undone.Commit(ctx), b.tx.Commit(ctx)); err != nil {
		return lobwriter.Row{}, false, classify(op, err)
	}
	return row, true, b.replicated(ctx)
}

// replicated returns an error if the commit did not wait for its standby; see use.
func (b *build) replicated(ctx context.Context) error {
	conn := b.conn.Conn()
	if conn.PgConn().CustomData()[notReplicated] == nil {
		return nil
	}
	return errors.Join(errNotReplicated("swap a document"), conn.Close(ctx))
}

func (b *build) swapArguments(r lobwriter.Row, repairs []lobwriter.Repair) []any {
	lives, seqs, bodies := make([]int64, len(repairs)), make([]int64, len(repairs)), make([]*string, len(repairs))
	for i, one := range repairs {
		lives[i], seqs[i] = one.Mark.Life, int64(one.Mark.Seq)
		if !one.Omit {
			text := string(one.Text)
			bodies[i] = &text
		}
	}
	return []any{
		b.partition, b.key, b.document,
		r.Generation, int16(r.State), r.Mark.Life, int64(r.Mark.Seq), int64(r.First), r.Fragments, r.Holes, r.Late,
		r.Bytes, r.Units, r.Chunks, int64(r.CRC), storable(r.Reason),
		lives, seqs, bodies,
	}
}

// Close implements lobwriter.Build.
func (b *build) Close() error {
	if b.tx != nil {
		// Without the end of the transaction the connection is closed, which
		// ends it too.
		_ = b.tx.Rollback(context.Background())
	}
	b.conn.Release()
	return nil
}

// Repairs implements lobwriter.RepairReader.
func (r *Reader) Repairs(ctx context.Context, key string) (repairs []lobwriter.Repair, err error) {
	err = use(ctx, r.pool, "read the repairs", func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, withPrefix(`
			select r.life, r.seq, r.body from lobsink_repairs r join lobsink_documents d on d.id = r.document
			 where d.doc_key = $1 order by r.life, r.seq`, r.prefix), key)
		if err != nil {
			return err
		}
		var one lobwriter.Repair
		var body *string
		_, err = pgx.ForEachRow(rows, []any{&one.Mark.Life, &one.Mark.Seq, &body}, func() error {
			if one.Omit, one.Text = body == nil, nil; body != nil {
				one.Text = []byte(*body)
			}
			repairs = append(repairs, one)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return repairs, nil
}
