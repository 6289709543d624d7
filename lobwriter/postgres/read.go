package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/lobsink/lobsink/lobwriter"
)

// Reader is a lobwriter.Reader in PostgreSQL.
type Reader struct {
	tables
}

var _ lobwriter.Reader = (*Reader)(nil)

// OpenReader connects as Open does, to read.
func OpenReader(ctx context.Context, o Options) (*Reader, error) {
	t, err := connect(ctx, o.withDefaults())
	if err != nil {
		return nil, err
	}
	return &Reader{tables: t}, nil
}

// Close implements lobwriter.Reader.
func (r *Reader) Close() error {
	r.pool.Close()
	return nil
}

// Binding implements lobwriter.Reader.
func (r *Reader) Binding(ctx context.Context) (lobwriter.Binding, error) {
	b, err := r.readBinding(ctx, r.pool)
	if err == nil && b.Life == 0 {
		err = lobwriter.ErrNotFound
	}
	if err != nil {
		return lobwriter.Binding{}, classify("binding", err)
	}
	return b, nil
}

const rowColumns = `generation, state, life, seq, first_seq, fragments, holes, late, bytes, units, chunks, crc, reason`

// rowFields are what rowColumns are scanned into; take then completes the row.
func rowFields(r *lobwriter.Row, seq, first, crc *int64) []any {
	return []any{
		&r.Generation, &r.State, &r.Mark.Life, seq, first, &r.Fragments, &r.Holes, &r.Late,
		&r.Bytes, &r.Units, &r.Chunks, crc, &r.Reason,
	}
}

// scanRow scans a row, and what comes before and after its columns.
func scanRow(row pgx.Row, before []any, r *lobwriter.Row, after ...any) error {
	var seq, first, crc int64
	fields := append(append(before, rowFields(r, &seq, &first, &crc)...), after...)
	if err := row.Scan(fields...); err != nil {
		return err
	}
	r.Mark.Seq, r.First, r.CRC = uint64(seq), uint64(first), uint32(crc)
	return nil
}

// Rows implements lobwriter.Store.
func (s *Store) Rows(ctx context.Context, _ int, keys []string) ([]lobwriter.Row, error) {
	found, err := s.pool.Query(ctx, s.sql(`select doc_key, `+rowColumns+` from lobsink_documents where doc_key = any($1)`), array(keys))
	if err != nil {
		return nil, classify("rows", err)
	}
	defer found.Close()
	stored := make(map[string]lobwriter.Row, len(keys))
	for found.Next() {
		var key string
		var r lobwriter.Row
		if err := scanRow(found, []any{&key}, &r); err != nil {
			return nil, classify("rows", err)
		}
		stored[key] = r
	}
	if err := found.Err(); err != nil {
		return nil, classify("rows", err)
	}
	rows := make([]lobwriter.Row, len(keys))
	for i, key := range keys {
		rows[i] = stored[key]
	}
	return rows, nil
}

const documentColumns = `id, doc_key, partition, ` + rowColumns + `, created_at, updated_at`

func scanDocument(row pgx.Row) (id int64, d lobwriter.Document, err error) {
	err = scanRow(row, []any{&id, &d.Key, &d.Partition}, &d.Row, &d.CreatedAt, &d.UpdatedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		err = lobwriter.ErrNotFound
	}
	return id, d, err
}

// Document implements lobwriter.Reader.
func (r *Reader) Document(ctx context.Context, key string) (lobwriter.Document, error) {
	_, d, err := r.find(ctx, r.pool, key)
	return d, classify("document", err)
}

func (r *Reader) find(ctx context.Context, q querier, key string) (int64, lobwriter.Document, error) {
	return scanDocument(q.QueryRow(ctx, r.sql(`select `+documentColumns+` from lobsink_documents where doc_key = $1`), key))
}

// Documents implements lobwriter.Reader.
func (r *Reader) Documents(ctx context.Context, q lobwriter.Query) ([]lobwriter.Document, error) {
	found, err := r.pool.Query(ctx, r.sql(`
		select `+documentColumns+` from lobsink_documents
		 where doc_key > $1 and doc_key >= $2 and starts_with(doc_key, $2) and ($3::smallint = 0 or state = $3)
		 order by doc_key limit $4`), q.After, q.Prefix, int16(q.State), q.Limit)
	if err != nil {
		return nil, classify("documents", err)
	}
	docs, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (lobwriter.Document, error) {
		_, d, err := scanDocument(row)
		return d, err
	})
	if err != nil {
		return nil, classify("documents", err)
	}
	return docs, nil
}

// Read implements lobwriter.Reader. Row and chunks are of one snapshot, and the
// chunks are streamed: no limit of the server's values applies.
func (r *Reader) Read(ctx context.Context, key string, chunk func(piece []byte) error) (lobwriter.Document, error) {
	var d lobwriter.Document
	var own error // of chunk
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, r.pool, snapshot, func(tx pgx.Tx) error {
		id, found, err := r.find(ctx, tx, key)
		if err != nil {
			return err
		}
		d = found
		rows, err := tx.Query(ctx, r.sql(`select body from lobsink_chunks where document = $1 and generation = $2 order by n`), id, d.Generation)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if own = chunk(rows.RawValues()[0]); own != nil {
				return own
			}
		}
		return rows.Err()
	})
	switch {
	case own != nil:
		return lobwriter.Document{}, own
	case err != nil:
		return lobwriter.Document{}, classify("read", err)
	}
	return d, nil
}
