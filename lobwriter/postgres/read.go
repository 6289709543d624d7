package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lobsink/lobsink/lobwriter"
)

// Reader is a lobwriter.Reader of a PostgreSQL database. It works while stores
// write, and on a standby.
type Reader struct {
	prefix string
	pool   *pgxpool.Pool
}

var _ lobwriter.Reader = (*Reader)(nil)

// OpenReader opens a reader of tables of exactly this program's version, as Open
// does.
func OpenReader(ctx context.Context, o Options) (*Reader, error) {
	o = o.withDefaults()
	pool, err := connect(ctx, o, reader, readConnections)
	if err != nil {
		return nil, err
	}
	if err := checkTables(ctx, pool, o); err != nil {
		pool.Close()
		return nil, err
	}
	return &Reader{o.Prefix, pool}, nil
}

// Close implements lobwriter.Reader.
func (r *Reader) Close() error {
	r.pool.Close()
	return nil
}

// Fence implements lobwriter.Reader.
func (r *Reader) Fence(ctx context.Context, partition int) (f lobwriter.Fence, err error) {
	err = use(ctx, r.pool, "read the fence", func(conn *pgx.Conn) (err error) {
		f, err = readFence(ctx, conn, r.prefix, partition)
		return err
	})
	return f, err
}

// Binding implements lobwriter.Reader.
func (r *Reader) Binding(ctx context.Context) (b lobwriter.Binding, err error) {
	err = use(ctx, r.pool, "read the binding", func(conn *pgx.Conn) (err error) {
		b, err = readBinding(ctx, conn, r.prefix)
		return err
	})
	if err == nil && b.Life == 0 {
		return lobwriter.Binding{}, lobwriter.ErrNotFound
	}
	return b, err
}

// Roster implements lobwriter.Reader.
func (r *Reader) Roster(ctx context.Context) (roster lobwriter.Roster, err error) {
	err = use(ctx, r.pool, "read the roster", func(conn *pgx.Conn) error {
		b := &pgx.Batch{}
		queueRoster(b, r.prefix, &roster)
		return conn.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return lobwriter.Roster{}, err
	}
	return roster, nil
}

// rowColumns are the columns of a lobwriter.Row, in the order of rowFields.
const rowColumns = `generation, state, life, seq, first_seq, fragments, holes, late, bytes, units, chunks, crc, reason`

func rowFields(r *lobwriter.Row) []any {
	return []any{
		&r.Generation, &r.State, &r.Mark.Life, &r.Mark.Seq, &r.First, &r.Fragments, &r.Holes, &r.Late,
		&r.Bytes, &r.Units, &r.Chunks, &r.CRC, &r.Reason,
	}
}

// Rows implements lobwriter.Store.
func (s *Store) Rows(ctx context.Context, _ int, keys []string) ([]lobwriter.Row, error) {
	stored := make(map[string]lobwriter.Row, len(keys))
	err := use(ctx, s.documents, "read rows", func(conn *pgx.Conn) error {
		found, err := conn.Query(ctx, withPrefix(`
			select doc_key, `+rowColumns+` from lobsink_documents where doc_key = any ($1::text[])`, s.o.Prefix), keys)
		if err != nil {
			return err
		}
		var key string
		var row lobwriter.Row
		_, err = pgx.ForEachRow(found, append([]any{&key}, rowFields(&row)...), func() error {
			stored[key] = row
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	rows := make([]lobwriter.Row, len(keys))
	for i, key := range keys {
		rows[i] = stored[key]
	}
	return rows, nil
}

const documentQuery = `select id, doc_key, partition, created_at, updated_at, ` + rowColumns + ` from lobsink_documents `

func documentFields(id *int64, d *lobwriter.Document) []any {
	return append([]any{id, &d.Key, &d.Partition, &d.CreatedAt, &d.UpdatedAt}, rowFields(&d.Row)...)
}

// Document implements lobwriter.Reader.
func (r *Reader) Document(ctx context.Context, key string) (d lobwriter.Document, err error) {
	err = use(ctx, r.pool, "read the document", func(conn *pgx.Conn) (err error) {
		_, d, err = r.find(ctx, conn.QueryRow, key)
		return err
	})
	return d, err
}

// find reads the row of a document by a connection's QueryRow, or a transaction's.
func (r *Reader) find(ctx context.Context, queryRow func(context.Context, string, ...any) pgx.Row, key string) (id int64, d lobwriter.Document, err error) {
	err = queryRow(ctx, withPrefix(documentQuery+`where doc_key = $1`, r.prefix), key).Scan(documentFields(&id, &d)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, lobwriter.Document{}, lobwriter.ErrNotFound
	}
	return id, d, err
}

// aboveKeys is at or above whatever a key of at most 255 bytes can end with: the
// last character of UTF-8, as often as there is room for it.
var aboveKeys = strings.Repeat("\U0010FFFF", 64)

// Documents implements lobwriter.Reader.
func (r *Reader) Documents(ctx context.Context, q lobwriter.Query) ([]lobwriter.Document, error) {
	var found []lobwriter.Document
	err := use(ctx, r.pool, "read documents", func(conn *pgx.Conn) error {
		// One range of the index.
		rows, err := conn.Query(ctx, withPrefix(documentQuery+`
			where doc_key >= $1 and doc_key <= $2 and doc_key <> $3 and ($4::smallint = 0 or state = $4)
			order by doc_key limit $5`, r.prefix),
			max(q.After, q.Prefix), q.Prefix+aboveKeys, q.After, int16(q.State), q.Limit)
		if err != nil {
			return err
		}
		var id int64
		var d lobwriter.Document
		_, err = pgx.ForEachRow(rows, documentFields(&id, &d), func() error {
			found = append(found, d)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Read implements lobwriter.Reader. The chunks are streamed, so that no limit of
// a value applies. While it runs, the database keeps everything from its snapshot
// on.
func (r *Reader) Read(ctx context.Context, key string, chunk func(piece []byte) error) (lobwriter.Document, error) {
	var d lobwriter.Document
	var stopped error // what chunk returned, which stays as it is
	err := use(ctx, r.pool, "read the text", func(conn *pgx.Conn) error {
		snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
		return pgx.BeginTxFunc(ctx, conn, snapshot, func(tx pgx.Tx) error {
			id, found, err := r.find(ctx, tx.QueryRow, key)
			if err != nil {
				return err
			}
			d = found
			rows, err := tx.Query(ctx, withPrefix(`
				select body from lobsink_chunks where document = $1 and generation = $2 order by n`, r.prefix), id, d.Generation)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				if stopped = chunk(rows.RawValues()[0]); stopped != nil {
					conn.Close(ctx) // or the rest of the text would be read to its end
					return stopped
				}
			}
			return rows.Err()
		})
	})
	switch {
	case stopped != nil:
		return lobwriter.Document{}, stopped
	case err != nil:
		return lobwriter.Document{}, err
	}
	return d, nil
}
