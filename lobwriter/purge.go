package lobwriter

import (
	"context"
	"time"
)

// Purger deletes documents.
type Purger interface {
	// Purge deletes those of the keys whose document is in the given state, was
	// not changed for at least older, and has its mark at or below the checkpoint,
	// so that no owner holds anything of it. All of that is checked in the
	// transaction that deletes. Other keys are left as they are.
	//
	// Nothing below what was purged may be stored again, or parts of deleted
	// documents would be. So the checkpoint of the first Purge that goes beyond
	// those before is kept, see CheckpointMove.BelowPurged; and in the same
	// transaction the flush number rises by 2. Its owner may not know whether its
	// last flush was committed, and would take a number that rose by 1 for its own:
	// it would repeat what it read before. By 2, it claims again.
	Purge(ctx context.Context, p Purge) (Purged, error)
}

// Purge is one transaction that deletes documents of one partition.
type Purge struct {
	Partition int
	Keys      []string
	State     State
	// Older is by the database's clock.
	Older time.Duration
	// DryRun only counts.
	DryRun bool
}

// Purged is what a Purge did.
type Purged struct {
	// Documents and Bytes are those that were deleted.
	Documents int
	Bytes     int64
	// Above counts documents that were not deleted only because their mark is
	// above the checkpoint.
	Above int
}
