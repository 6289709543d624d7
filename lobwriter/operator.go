package lobwriter

// Operator is what the commands of an operator need of a database. It works
// beside running owners. Each of its changes is one short transaction, which
// takes the lock of the fence row first, as a flush does: an owner that believes
// otherwise finds out by the answer to its next flush.
//
// Its errors have kinds as those of a Store do.
type Operator interface {
	Reader
	RepairReader
	Rebuilder
	Purger
	Checkpointer

	// Limits returns what one flush, and one chunk, may carry.
	Limits() Limits
}
