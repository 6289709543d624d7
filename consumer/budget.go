package consumer

import "sync"

// budget divides one number of bytes among partitions. Half of it is
// guaranteed, in equal parts; the other half is lent to whoever needs it, as
// long as that partition's last flush succeeded: memory must not pile up behind
// a database that does not take it.
type budget struct {
	mu     sync.Mutex
	each   int64 // guaranteed to each
	shared int64 // to be lent
	lent   int64 // what all use beyond each
	used   []int64
}

func newBudget(total int64, partitions int) *budget {
	half := total / 2
	return &budget{each: half / int64(partitions), shared: half, used: make([]int64, partitions)}
}

// allowance notes that partition i uses so many bytes now, fetches under way
// included, and returns how many it may use.
func (b *budget) allowance(i int, used int64, lend bool) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	others := b.lent - max(b.used[i]-b.each, 0)
	b.lent = others + max(used-b.each, 0)
	b.used[i] = used
	if !lend {
		return b.each
	}
	return b.each + max(b.shared-others, 0)
}

// release notes that partition i uses nothing any more.
func (b *budget) release(i int) { b.allowance(i, 0, false) }
