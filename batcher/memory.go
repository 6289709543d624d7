package batcher

import "math/bits"

// What Go's allocator uses beyond keys and data, in bytes on a 64-bit machine.
// TestBytesMatchesHeap measures it.
const (
	// heldBytes: a held (104, allocated as 112) and its place (8 to 16, as full
	// as the slice is).
	heldBytes = 112 + 14
	// documentBytes: a document (80), its map entry (29 to 58, as full as the
	// map is), and what rounding up adds to the key.
	documentBytes = 80 + 50 + 8
	// takenBytes: a Fragment (88) in the group that Take handed out, and its
	// part of the slice's rounding up.
	takenBytes = 92
)

// memory returns what a fragment costs while it is held.
func (h *held) memory() int64 { return allocated(cap(h.data)) + heldBytes }

// allocated returns about what the allocator takes for n bytes: its sizes are 16
// bytes apart up to 256, then an eighth to a sixteenth of the size, and whole
// pages of 8 KiB above 32 KiB (runtime/sizeclasses.go).
func allocated(n int) int64 {
	step := 16
	switch {
	case n > 32<<10:
		step = 8 << 10
	case n > 256:
		step = 1 << (bits.Len(uint(n-1)) - 4)
	}
	return int64((n + step - 1) / step * step)
}

// overhead returns what a document costs beside its fragments.
func (d *document) overhead() int64 { return int64(len(d.key)) + documentBytes }

// Bytes returns about how much memory everything held takes, waiting or in
// flight: the arrays of data, those of holes included, and the overhead of
// each fragment and each key.
func (b *Batcher) Bytes() int64 { return b.bytes }

// Full reports whether Bytes is above limit. The caller then calls Relieve.
func (b *Batcher) Full(limit int64) bool { return b.bytes > limit }

// Relieve makes documents due until those that are due free so many bytes of
// memory, if there are enough. It chooses the longest buffers, by powers of
// two: they free the most for one write. Within a power it chooses those that
// reached it first.
func (b *Batcher) Relieve(bytes int64) {
	for b.dueBytes < bytes {
		d := b.queues.longest()
		if d == nil {
			return
		}
		b.makeDue(d)
		b.place(d)
	}
}
