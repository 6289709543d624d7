package orascript

import (
	"math"
	"time"
)

// Load is what a database shall hold and take.
type Load struct {
	// Documents is how many are stored in the end, Bytes the mean length of one in
	// UTF-8, ChunkBytes the most of one LOB write.
	Documents, Bytes, ChunkBytes int64
	// Open is for how long fragments of one document keep coming, Flush how often
	// they are flushed.
	Open, Flush time.Duration
	// PerSecond is how many documents begin in a second.
	PerSecond float64
	// Retention is for how long the database keeps what was replaced: the undo
	// retention.
	Retention time.Duration
	// Partitions is the number of the stream's partitions.
	Partitions int
}

// Size is an estimate of what a Load takes. Bytes are bytes.
type Size struct {
	// Appends is how many LOB writes a document takes.
	Appends float64
	// Text is the LOB segment, Rows table and index.
	Text, Rows int64
	// Redo is what is written for all documents, RedoPerSecond for those that begin
	// in a second.
	Redo          int64
	RedoPerSecond float64
	// Retained is what replaced last blocks hold of the LOB segment for Retention.
	Retained int64
	// Sessions is the most that one member has.
	Sessions int
}

// The figures behind the estimate. None was measured: they are what Oracle's
// documentation and published measurements lead to.
const (
	// lobBlock is a block of 8 KiB, lobBlockText its room for text: 8,060 bytes.
	lobBlock, lobBlockText = 8192, 8060
	// widened is what text of ASCII grows by: CLOBs are stored in UTF-16.
	widened = 2
	// rowBytes is a document row with its locator, indexBytes its key in the index.
	rowBytes, indexBytes = 350, 100
	// rowRedo is the redo of a flush for one document beside the text: its row, the
	// undo of it, the LOB's index and the share of the fence row.
	rowRedo = 2500
	// beside are the sessions of a member beside those for flushes.
	beside = 2
)

// Estimate estimates what a load takes.
func (l Load) Estimate() Size {
	bytes := float64(l.Bytes)
	appends := math.Max(math.Ceil(bytes/float64(l.ChunkBytes)), math.Ceil(float64(l.Open)/float64(l.Flush)))
	text := math.Max(1, math.Ceil(bytes*widened/lobBlockText)) * lobBlock
	// Each append writes the last block anew, half full in the mean.
	redo := bytes*widened + appends*(lobBlock/2+rowRedo)
	return Size{
		Appends:       appends,
		Text:          int64(float64(l.Documents) * text),
		Rows:          l.Documents * (rowBytes + indexBytes),
		Redo:          int64(float64(l.Documents) * redo),
		RedoPerSecond: l.PerSecond * redo,
		Retained:      int64(l.PerSecond * appends * lobBlock * l.Retention.Seconds()),
		Sessions:      l.Partitions + beside,
	}
}
