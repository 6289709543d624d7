package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/lobsink/lobsink/lobwriter"
)

// withReader runs do with the database that the configuration names.
func (a *app) withReader(ctx context.Context, do func(lobwriter.Reader) error) (err error) {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	r, err := openReader(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return do(r)
}

func documentError(key string, err error) error {
	if errors.Is(err, lobwriter.ErrNotFound) {
		return failed("there is no document %s", strconv.Quote(key))
	}
	return err
}

// pageSize is how many documents are read at once.
const pageSize = 500

// eachDocument calls each for up to limit documents, 0: all, and returns whether
// there are more.
func eachDocument(ctx context.Context, r lobwriter.Reader, q lobwriter.Query, each func(lobwriter.Document) error) (more bool, err error) {
	limit := q.Limit
	for n := 0; ; {
		q.Limit = pageSize
		if limit > 0 {
			q.Limit = min(pageSize, limit-n+1) // one more tells whether there are more
		}
		page, err := r.Documents(ctx, q)
		if err != nil {
			return false, err
		}
		for _, d := range page {
			if limit > 0 && n == limit {
				return true, nil
			}
			if err := each(d); err != nil {
				return false, err
			}
			n++
			q.After = d.Key
		}
		if len(page) < q.Limit {
			return false, nil
		}
	}
}

func (a *app) listDocuments(ctx context.Context, r lobwriter.Reader, q lobwriter.Query, out *output) error {
	list := jsonList{w: a.stdout}
	t := newTable("KEY", "STATE", "FRAGMENTS", "HOLES", "BYTES", "UPDATED")
	last := ""
	more, err := eachDocument(ctx, r, q, func(d lobwriter.Document) error {
		last = d.Key
		if out.json() {
			return list.add(viewDocument(d))
		}
		t.AppendRow(table.Row{printable(d.Key), d.State.String(), d.Fragments, d.Holes, d.Bytes, timestamp(d.UpdatedAt)})
		return nil
	})
	if err != nil {
		return err
	}
	if out.json() {
		err = list.end()
	} else {
		err = a.printTable(t)
	}
	if more {
		fmt.Fprintf(a.stderr, "there are more: --after %s\n", shellQuoted(last))
	}
	return err
}

// textRead is a document's text as it was read, next to what its row says.
type textRead struct {
	row   lobwriter.Document
	bytes int64
	crc   uint32
}

// readText copies the text of a document to w. Whether it is what the row says is
// for the caller to ask.
func readText(ctx context.Context, r lobwriter.Reader, key string, w io.Writer) (t textRead, err error) {
	t.row, err = r.Read(ctx, key, func(piece []byte) error {
		t.bytes += int64(len(piece))
		t.crc = lobwriter.Checksum(t.crc, piece)
		_, err := w.Write(piece)
		return err
	})
	if errors.Is(err, lobwriter.ErrDamaged) {
		err = nil // see fault
	}
	return t, err
}

// fault says how the text differs from its row; nil: not at all.
func (t *textRead) fault() error {
	if t.bytes == t.row.Bytes && t.crc == t.row.CRC {
		return nil
	}
	return failed("document %s is damaged: its text has %d bytes with CRC-32C %s, its row says %d and %s",
		strconv.Quote(t.row.Key), t.bytes, checksumText(t.crc), t.row.Bytes, checksumText(t.row.CRC))
}
