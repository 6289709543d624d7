package oracle

import (
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/lobsink/lobsink/lobwriter"
)

// isolateAfter is how often a flush must fail with the same error before the
// document that causes it is looked for. One damaged block must not stop a
// partition for ever; one bad minute of the database must not cost a document.
const isolateAfter = 5

// failures counts, for each partition, how often its flush failed in the same way.
type failures struct {
	mu          sync.Mutex
	byPartition map[int]failure
}

type failure struct {
	claimID string
	number  int64
	code    string
	count   int
}

// isolate reports whether the next try of a flush is to refuse the one document
// that fails, in place of failing.
func (f *failures) isolate(flush *lobwriter.Flush) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.byPartition[flush.Partition]
	return p.claimID == flush.ClaimID && p.number == flush.Number && p.count >= isolateAfter
}

// ended tells how a try has ended.
func (f *failures) ended(flush *lobwriter.Flush, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	code, ok := isolatable(err)
	if !ok {
		delete(f.byPartition, flush.Partition)
		return
	}
	p := f.byPartition[flush.Partition]
	if p.claimID != flush.ClaimID || p.number != flush.Number || p.code != code {
		p = failure{claimID: flush.ClaimID, number: flush.Number, code: code}
	}
	p.count++
	if f.byPartition == nil {
		f.byPartition = map[int]failure{}
	}
	f.byPartition[flush.Partition] = p
}

// isolatable returns the code of an error that may be the fault of a document.
func isolatable(err error) (code string, ok bool) {
	var e *lobwriter.Error
	if !errors.As(err, &e) {
		return "", false
	}
	n, convErr := strconv.Atoi(strings.TrimPrefix(e.Code, "ORA-"))
	return e.Code, convErr == nil && byCode(n).isolate
}
