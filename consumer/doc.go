// Package consumer turns a JetStream stream into flushes: it claims partitions,
// reads them in order, hands groups of fragments to a store, and acknowledges
// what a receipt confirms.
//
// Every decision about a partition is made by Partition, and which partitions are
// this member's to own is decided by Share. Both are pure values: events in,
// actions or decisions out, no goroutine, clock, lock or I/O. Run is the shell
// around them: it carries out the actions with goroutines, connections and clocks,
// and has no opinion of its own. The seeded world of the tests drives the same
// Partition.
//
// A reader follows one fragment through jetstream.go (a message becomes a
// Fragment), partition.go (it is received), flush.go (it is flushed and
// acknowledged).
package consumer
