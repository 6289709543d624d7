package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/lobsink/lobsink/lobwriter"
)

// build is a generation in a temporary table: writing to that takes no lock of
// the database, so that the owner goes on until the generation is whole.
type build struct {
	op         *Operator
	conn       *sql.Conn
	partition  int
	key        string
	generation int64
	chunks     int64
}

// The temporary file of a connection is SQLite's, and gone with the connection.
const (
	beginBuild = `create temp table lobsink_build (n integer primary key, body text not null) strict`
	fillBuild  = `insert into temp.lobsink_build (n, body) values (?, ?)`
	endBuild   = `drop table temp.lobsink_build`
)

// Build implements lobwriter.Rebuilder.
func (op *Operator) Build(ctx context.Context, partition int, key string, generation int64) (lobwriter.Build, error) {
	conn, err := op.scratch.Conn(ctx)
	if err != nil {
		return nil, classify("begin a build", late(ctx, err))
	}
	b := &build{op: op, conn: conn, partition: partition, key: key, generation: generation}
	for _, statement := range []string{"pragma temp_store = file", beginBuild} {
		if _, err := conn.ExecContext(ctx, withPrefix(statement, op.store.o.Prefix)); err != nil {
			return nil, errors.Join(classify("begin a build", late(ctx, err)), b.Close())
		}
	}
	return b, nil
}

// Append implements lobwriter.Build.
func (b *build) Append(ctx context.Context, chunks [][]byte) error {
	const op = "build a document"
	if code, text := refusal(chunks); code != "" {
		return &lobwriter.Error{Kind: lobwriter.Invalid, Op: op, Code: code, Err: errors.New(text)}
	}
	fill, err := b.conn.PrepareContext(ctx, withPrefix(fillBuild, b.op.store.o.Prefix))
	if err != nil {
		return classify(op, late(ctx, err))
	}
	defer fill.Close()
	for _, c := range chunks {
		b.chunks++
		if _, err := fill.ExecContext(ctx, b.chunks, string(c)); err != nil {
			return classify(op, late(ctx, err))
		}
	}
	return nil
}

// Swap implements lobwriter.Build.
func (b *build) Swap(ctx context.Context, row lobwriter.Row, repairs []lobwriter.Repair) (stored lobwriter.Row, swapped bool, err error) {
	const op = "swap a document"
	if row.Chunks != b.chunks || row.Generation != b.generation {
		return lobwriter.Row{}, false, &lobwriter.Error{Kind: lobwriter.Invalid, Op: op,
			Err: fmt.Errorf("generation %d has %d chunks, not generation %d with %d", b.generation, b.chunks, row.Generation, row.Chunks)}
	}
	s := b.op.store
	if err := s.file.check(); err != nil {
		return lobwriter.Row{}, false, classify(op, err)
	}
	tx, err := b.conn.BeginTx(ctx, nil)
	if err != nil {
		return lobwriter.Row{}, false, classify(op, late(ctx, err))
	}
	defer tx.Rollback() // does nothing after the commit
	id, stored, err := storedRow(tx.QueryRowContext(ctx, withPrefix(rowQuery, s.o.Prefix), b.key))
	if err != nil {
		return lobwriter.Row{}, false, classify(op, late(ctx, err))
	}
	fence, err := s.fence(ctx, tx, b.partition)
	if err != nil {
		return lobwriter.Row{}, false, classify(op, late(ctx, err))
	}
	if !lobwriter.MaySwap(fence, stored, row) {
		return stored, false, nil
	}
	if err := b.swap(ctx, tx, id, row, repairs); err != nil {
		return lobwriter.Row{}, false, classify(op, late(ctx, err))
	}
	if err := tx.Commit(); err != nil {
		return lobwriter.Row{}, false, unknown(op, late(ctx, err))
	}
	return row, true, classify(op, s.file.check())
}

// swap writes the row, moves the chunks into place and takes away the old ones.
// The ID 0 is a document that is not there.
func (b *build) swap(ctx context.Context, tx *sql.Tx, id int64, row lobwriter.Row, repairs []lobwriter.Repair) error {
	s := b.op.store
	now := s.o.Now()
	values := []any{
		row.Generation, row.State, row.Mark.Life, row.Mark.Seq, row.First, row.Fragments, row.Holes, row.Late,
		row.Bytes, row.Units, row.Chunks, row.CRC, row.Reason, now,
	}
	if id == 0 {
		res, err := tx.ExecContext(ctx, withPrefix(insertQuery, s.o.Prefix), append(values, b.key, b.partition, now)...)
		if err != nil {
			return err
		}
		if id, err = res.LastInsertId(); err != nil {
			return err
		}
	} else if err := s.exec(ctx, tx, updateQuery, append(values, id)...); err != nil {
		return err
	}
	if err := s.exec(ctx, tx, `delete from lobsink_chunks where document = ?`, id); err != nil {
		return err
	}
	if err := s.exec(ctx, tx, `
		insert into lobsink_chunks (document, generation, n, body)
		select ?, ?, n, body from temp.lobsink_build order by n`, id, row.Generation); err != nil {
		return err
	}
	if err := s.exec(ctx, tx, `delete from lobsink_repairs where document = ?`, id); err != nil {
		return err
	}
	for _, r := range repairs {
		body := sql.NullString{String: string(r.Text), Valid: !r.Omit}
		if err := s.exec(ctx, tx, `insert into lobsink_repairs (document, life, seq, body) values (?,?,?,?)`,
			id, r.Mark.Life, r.Mark.Seq, body); err != nil {
			return err
		}
	}
	return nil
}

// Close implements lobwriter.Build.
func (b *build) Close() error {
	// Whatever ended the build, the connection may be used for the next one; if
	// the table cannot be dropped, it cannot.
	_, err := b.conn.ExecContext(context.Background(), withPrefix(endBuild, b.op.store.o.Prefix))
	if err != nil {
		b.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	b.conn.Close()
	return nil
}

// Repairs implements lobwriter.RepairReader.
func (r *Reader) Repairs(ctx context.Context, key string) (repairs []lobwriter.Repair, err error) {
	err = r.file.read(ctx, "read the repairs", func(tx *sql.Tx) error {
		result, err := tx.QueryContext(ctx, withPrefix(`
			select r.life, r.seq, r.body from lobsink_repairs r join lobsink_documents d on d.id = r.document
			 where d.doc_key = ? order by r.life, r.seq`, r.file.prefix), key)
		if err != nil {
			return err
		}
		defer result.Close()
		for result.Next() {
			var one lobwriter.Repair
			var body sql.NullString
			if err := result.Scan(&one.Mark.Life, &one.Mark.Seq, &body); err != nil {
				return err
			}
			if one.Omit = !body.Valid; body.Valid {
				one.Text = []byte(body.String)
			}
			repairs = append(repairs, one)
		}
		return result.Err()
	})
	if err != nil {
		return nil, err
	}
	return repairs, nil
}
