package bench

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// recorder is a store that notes what became of each flush.
type recorder struct {
	lobwriter.Store

	mu sync.Mutex
	// stored is how many fragments each document has.
	stored map[string]int64
	// total is the sum of stored; writes is how many chunks were written, with
	// so many bytes.
	total, writes, bytes int64
	series               []moment
	// at is when total rose last.
	at time.Time
	// wanted is the total at which reached is closed.
	wanted  int64
	reached chan struct{}
	claims  int

	// flushes are those that brought groups, without their text; kept if keep.
	keep    bool
	flushes []lobwriter.Flush

	// waiting are the times of what was published and is not stored, by key.
	waiting map[string][]time.Time
	// latencies are those of what was stored.
	latencies []time.Duration
}

// moment is when so many fragments were stored.
type moment struct {
	at    time.Time
	total int64
}

func record(s lobwriter.Store, wanted int64) *recorder {
	return &recorder{
		Store: s, wanted: wanted, reached: make(chan struct{}),
		stored: map[string]int64{}, waiting: map[string][]time.Time{},
	}
}

// Claim implements lobwriter.Store.
func (r *recorder) Claim(ctx context.Context, q lobwriter.ClaimRequest) (lobwriter.Claim, error) {
	c, err := r.Store.Claim(ctx, q)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.claims++
	}
	return c, err
}

// Flush implements lobwriter.Store.
func (r *recorder) Flush(ctx context.Context, f *lobwriter.Flush) (lobwriter.Receipt, error) {
	receipt, err := r.Store.Flush(ctx, f)
	if err != nil || len(f.Groups) == 0 {
		return receipt, err
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.total
	for i := range f.Groups {
		g, a := &f.Groups[i], &receipt.Answers[i]
		row := &a.Row
		if a.Status == lobwriter.Appended {
			row = &g.After
			r.writes += int64(len(g.Chunks))
			r.bytes += g.After.Bytes - g.Believed.Bytes
		}
		r.count(g.Key, row.Fragments, now)
	}
	if r.total > before {
		r.at = now
		r.series = append(r.series, moment{now, r.total})
	}
	if r.keep {
		r.flushes = append(r.flushes, withoutText(f))
	}
	if before < r.wanted && r.total >= r.wanted {
		close(r.reached)
	}
	return receipt, nil
}

// count notes that a document has so many fragments by now.
func (r *recorder) count(key string, fragments int64, now time.Time) {
	more := fragments - r.stored[key]
	if more <= 0 {
		return // a repeated flush
	}
	r.stored[key] = fragments
	r.total += more
	if w := r.waiting[key]; len(w) > 0 {
		n := min(int(more), len(w))
		for _, at := range w[:n] {
			r.latencies = append(r.latencies, now.Sub(at))
		}
		r.waiting[key] = w[n:]
	}
}

// withoutText returns a flush whose groups have lost their chunks.
func withoutText(f *lobwriter.Flush) lobwriter.Flush {
	out := *f
	out.Groups = slices.Clone(f.Groups)
	for i := range out.Groups {
		out.Groups[i].Chunks = nil
	}
	return out
}

// published notes when a fragment was published, before it is.
func (r *recorder) published(key string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[key] = append(r.waiting[key], at)
}

// progress returns how many fragments are stored and how many partitions were
// claimed.
func (r *recorder) progress() (total int64, claims int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total, r.claims
}

// percentile returns the latency that a share of all, from 0 to 1, does not
// exceed.
func percentile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}
