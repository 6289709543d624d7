package lobtest

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/lobsink/lobsink/lobwriter"
)

// Binding implements lobwriter.Reader.
func (m *Memory) Binding(ctx context.Context) (lobwriter.Binding, error) {
	defer m.lock()()
	switch {
	case ctx.Err() != nil:
		return lobwriter.Binding{}, ctx.Err()
	case m.tables.binding.Life == 0:
		return lobwriter.Binding{}, lobwriter.ErrNotFound
	}
	return m.tables.binding, nil
}

// Document implements lobwriter.Reader.
func (m *Memory) Document(ctx context.Context, key string) (lobwriter.Document, error) {
	d, err := m.find(ctx, key)
	return d.Document, err
}

// Documents implements lobwriter.Reader.
func (m *Memory) Documents(ctx context.Context, q lobwriter.Query) ([]lobwriter.Document, error) {
	defer m.lock()()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var found []lobwriter.Document
	for key, d := range m.tables.documents {
		if key > q.After && strings.HasPrefix(key, q.Prefix) && (q.State == 0 || q.State == d.State) {
			found = append(found, d.Document)
		}
	}
	slices.SortFunc(found, func(a, b lobwriter.Document) int { return cmp.Compare(a.Key, b.Key) })
	return found[:min(len(found), q.Limit)], nil
}

// Read implements lobwriter.Reader.
func (m *Memory) Read(ctx context.Context, key string, chunk func([]byte) error) (lobwriter.Document, error) {
	d, err := m.find(ctx, key)
	if err != nil {
		return lobwriter.Document{}, err
	}
	for piece := range slices.Chunk(d.text, m.limits.ChunkBytes) {
		if err := chunk(piece); err != nil {
			return lobwriter.Document{}, err
		}
	}
	return d.Document, nil
}

// Roster implements lobwriter.Reader.
func (m *Memory) Roster(ctx context.Context) (lobwriter.Roster, error) {
	defer m.lock()()
	if ctx.Err() != nil {
		return lobwriter.Roster{}, ctx.Err()
	}
	return m.roster(m.Now()), nil
}

func (m *Memory) find(ctx context.Context, key string) (document, error) {
	defer m.lock()()
	if ctx.Err() != nil {
		return document{}, ctx.Err()
	}
	d := m.tables.documents[key]
	if d.Absent() {
		return document{}, lobwriter.ErrNotFound
	}
	return d, nil
}
