package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// Rebuilder rebuilds documents. It is for one goroutine.
type Rebuilder struct {
	// Pace is called after so many bytes of text have been written; it may wait.
	// nil: nobody is asked.
	Pace func(ctx context.Context, bytes int) error

	operator lobwriter.Operator
	stream   *consumer.Fragments
	letters  *letters
	binding  lobwriter.Binding
}

// New returns a rebuilder of the documents of a database. The stream must be the
// one that the database is bound to, in the life that it is bound to.
func New(ctx context.Context, op lobwriter.Operator, stream *consumer.Fragments, dead *consumer.DeadLetters) (*Rebuilder, error) {
	b, err := Bound(ctx, op, stream)
	if err != nil {
		return nil, err
	}
	return &Rebuilder{operator: op, stream: stream, letters: &letters{dead: dead, life: b.Life}, binding: b}, nil
}

// Bound returns what a database is bound to, or a Fatal error if that is not the
// stream.
func Bound(ctx context.Context, r lobwriter.Reader, stream *consumer.Fragments) (lobwriter.Binding, error) {
	fatal := func(hint, format string, args ...any) error {
		return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "compare stream and database", Hint: hint, Err: fmt.Errorf(format, args...)}
	}
	b, err := r.Binding(ctx)
	if errors.Is(err, lobwriter.ErrNotFound) {
		return b, fatal("let lobsink run store something first, or name another database", "nothing was ever stored in this database")
	}
	if err != nil {
		return b, err
	}
	created, layout := stream.Facts().Created, stream.Layout()
	switch {
	case b.Created != created:
		return b, fatal("see: lobsink checkpoint show", "the stream was created at %s, the one that the documents came from at %s", stamp(created), stamp(b.Created))
	case b.Partitions != layout.Partitions:
		return b, fatal("see: lobsink checkpoint partitions", "the stream has %d partitions, the database %d", layout.Partitions, b.Partitions)
	}
	return b, nil
}

func stamp(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

// Options say how a document is rebuilt.
type Options struct {
	// Repairs are decisions about fragments, beside those that are stored. A new
	// one about the same fragment takes the place of the stored one.
	Repairs []lobwriter.Repair
	// Whole refuses to rebuild a document of which fragments would be refused
	// again that nobody decided about.
	Whole bool
	// DryRun changes nothing.
	DryRun bool
}

// Result is what became of a document.
type Result struct {
	// Before and After are its rows; absent where there was none, and After what
	// it would be with DryRun.
	Before, After lobwriter.Row
	// Refused are the fragments that are in the dead letters and not in the text.
	Refused []Refusal
	// Removed counts dead letters that are gone, since the document has them now.
	Removed int
}

// RefusedError means that a document stays as it is.
type RefusedError struct {
	Key, Reason string
	// Final says that no other source of fragments can help.
	Final bool
	// Again are the fragments that would be refused again, if that is why.
	Again []Refusal
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("document %q is left as it is: %s", e.Key, e.Reason)
}

func refuse(key, format string, args ...any) error {
	return &RefusedError{Key: key, Reason: fmt.Sprintf(format, args...)}
}
