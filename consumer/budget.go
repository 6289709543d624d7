package consumer

import "sync"

// budget divides one number of bytes among partitions. Half of it is
// guaranteed, in equal parts; the other half is lent to whoever needs it, as
// long as that partition's last flush succeeded: memory must not pile up behind
// a database that does not take it.
type budget struct {
	mu     sync.Mutex
	each   int64 // guaranteed to each
	shared int64 // lent out
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
	b.used[i] = used
	if !lend {
		return b.each
	}
	left := b.shared
	for j, u := range b.used {
		if j != i && u > b.each {
			left -= u - b.each
		}
	}
	return b.each + max(left, 0)
}

// release notes that partition i uses nothing any more.
func (b *budget) release(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used[i] = 0
}
