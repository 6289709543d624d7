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
	// Sabotage changes the stored text of a document behind lobsink's back,
	// leaving its row as it is; may be nil.
	Sabotage func(t testing.TB, key string)
}

// Test runs the contract against a store. Each subtest opens its own fixture.
func Test(t *testing.T, open func(t *testing.T) Fixture) {
	t.Helper()
	for _, topic := range []struct {
		name string
		test func(*testing.T, Fixture)
	}{} {
		t.Run(topic.name, func(t *testing.T) { topic.test(t, open(t)) })
	}
}
