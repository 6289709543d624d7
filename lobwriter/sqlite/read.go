package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/lobsink/lobsink/lobwriter"
)

// Reader is a lobwriter.Reader of a SQLite file. It opens the file read-only, and
// works while a store writes to it.
type Reader struct {
	file *file
	now  func() int64
}

var _ lobwriter.Reader = (*Reader)(nil)

// OpenReader opens a reader of an existing file with tables of exactly this
// program's version. Anything else is a Fatal error that says what to do.
// The file is opened read-only.
func OpenReader(ctx context.Context, o Options) (*Reader, error) {
	o = o.withDefaults()
	f, err := openFile(ctx, o, false)
	if err != nil {
		return nil, err
	}
	return &Reader{file: f, now: o.Now}, nil
}

// Close implements lobwriter.Reader.
func (r *Reader) Close() error { return r.file.close() }

// read runs do in a transaction that sees one snapshot and waits for nobody.
func (f *file) read(ctx context.Context, op string, do func(*sql.Tx) error) error {
	if err := f.check(); err != nil {
		return classify(op, err)
	}
	tx, err := f.readers.BeginTx(ctx, nil)
	if err != nil {
		return classify(op, late(ctx, err))
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return classify(op, late(ctx, err))
	}
	return nil
}

// Fence implements lobwriter.Reader.
func (r *Reader) Fence(ctx context.Context, partition int) (lobwriter.Fence, error) {
	return r.file.fence(ctx, partition)
}

func (f *file) fence(ctx context.Context, partition int) (fence lobwriter.Fence, err error) {
	err = f.read(ctx, "read the fence", func(tx *sql.Tx) (err error) {
		fence, err = readFence(ctx, tx, f.prefix, partition)
		return err
	})
	return fence, err
}

// Binding implements lobwriter.Reader.
func (r *Reader) Binding(ctx context.Context) (b lobwriter.Binding, err error) {
	err = r.file.read(ctx, "read the binding", func(tx *sql.Tx) (err error) {
		b, err = readBinding(ctx, tx, r.file.prefix)
		return err
	})
	if err == nil && b.Life == 0 {
		return lobwriter.Binding{}, lobwriter.ErrNotFound
	}
	return b, err
}

// Roster implements lobwriter.Reader.
func (r *Reader) Roster(ctx context.Context) (roster lobwriter.Roster, err error) {
	err = r.file.read(ctx, "read the roster", func(tx *sql.Tx) (err error) {
		roster, err = readRoster(ctx, tx, r.file.prefix, r.now())
		return err
	})
	if err != nil {
		return lobwriter.Roster{}, err
	}
	return roster, nil
}

// Rows implements lobwriter.Store.
func (s *Store) Rows(ctx context.Context, _ int, keys []string) ([]lobwriter.Row, error) {
	found := make([]lobwriter.Row, len(keys))
	err := s.file.read(ctx, "read rows", func(tx *sql.Tx) error {
		stmt, err := tx.PrepareContext(ctx, withPrefix(rowQuery, s.o.Prefix))
		if err != nil {
			return err
		}
		for i, key := range keys {
			if _, found[i], err = storedRow(stmt.QueryRowContext(ctx, key)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

const documentQuery = `select id, doc_key, partition, created_at, updated_at, ` + rowColumns + ` from lobsink_documents `

func scanDocument(scan func(...any) error) (id int64, d lobwriter.Document, err error) {
	err = scan(append([]any{&id, &d.Key, &d.Partition, &d.CreatedAt, &d.UpdatedAt}, rowFields(&d.Row)...)...)
	return id, d, err
}

// Document implements lobwriter.Reader.
func (r *Reader) Document(ctx context.Context, key string) (d lobwriter.Document, err error) {
	err = r.file.read(ctx, "read the document", func(tx *sql.Tx) (err error) {
		_, d, err = r.find(ctx, tx, key)
		return err
	})
	return d, err
}

func (r *Reader) find(ctx context.Context, tx *sql.Tx, key string) (int64, lobwriter.Document, error) {
	id, d, err := scanDocument(tx.QueryRowContext(ctx, withPrefix(documentQuery+`where doc_key = ?`, r.file.prefix), key).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, lobwriter.Document{}, lobwriter.ErrNotFound
	}
	return id, d, err
}

// Documents implements lobwriter.Reader.
func (r *Reader) Documents(ctx context.Context, q lobwriter.Query) ([]lobwriter.Document, error) {
	var found []lobwriter.Document
	err := r.file.read(ctx, "read documents", func(tx *sql.Tx) error {
		// One range of the index: 0xFF is above every byte of UTF-8.
		result, err := tx.QueryContext(ctx, withPrefix(documentQuery+`
			where doc_key >= ? and doc_key < ? and doc_key <> ? and (? = 0 or state = ?)
			order by doc_key limit ?`, r.file.prefix),
			max(q.After, q.Prefix), q.Prefix+"\xff", q.After, q.State, q.State, q.Limit)
		if err != nil {
			return err
		}
		defer result.Close()
		for result.Next() {
			_, d, err := scanDocument(result.Scan)
			if err != nil {
				return err
			}
			found = append(found, d)
		}
		return result.Err()
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Read implements lobwriter.Reader. While it runs, the write-ahead log of the
// database keeps everything from its snapshot on.
func (r *Reader) Read(ctx context.Context, key string, chunk func(piece []byte) error) (lobwriter.Document, error) {
	var d lobwriter.Document
	var stopped error // what chunk returned, which stays as it is
	err := r.file.read(ctx, "read the text", func(tx *sql.Tx) error {
		id, found, err := r.find(ctx, tx, key)
		if err != nil {
			return err
		}
		d = found
		result, err := tx.QueryContext(ctx, withPrefix(`
			select body from lobsink_chunks where document = ? and generation = ? order by n`, r.file.prefix), id, d.Generation)
		if err != nil {
			return err
		}
		defer result.Close()
		var piece sql.RawBytes
		for result.Next() {
			if err := result.Scan(&piece); err != nil {
				return err
			}
			if stopped = chunk(piece); stopped != nil {
				return stopped
			}
		}
		return result.Err()
	})
	switch {
	case stopped != nil:
		return lobwriter.Document{}, stopped
	case err != nil:
		return lobwriter.Document{}, err
	}
	return d, nil
}
