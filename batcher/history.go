package batcher

// history is every fragment added, in stream order, from the first one that is
// still held. What became of an entry is asked of its document, so that neither
// taking nor settling has to search here.
type history struct {
	blocks [][]entry
	// first and end are the numbers of the first entry and of the one to come;
	// the first is in blocks[0].
	first, end uint64
}

// entry is one fragment added.
type entry struct {
	doc   *doc
	seq   uint64
	added int64  // when, in Unix nanoseconds
	read  uint64 // how many messages of the partition had been read
}

// blockEntries is the size of a block. Blocks do not move, so that a history of
// a million entries never needs a second copy of itself to grow.
const blockEntries = 512

func (h *history) at(i uint64) *entry {
	b := i/blockEntries - h.first/blockEntries
	return &h.blocks[b][i%blockEntries]
}

func (h *history) push(e entry) {
	if h.end%blockEntries == 0 || len(h.blocks) == 0 {
		h.blocks = append(h.blocks, make([]entry, blockEntries))
	}
	*h.at(h.end) = e
	h.end++
}

// trim forgets the entries at the beginning that are settled.
func (h *history) trim() {
	for h.first < h.end {
		e := h.at(h.first)
		if e.seq > e.doc.settled {
			return
		}
		*e = entry{}
		h.first++
		if h.first%blockEntries == 0 {
			h.blocks = h.blocks[1:]
		}
	}
}
