package check

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ReadDatabase reads every document through the view of whole documents.
func ReadDatabase(ctx context.Context, database string) (map[string]Document, error) {
	out := map[string]Document{}
	err := query(ctx, database, "select doc_key, state, bytes, text from lobsink_texts", func(row pgx.CollectableRow) error {
		var key string
		var d Document
		if err := row.Scan(&key, &d.State, &d.Bytes, &d.Text); err != nil {
			return err
		}
		out[key] = d
		return nil
	})
	return out, err
}

// Behind returns the number of documents whose last fragment is not stored yet,
// and an example for people. What comes after the final fragment moves the
// document's mark as well.
func Behind(ctx context.Context, database string, stream Stream) (n int, example string, err error) {
	marks := map[string]uint64{}
	err = query(ctx, database, "select doc_key, seq from lobsink_documents", func(row pgx.CollectableRow) error {
		var key string
		var seq int64
		if err := row.Scan(&key, &seq); err != nil {
			return err
		}
		marks[key] = uint64(seq)
		return nil
	})
	if err != nil {
		return 0, "", err
	}
	for key, fragments := range stream {
		if last := fragments[len(fragments)-1].Seq; marks[key] < last {
			n++
			example = fmt.Sprintf("%s is at %d of %d", key, marks[key], last)
		}
	}
	return n, example, nil
}

func query(ctx context.Context, database, text string, each func(pgx.CollectableRow) error) error {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return fmt.Errorf("reading the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, text)
	if err != nil {
		return fmt.Errorf("reading the database: %w", err)
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, each(row) })
	if err != nil {
		return fmt.Errorf("reading the database: %w", err)
	}
	return nil
}
