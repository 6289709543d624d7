package batcher

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

// memory returns what a fragment costs while it is held. The capacity of a
// copied slice is what the allocator gave, up to a quarter more than its length.
func (h *held) memory() int64 { return int64(cap(h.data)) + heldBytes }

// overhead returns what a document costs beside its fragments.
func (d *document) overhead() int64 { return int64(len(d.key)) + documentBytes }

// Bytes returns about how much memory everything held takes, waiting or in
// flight: data by its capacity, the data of holes included, and the overhead of
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
