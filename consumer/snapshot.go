package consumer

import (
	"slices"
	"time"
)

// Holding is what a partition of this member is doing.
type Holding struct {
	Partition int
	// Owned: it is claimed and read.
	Owned  bool
	Paused bool
	// Epoch of the claim.
	Epoch int64
	// Checkpoint, and the message up to which the partition has been read.
	Checkpoint, Read uint64
	// Documents that wait for being flushed, their memory in bytes, and for how
	// long the oldest fragment has waited.
	Documents int
	Bytes     int64
	Age       time.Duration
	// Err says why the partition stands still; nil: it does not.
	Err error
}

// holding describes the partition as it stands.
func (p *Partition) holding(now time.Time) Holding {
	h := Holding{
		Partition: p.opt.Partition, Owned: p.Owning(), Paused: p.paused,
		Epoch: p.fence.Epoch, Checkpoint: p.fence.Checkpoint.Seq,
		Documents: p.batch.Documents(), Bytes: p.Bytes(), Age: p.batch.Age(now),
	}
	if h.Owned {
		h.Read = p.known()
	}
	return h
}

// Holdings returns what the partitions of this member are doing, in order: those
// that it owns, those that are paused here, and those that stand still.
func (s *Status) Holdings() []Holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Holding
	for i, h := range s.holdings {
		h.Partition, h.Err = i, s.reported[i]
		if h.Owned || h.Paused || h.Err != nil {
			out = append(out, h)
		}
	}
	return slices.Clip(out)
}

// holds notes what a partition is doing.
func (s *Status) holds(h Holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdings[h.Partition] = h
}
