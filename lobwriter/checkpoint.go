package lobwriter

import (
	"context"
	"fmt"
)

// Checkpointer changes, by an operator's decision, how far partitions are and what
// the tables are bound to. Each change raises the epochs of the partitions that it
// touches and draws them another claim ID: an owner that is running is fenced, drops
// what it holds, and claims again.
type Checkpointer interface {
	// MoveCheckpoint moves the checkpoint of one partition, forward or back, and
	// returns the fence row as it stands then. When the stored life or checkpoint is
	// not what the operator saw, nothing is changed and the error is Fenced. A
	// checkpoint below the one at which documents were purged is Invalid.
	MoveCheckpoint(ctx context.Context, m CheckpointMove) (Fence, error)

	// Rebind binds the tables to another life of the stream, or to another number
	// of partitions. When the stored binding is not what the operator saw, nothing
	// is changed and the error is Fenced. When the number of partitions changes and
	// a lease has not ended, the error is Held.
	Rebind(ctx context.Context, r Rebinding) error
}

// CheckpointMove is a decision about one partition.
type CheckpointMove struct {
	Partition int
	// Life and From are what the operator saw.
	Life int64
	From Position
	// To is where the checkpoint goes; zero: before everything.
	To Position
	// ClaimID is random: 16 hex digits.
	ClaimID string
	// Reason makes open documents of the partition incomplete, with this reason;
	// "": no document is touched.
	Reason string
	// Keys are the documents that Reason is about; nil: all of the partition.
	Keys []string
}

// Rebinding is a decision about all partitions.
type Rebinding struct {
	// From is what the operator saw.
	From Binding
	// To is what the tables are bound to then. Its name and database ID are those
	// of From.
	To Binding
	// Checkpoint is that of all partitions; zero: none.
	Checkpoint Position
	// ClaimID is random: 16 hex digits.
	ClaimID string
	// Restart has open and incomplete documents begin again: each becomes an empty
	// one of the next generation, without its text.
	Restart bool
	// PartitionOf tells the partition of a key, where their number changes; else
	// nil.
	PartitionOf func(key string) int
}

// BelowPurged is the error of a move to a checkpoint below what was purged.
func (m CheckpointMove) BelowPurged(purged Mark) error {
	if m.Life != purged.Life || m.To.Seq >= purged.Seq {
		return nil
	}
	return &Error{Kind: Invalid, Op: "move the checkpoint",
		Err:  fmt.Errorf("documents of partition %d were purged when its checkpoint was %d: behind %d, parts of them would be stored again", m.Partition, purged.Seq, m.To.Seq),
		Hint: "build single documents again instead: lobsink replay --key"}
}

// Restarted returns the row of a document that begins again in a life of the
// stream.
func (r Row) Restarted(life int64) Row {
	return Row{Generation: r.Generation + 1, State: Open, Mark: Mark{Life: life}}
}
