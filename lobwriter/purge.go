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
