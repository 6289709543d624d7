package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/lobsink/lobsink/internal/schema"
	"github.com/lobsink/lobsink/lobwriter"
)

// rowColumns are the columns of a lobwriter.Row, in the order of rowFields.
const rowColumns = `generation, state, life, seq, first_seq, fragments, holes, late, bytes, units, chunks, crc, reason`

func rowFields(r *lobwriter.Row) []any {
	return []any{
		&r.Generation, &r.State, &r.Mark.Life, &r.Mark.Seq, &r.First, &r.Fragments, &r.Holes, &r.Late,
		&r.Bytes, &r.Units, &r.Chunks, &r.CRC, &r.Reason,
	}
}

// The statements of a group, see queries.
const (
	rowQuery    = `select id, ` + rowColumns + ` from lobsink_documents where doc_key = ?`
	insertQuery = `insert into lobsink_documents (` + rowColumns + `, updated_at, doc_key, partition, created_at)
	               values (?,?,?,?,?,?,?,?,?,?,?,?,?, ?,?,?,?)`
	updateQuery = `update lobsink_documents set (` + rowColumns + `, updated_at) = (?,?,?,?,?,?,?,?,?,?,?,?,?, ?) where id = ?`
	chunkQuery  = `insert into lobsink_chunks (document, generation, n, body) values (?,?,?,?)`
)

// queries are the prepared statements that a flush runs for each group.
type queries struct {
	row, insert, update, chunk   *sql.Stmt
	savepoint, rollback, release *sql.Stmt
}

func prepare(ctx context.Context, db *sql.DB, prefix string) (q queries, err error) {
	for _, p := range []struct {
		stmt  **sql.Stmt
		query string
	}{
		{&q.row, rowQuery},
		{&q.insert, insertQuery},
		{&q.update, updateQuery},
		{&q.chunk, chunkQuery},
		{&q.savepoint, "savepoint one_group"},
		{&q.rollback, "rollback to one_group"},
		{&q.release, "release one_group"},
	} {
		if *p.stmt, err = db.PrepareContext(ctx, withPrefix(p.query, prefix)); err != nil {
			return queries{}, err
		}
	}
	return q, nil
}

// in returns the same statements within a transaction, which closes them.
func (q queries) in(ctx context.Context, tx *sql.Tx) queries {
	return queries{
		row: tx.StmtContext(ctx, q.row), insert: tx.StmtContext(ctx, q.insert),
		update: tx.StmtContext(ctx, q.update), chunk: tx.StmtContext(ctx, q.chunk),
		savepoint: tx.StmtContext(ctx, q.savepoint), rollback: tx.StmtContext(ctx, q.rollback),
		release: tx.StmtContext(ctx, q.release),
	}
}

// storedRow reads the result of rowQuery. Where there is no document, the ID is 0
// and the row is absent.
func storedRow(result *sql.Row) (id int64, r lobwriter.Row, err error) {
	err = result.Scan(append([]any{&id}, rowFields(&r)...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, lobwriter.Row{}, nil
	}
	return id, r, err
}

// withPrefix names the tables of a statement.
func withPrefix(query, prefix string) string {
	return strings.ReplaceAll(query, schema.Prefix, prefix)
}
