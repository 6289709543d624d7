package lobwriter

import "context"

// Rebuilder replaces the text of documents by new generations of them, beside
// running owners.
type Rebuilder interface {
	// Build begins a new generation of a document: generation is that of the
	// stored row + 1, and 1 where there is no row. One build may be under way
	// at a time; another one waits for its end.
	Build(ctx context.Context, partition int, key string, generation int64) (Build, error)
}

// Build is a new generation of one document while it is being written. Nobody
// sees it before it is swapped in. Nothing of it is left behind without that,
// however the program ends. It is for one goroutine.
type Build interface {
	// Append appends chunks to the text; Group.Chunks says what they are. After
	// an error the build can only be closed. An Invalid error says that the
	// database refuses the text.
	Append(ctx context.Context, chunks [][]byte) error

	// Swap puts the new generation in the place of the stored one, in one
	// transaction under the fence row of the partition. row describes it, and
	// repairs are those that went into it; both replace what is stored.
	//
	// It is swapped in only if no other change of the document gets lost by it:
	// the stored row has the mark of row and the generation before; or there is
	// no row, and the mark of row is not above the checkpoint, so that the owner
	// holds nothing of it. Otherwise nothing is changed, the stored row comes
	// back, and the build may go on.
	//
	// After an error that is Transient the outcome is unknown.
	Swap(ctx context.Context, row Row, repairs []Repair) (stored Row, swapped bool, err error)

	// Close ends the build. What was not swapped in is gone.
	Close() error
}

// RepairReader reads what operators decided about single fragments.
type RepairReader interface {
	// Repairs returns the repairs of a document, in the order of their marks.
	// Without a document there are none.
	Repairs(ctx context.Context, key string) ([]Repair, error)
}

// Repair is an operator's decision about one fragment of a document. It is kept
// with the document, so that every later rebuild comes to the same text.
type Repair struct {
	// Mark is the fragment.
	Mark Mark
	// Omit leaves it out: it is a hole, whatever it holds.
	Omit bool
	// Text takes the place of what it holds, if Omit is false.
	Text []byte
}

// MaySwap reports whether Build.Swap puts row in the place of stored, which is
// absent where there is no document.
func MaySwap(f Fence, stored, row Row) bool {
	switch {
	case stored.Generation+1 != row.Generation:
		return false
	case stored.Absent():
		return row.Mark.Life == f.Life && row.Mark.Seq <= f.Checkpoint.Seq
	}
	return stored.Mark == row.Mark
}

// ReasonGap is what the reason of a document begins with that may miss fragments
// which the stream discarded before they were read.
const ReasonGap = "gap: "
