// Package lobtest holds the store contract as a test suite, an in-memory
// reference store, and a store that fails on purpose.
//
// A store runs the suite with a test of a few lines:
//
//	func TestContract(t *testing.T) {
//		lobtest.Test(t, func(t *testing.T) lobtest.Fixture { ... })
//	}
package lobtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
)

// Fixture is a set-up, empty set of tables that no stream is bound to yet. The
// function that opens one also registers its end with t.Cleanup.
type Fixture struct {
	// Store is the store under test.
	Store lobwriter.Store
	// Reader reads the same tables.
	Reader lobwriter.Reader
	// Second opens another Store on the same tables, as another process would;
	// nil where the store serves one process only. What it opens is closed by
	// t.Cleanup.
	Second func(t testing.TB) lobwriter.Store
	// Hold locks the fence row of a partition that was claimed, as a flush
	// under way does, until release is called; may be nil.
	Hold func(t testing.TB, partition int) (release func())
	// Operator opens a lobwriter.Operator of the same tables; nil where the store
	// has none. What it opens is closed by t.Cleanup.
	Operator func(t testing.TB) lobwriter.Operator
	// Checkpoints says that the Operator is a lobwriter.Checkpointer too.
	Checkpoints bool
	// Sabotage changes one byte of the stored text of a document behind
	// lobsink's back, leaving its row and the length as they are; may be nil.
	Sabotage func(t testing.TB, key string)
}

// rule is one sentence of the contract.
type rule struct {
	name string
	test func(t *testing.T, f Fixture)
}

// Test runs the contract against a store, whose flushes take at least 4
// documents. Each rule has a fixture of its own.
func Test(t *testing.T, open func(t *testing.T) Fixture) {
	t.Helper()
	for _, topic := range []struct {
		name  string
		rules []rule
	}{
		{"Bind", bindRules},
		{"Members", memberRules},
		{"Claim", claimRules},
		{"Renew", renewRules},
		{"Fence", fenceRules},
		{"Checkpoint", checkpointRules},
		{"Answers", answerRules},
		{"Contents", contentRules},
		{"Keys", keyRules},
		{"Rejected", rejectedRules},
		{"Races", raceRules},
		{"Reader", readerRules},
		{"Rebuild", operators(rebuildRules)},
		{"Purge", operators(purgeRules)},
		{"Checkpointer", checkpointers(checkpointerRules)},
	} {
		t.Run(topic.name, func(t *testing.T) {
			for _, r := range topic.rules {
				t.Run(r.name, func(t *testing.T) { r.test(t, open(t)) })
			}
		})
	}
}

// operators are rules about a store that has an Operator.
func operators(rules []rule) []rule {
	out := slices.Clone(rules)
	for i, r := range rules {
		out[i].test = func(t *testing.T, f Fixture) {
			if f.Operator == nil {
				t.Skip("the store has no operator")
			}
			r.test(t, f)
		}
	}
	return out
}

// checkpointers are rules about a store whose Operator moves checkpoints.
func checkpointers(rules []rule) []rule {
	out := operators(rules)
	for i, r := range out {
		out[i].test = func(t *testing.T, f Fixture) {
			if !f.Checkpoints {
				t.Skip("the store's operator moves no checkpoints")
			}
			r.test(t, f)
		}
	}
	return out
}

// others returns the stores on the tables: the first, and a second process where
// there can be one; otherwise the first again.
func (f Fixture) others(t testing.TB) []lobwriter.Store {
	if f.Second == nil {
		return []lobwriter.Store{f.Store, f.Store}
	}
	return []lobwriter.Store{f.Store, f.Second(t)}
}

// CheckDocument reads a document and fails the test unless its text is want and
// its row says so: length in bytes and in the store's unit, and checksum.
func CheckDocument(t testing.TB, r lobwriter.Reader, unit lobwriter.Unit, key, want string) lobwriter.Document {
	t.Helper()
	d, text := read(t, r, key)
	switch {
	case text != want:
		t.Errorf("%q: the stored text differs: %s", key, difference(text, want))
	case d.Key != key:
		t.Errorf("%q: the row has key %q", key, d.Key)
	case d.Bytes != int64(len(want)) || d.Units != unit.Count([]byte(want)) || d.CRC != lobwriter.Checksum(0, []byte(want)):
		t.Errorf("%q: the row does not describe its %d bytes: %+v", key, len(want), d.Row)
	}
	return d
}

func (f Fixture) document(t testing.TB, key, want string) lobwriter.Document {
	t.Helper()
	return CheckDocument(t, f.Reader, f.Store.Limits().Unit, key, want)
}

func read(t testing.TB, r lobwriter.Reader, key string) (lobwriter.Document, string) {
	t.Helper()
	var text []byte
	d, err := r.Read(t.Context(), key, func(piece []byte) error {
		text = append(text, piece...)
		return nil
	})
	if err != nil {
		t.Fatalf("read %q: %v", key, err)
	}
	return d, string(text)
}

// row reads the stored row of one key.
func row(t testing.TB, s lobwriter.Store, partition int, key string) lobwriter.Row {
	t.Helper()
	rows, err := s.Rows(t.Context(), partition, []string{key})
	if err != nil || len(rows) != 1 {
		t.Fatalf("rows of %q: %v, %v", key, rows, err)
	}
	return rows[0]
}

// fence reads the fence row of a partition.
func fence(t testing.TB, s lobwriter.Store, partition int) lobwriter.Fence {
	t.Helper()
	f, err := s.Fence(t.Context(), partition)
	if err != nil {
		t.Fatalf("fence: %v", err)
	}
	return f
}

// statuses fails the test unless a receipt has these answers.
func statuses(t testing.TB, r lobwriter.Receipt, want ...lobwriter.Status) {
	t.Helper()
	got := make([]lobwriter.Status, len(r.Answers))
	for i, a := range r.Answers {
		got[i] = a.Status
	}
	if !slices.Equal(got, want) {
		t.Fatalf("answers %v, want %v", got, want)
	}
}

// kind fails the test unless an error is of a kind.
func kind(t testing.TB, err error, want lobwriter.Kind) {
	t.Helper()
	if err == nil || lobwriter.KindOf(err) != want {
		t.Fatalf("error %v, want one of kind %v", err, want)
	}
}

// difference says where two texts differ, in a line that can be read however
// long they are.
func difference(got, want string) string {
	n := 0
	for n < len(got) && n < len(want) && got[n] == want[n] {
		n++
	}
	around := func(s string) string { return s[max(0, n-8):min(len(s), n+24)] }
	return fmt.Sprintf("%d bytes, want %d; from byte %d on %q, want %q", len(got), len(want), n, around(got), around(want))
}
