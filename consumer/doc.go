// Package consumer turns a JetStream stream into flushes: it claims partitions,
// reads them in order, hands groups of fragments to a store, and acknowledges
// what a receipt confirms.
//
// Every decision is made by Partition, a pure value: events in, actions out, no
// goroutine, clock, lock or I/O. Run is the shell around it: it carries out the
// actions with goroutines, connections and clocks, and has no opinion of its
// own. The seeded world of the tests drives the same Partition.
//
// A reader follows one fragment through jetstream.go (a message becomes a
// Fragment), partition.go (it is received), flush.go (it is flushed and
// acknowledged).
package consumer
