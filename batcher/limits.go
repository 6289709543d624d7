package batcher

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// DefaultMaxDistance is Limits.MaxDistance where none is given. A fragment that
// is held keeps everything behind it unacknowledged: a server with 1,000,000
// unacknowledged messages spent 0.67 of a core on a trickle of 200 a second, one
// with 100,000 next to nothing. It also bounds what is read again after a crash.
const DefaultMaxDistance = 100_000

// Limits says when a document is due.
type Limits struct {
	// MaxAge is how long a fragment may wait, counted from the now of its Add;
	// 0: not at all. Groups then form only while others are in flight.
	MaxAge time.Duration
	// ChunkBytes is how much text makes a document due: one full LOB write.
	ChunkBytes int
	// MaxDistance is how many messages of the partition may be read after a
	// fragment before its document is due; 0: DefaultMaxDistance.
	MaxDistance uint64
}

// Validate returns an error that says which limit is wrong, and what it may be.
func (l Limits) Validate() error {
	if l.MaxAge < 0 {
		return fmt.Errorf("max age %v is negative: give 0 to flush at once, or how long a fragment may wait", l.MaxAge)
	}
	if l.ChunkBytes < utf8.UTFMax {
		return fmt.Errorf("%d bytes per chunk are too few: the longest character takes %d", l.ChunkBytes, utf8.UTFMax)
	}
	return nil
}

// Limit is what one Take may hand out.
type Limit struct {
	// Documents is the most groups. Less than 1 counts as 1.
	Documents int
	// Bytes is the most text. A single larger fragment goes alone.
	Bytes int
}
