package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/rebuild"
	"github.com/lobsink/lobsink/lobwriter"
)

// verification is one run of doc verify.
type verification struct {
	*app
	reader lobwriter.Reader
	out    *output
	all    bool
	prefix string
	since  time.Time
	stream bool

	fragments *consumer.Fragments // nil: the stream is not compared
	binding   lobwriter.Binding

	list            jsonList
	damaged, differ table.Writer
	checked, failed int
	unknown         int
	progress        *progress
}

// verified is one checked document in JSON. What begins with stream is there with
// --stream.
type verified struct {
	Key          string `json:"key"`
	OK           bool   `json:"ok"`
	Bytes        int64  `json:"bytes"`
	CRC32C       string `json:"crc32c"`
	StoredBytes  int64  `json:"stored_bytes"`
	StoredCRC32C string `json:"stored_crc32c"`

	*streamVerified
}

type streamVerified struct {
	// Stream is equal, differs or unknown.
	Stream string `json:"stream"`
	// Offset is that of the first differing byte, and Sequence its fragment.
	Offset   *int64  `json:"offset"`
	Sequence *uint64 `json:"sequence"`
	// Reason says why it is unknown.
	Reason *string `json:"stream_reason"`
}

// begin connects to the stream, if it is to be compared, and verifies.
func (v *verification) begin(ctx context.Context, keys []string) error {
	if !v.stream {
		return v.run(ctx, keys)
	}
	if _, ok := v.reader.(rebuild.Source); !ok {
		return failed("documents of this database cannot be compared with the stream")
	}
	return v.withNATS(func(d *desk) (err error) {
		if v.fragments, err = consumer.OpenFragments(ctx, d.js, d.cfg.Stream, int(d.cfg.MaxFragmentBytes)); err != nil {
			return err
		}
		if v.binding, err = rebuild.Bound(ctx, v.reader, v.fragments); err != nil {
			return err
		}
		return v.run(ctx, keys)
	})
}

func (v *verification) run(ctx context.Context, keys []string) error {
	v.list, v.progress = v.out.list(v.stdout), newProgress(v.stderr, "verified", 0)
	v.damaged = newTable("KEY", "BYTES", "CRC32C", "BYTES IN ROW", "CRC32C IN ROW")
	v.differ = newTable("KEY", "STREAM", "OFFSET", "SEQUENCE", "REASON")
	for _, key := range keys {
		if err := v.check(ctx, key); err != nil {
			return documentError(key, err)
		}
	}
	if len(keys) == 0 {
		if err := v.checkAll(ctx); err != nil {
			return err
		}
	}
	if err := v.print(); err != nil {
		return err
	}
	switch {
	case v.failed > 0:
		return failed("%d of %d documents are damaged", v.failed, v.checked)
	case v.unknown > 0:
		return withCode(exitRejects, fmt.Errorf("%d of %d documents cannot be compared with the stream", v.unknown, v.checked))
	}
	return nil
}

func (v *verification) checkAll(ctx context.Context) error {
	_, err := eachDocument(ctx, v.reader, lobwriter.Query{Prefix: v.prefix}, func(d lobwriter.Document) error {
		if !v.since.IsZero() && d.UpdatedAt < v.since.UnixNano() {
			return nil
		}
		err := v.check(ctx, d.Key)
		if errors.Is(err, lobwriter.ErrNotFound) {
			return nil // gone since it was listed
		}
		v.progress.document()
		return err
	})
	return err
}

// check verifies one document.
func (v *verification) check(ctx context.Context, key string) error {
	t, c, err := v.read(ctx, key)
	if err != nil {
		return err
	}
	v.checked++
	v.progress.bytes += t.bytes
	damaged := t.fault() != nil
	ok := !damaged && (c == nil || c.Stream == "equal")
	if damaged {
		v.damaged.AppendRow(table.Row{printable(key), t.bytes, checksumText(t.crc), t.row.Bytes, checksumText(t.row.CRC)})
	}
	if c != nil && c.Stream != "equal" {
		v.differ.AppendRow(table.Row{printable(key), c.Stream, orDash(c.Offset), orDash(c.Sequence), orDash(c.Reason)})
	}
	switch {
	case damaged || c != nil && c.Stream == "differs":
		v.failed++
	case !ok:
		v.unknown++
	}
	if !v.out.json() {
		return nil
	}
	return v.list.add(verified{
		Key: key, OK: ok, Bytes: t.bytes, CRC32C: checksumText(t.crc),
		StoredBytes: t.row.Bytes, StoredCRC32C: checksumText(t.row.CRC), streamVerified: c,
	})
}

// read reads a document, and compares it with the stream if that is asked for.
func (v *verification) read(ctx context.Context, key string) (textRead, *streamVerified, error) {
	if v.fragments == nil {
		t, err := readText(ctx, v.reader, key, io.Discard)
		return t, nil, err
	}
	c, err := rebuild.Compare(ctx, v.reader.(rebuild.Source), v.fragments, v.binding, key)
	if err != nil {
		return textRead{}, nil, err
	}
	view := &streamVerified{Stream: "equal"}
	switch {
	case c.Unknown != "":
		view = &streamVerified{Stream: "unknown", Reason: &c.Unknown}
	case c.Difference != nil:
		view = &streamVerified{Stream: "differs", Offset: &c.Difference.Offset, Sequence: &c.Difference.Seq}
	}
	t := textRead{row: c.Row, bytes: c.Bytes, crc: c.CRC}
	if !c.Whole {
		t, err = readText(ctx, v.reader, key, io.Discard)
	}
	return t, view, err
}

func (v *verification) print() error {
	if v.out.json() {
		return v.list.end(field{"checked", strconv.Itoa(v.checked)}, field{"failed", strconv.Itoa(v.failed)})
	}
	for _, t := range []table.Writer{v.damaged, v.differ} {
		if t.Length() > 0 {
			if err := v.printTable(t); err != nil {
				return err
			}
		}
	}
	text := fmt.Sprintf("checked %d, failed %d", v.checked, v.failed)
	if v.unknown > 0 {
		text += fmt.Sprintf(", unknown %d", v.unknown)
	}
	_, err := fmt.Fprintln(v.stdout, text)
	return err
}
