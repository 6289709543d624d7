package oracle

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/lobsink/lobsink/lobwriter"
)

// Sizes of pages: what one call returns at most.
const (
	pageRows      = 1000
	pageDocuments = 1000
	bodyPieces    = 64
)

// Reader is a lobwriter.Reader of an Oracle database. It works while stores
// write.
type Reader struct{ s *Store }

var _ lobwriter.Reader = (*Reader)(nil)

// OpenReader opens a reader, as Open does.
func OpenReader(ctx context.Context, o Options) (*Reader, error) {
	s, err := Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Reader{s}, nil
}

// Close implements lobwriter.Reader.
func (r *Reader) Close() error { return r.s.Close() }

// db is where a reader reads: at any service that answers, since what it asks for is
// nobody's partition.
func (r *Reader) db() *sql.DB {
	for _, p := range r.s.services {
		if p.connector.answers() {
			return p.documents
		}
	}
	return r.s.services[0].documents
}

// Fence implements lobwriter.Reader.
func (r *Reader) Fence(ctx context.Context, partition int) (lobwriter.Fence, error) {
	return readFence(ctx, r.s.o, r.db(), partition)
}

// Binding implements lobwriter.Reader.
func (r *Reader) Binding(ctx context.Context) (lobwriter.Binding, error) {
	var o bindingOut
	if _, err := call(ctx, r.s.o, r.db(), "read the binding", bindingBlock, 0, o.binds()...); err != nil {
		return lobwriter.Binding{}, err
	}
	b, err := o.binding()
	switch {
	case err != nil:
		return lobwriter.Binding{}, classify("read the binding", err)
	case b.Life == 0:
		return lobwriter.Binding{}, lobwriter.ErrNotFound
	}
	return b, nil
}

// Roster implements lobwriter.Reader.
func (r *Reader) Roster(ctx context.Context) (lobwriter.Roster, error) {
	o := newRosterOut()
	if _, err := call(ctx, r.s.o, r.db(), "read the roster", rosterBlock, maxLeases, append([]any{in("p_after", "")}, o.binds()...)...); err != nil {
		return lobwriter.Roster{}, err
	}
	return o.roster(ctx, r.s.o, r.db())
}

// Rows implements lobwriter.Store.
func (s *Store) Rows(ctx context.Context, partition int, keys []string) ([]lobwriter.Row, error) {
	p := s.of(partition)
	rows := make([]lobwriter.Row, 0, len(keys))
	for len(rows) < len(keys) {
		ask := keys[len(rows):min(len(keys), len(rows)+pageRows)]
		found, err := storedRows(ctx, s.o, p.documents, partition, ask)
		if err != nil {
			return nil, err
		}
		rows = append(rows, found...)
	}
	return rows, nil
}

// storedRows returns the rows of some keys, from the first on: as many as had room.
func storedRows(ctx context.Context, o Options, db *sql.DB, partition int, keys []string) ([]lobwriter.Row, error) {
	const op = "read rows"
	found, text := newRowsOut(len(keys)), ""
	binds := append([]any{in("p_partition", int64(partition)), in("p_key", keys)}, found.binds()...)
	if _, err := call(ctx, o, db, op, rowsBlock, len(keys), append(binds, out("p_row_reason_bytes", &found.reasonBytes), out("p_texts", &text))...); err != nil {
		return nil, err
	}
	n := len(found.generation)
	if n == 0 || n > len(keys) || !found.whole(n) {
		return nil, classify(op, errNoReply)
	}
	rows, packed := make([]lobwriter.Row, n), texts{text}
	for i := range rows {
		rows[i] = found.row(i)
		var err error
		if rows[i].Reason, err = packed.next(found.reasonBytes[i].Int64); err != nil {
			return nil, classify(op, err)
		}
	}
	return rows, classify(op, packed.end())
}

// Document implements lobwriter.Reader.
func (r *Reader) Document(ctx context.Context, key string) (lobwriter.Document, error) {
	if !storableKey(key) {
		return lobwriter.Document{}, lobwriter.ErrNotFound
	}
	found, _, err := r.page(ctx, "read the document", bounds{from: key, to: key}, 0, 1)
	switch {
	case err != nil:
		return lobwriter.Document{}, err
	case len(found) == 0:
		return lobwriter.Document{}, lobwriter.ErrNotFound
	}
	return found[0], nil
}

// storableKey reports whether there can be a document with this key.
func storableKey(key string) bool {
	return key != "" && len(key) <= 255 && utf8.ValidString(key) && !strings.Contains(key, "\x00")
}

// Documents implements lobwriter.Reader.
func (r *Reader) Documents(ctx context.Context, q lobwriter.Query) ([]lobwriter.Document, error) {
	b := bounds{from: max(q.After, q.Prefix), after: q.After}
	if q.Prefix != "" {
		if len(q.Prefix) > 255 {
			return nil, nil
		}
		b.to = above(q.Prefix)
	}
	var all []lobwriter.Document
	for {
		page, more, err := r.page(ctx, "read documents", b, q.State, min(pageDocuments, q.Limit-len(all)))
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) == 0 || len(all) >= q.Limit || !more && len(page) < pageDocuments {
			return all, nil
		}
		b.after = page[len(page)-1].Key
		b.from = max(b.from, b.after)
	}
}

// above is at or above whatever key begins with a prefix: it ends with the last
// character of UTF-8, as often as there is room for it in a key.
func above(prefix string) string {
	return prefix + strings.Repeat("\U0010FFFF", (255-len(prefix))/utf8.UTFMax+1)
}

// bounds select keys.
type bounds struct{ from, to, after string }

// page returns the documents of one call, and whether there are more because of
// the room for texts.
func (r *Reader) page(ctx context.Context, op string, b bounds, state lobwriter.State, limit int) (page []lobwriter.Document, more bool, err error) {
	rows := newRowsOut(limit)
	partition, created, updated, keyBytes, text, left := room(limit), room(limit), room(limit), room(limit), "", number{}
	binds := []any{
		in("p_from", b.from), in("p_to", b.to), in("p_after", b.after), in("p_state", int64(state)), in("p_limit", int64(limit)),
		out("p_row_partition", &partition),
	}
	binds = append(append(binds, rows.binds()...),
		out("p_row_created_at", &created), out("p_row_updated_at", &updated),
		out("p_row_key_bytes", &keyBytes), out("p_row_reason_bytes", &rows.reasonBytes), out("p_texts", &text), out("p_more", &left))
	if _, err := call(ctx, r.s.o, r.db(), op, documentsBlock, limit, binds...); err != nil {
		return nil, false, err
	}
	n := len(rows.generation)
	if !rows.whole(n) || !whole(n, partition, created, updated, keyBytes) || !given(left) {
		return nil, false, classify(op, errNoReply)
	}
	packed := texts{text}
	for i := range n {
		d := lobwriter.Document{Row: rows.row(i), Partition: int(partition[i].Int64), CreatedAt: created[i].Int64, UpdatedAt: updated[i].Int64}
		if d.Key, err = packed.next(keyBytes[i].Int64); err == nil {
			d.Reason, err = packed.next(rows.reasonBytes[i].Int64)
		}
		if err != nil {
			return nil, false, classify(op, err)
		}
		page = append(page, d)
	}
	return page, left.Int64 == 1, classify(op, packed.end())
}

// Read implements lobwriter.Reader. The text is read in pieces, to where the row
// says that it ends: text is only ever appended to a generation, so that this is
// the text of that moment. At the end its length and checksum are compared with
// the row; a difference is lobwriter.ErrDamaged, and the row is returned with it.
func (r *Reader) Read(ctx context.Context, key string, chunk func(piece []byte) error) (lobwriter.Document, error) {
	const op = "read the text"
	d, err := r.Document(ctx, key)
	if err != nil {
		return lobwriter.Document{}, err
	}
	read, crc := int64(0), uint32(0)
	for from := int64(1); from <= d.Units; {
		data, next, err := r.pieces(ctx, d, from)
		switch {
		case err != nil:
			return lobwriter.Document{}, classify(op, err)
		case next == from:
			return d, r.cutShort(ctx, d, from)
		}
		for _, piece := range data {
			read += int64(len(piece))
			crc = lobwriter.Checksum(crc, piece)
			if err := chunk(piece); err != nil {
				return lobwriter.Document{}, err
			}
		}
		from = next
	}
	if read != d.Bytes || crc != d.CRC {
		return d, damaged(key, "its text has %d bytes with CRC-32C %08x, its row says %d and %08x", read, crc, d.Bytes, d.CRC)
	}
	return d, nil
}

// pieces reads some of the text of a document, from a unit on. It returns the unit
// to go on with; the same one means that there is nothing.
func (r *Reader) pieces(ctx context.Context, d lobwriter.Document, from int64) ([][]byte, int64, error) {
	data, next := make([][]byte, 0, bodyPieces), number{}
	if _, err := call(ctx, r.s.o, r.db(), "read the text", readBlock, bodyPieces,
		in("p_key", d.Key), in("p_generation", d.Generation), in("p_from", from), in("p_to", d.Units),
		out("p_data", &data), out("p_next", &next)); err != nil {
		return nil, 0, err
	}
	if !next.Valid || next.Int64 < from || next.Int64 > d.Units+1 || (next.Int64 == from) != (len(data) == 0) {
		return nil, 0, errNoReply
	}
	return data, next.Int64, nil
}

// cutShort says why there is no text from a unit on.
func (r *Reader) cutShort(ctx context.Context, d lobwriter.Document, from int64) error {
	now, err := r.Document(ctx, d.Key)
	if err == nil && now.Generation == d.Generation {
		return damaged(d.Key, "its text ends at %d of %d units", from-1, d.Units)
	}
	return &lobwriter.Error{Kind: lobwriter.Transient, Op: "read the text",
		Err: fmt.Errorf("document %q was replaced while it was read", d.Key), Hint: "read it again"}
}

func damaged(key, format string, args ...any) error {
	return fmt.Errorf("document %q: %w: %s", key, lobwriter.ErrDamaged, fmt.Sprintf(format, args...))
}
