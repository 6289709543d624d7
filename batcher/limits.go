package batcher

import (
	"fmt"
	"time"
)

// Limits say when a document is due.
type Limits struct {
	// MaxAge is how long a fragment may wait; 0: it is due at once.
	MaxAge time.Duration
	// ChunkBytes is the text, in bytes, at which a document is due by its size.
	ChunkBytes int
	// MaxDistance is how many messages of the partition may be read after a
	// fragment before its document is due; 0: DefaultDistance.
	MaxDistance uint64
}

// DefaultDistance bounds what one waiting fragment leaves unacknowledged at the
// server behind it. With 1,000,000 unacknowledged messages a trickle of 200
// messages a second cost nats-server 0.67 of a core; with 100,000 nothing to
// speak of.
const DefaultDistance = 100_000

// Validate reports what is wrong with the limits.
func (l Limits) Validate() error {
	if l.MaxAge < 0 {
		return fmt.Errorf("max_age is %s, must not be negative", l.MaxAge)
	}
	if l.ChunkBytes < 1 {
		return fmt.Errorf("chunk_bytes is %d, must be at least 1", l.ChunkBytes)
	}
	return nil
}

// Limit is what one Take may hand out.
type Limit struct {
	// Documents is the most groups.
	Documents int
	// Bytes is the most text.
	Bytes int
}

// Memory of what is held, beside the data and the key, in bytes. Measured by
// TestBytes with 200,000 documents: heap growth over data and keys.
const (
	documentBytes = 110 // doc and its map entry
	fragmentBytes = 185 // Fragment in a slice that doubles, and its entry
)

// cost is the memory that a fragment takes in its document.
func cost(f *Fragment) int64 {
	// The allocator rounds small data up, to 8 and then to 16 bytes.
	return fragmentBytes + int64(len(f.Data)+15)&^15
}
