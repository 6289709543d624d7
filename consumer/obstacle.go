package consumer

import (
	"context"
	"fmt"

	"github.com/lobsink/lobsink/lobwriter"
)

// Obstacle compares the stream with what the database knows about it, and returns
// what keeps a partition from being read on: an *IdentityError, a *GapError, or nil.
func Obstacle(partition int, b lobwriter.Binding, f lobwriter.Fence, in Inspection) error {
	differs := func(what, stored, found string) error {
		return &IdentityError{Partition: partition, Stream: b.Name, What: what, Stored: stored, Found: found}
	}
	witness := func(what string, at lobwriter.Position, found int64) error {
		switch {
		case at.Seq == 0:
			return nil
		case in.Last.Seq < at.Seq:
			return differs("last sequence", fmt.Sprintf("at least %d (%s)", at.Seq, what), fmt.Sprint(in.Last.Seq))
		case found != 0 && found != at.Time:
			return differs(fmt.Sprintf("time of message %d (%s)", at.Seq, what), stamp(at.Time), stamp(found))
		}
		return nil
	}
	if in.Created != b.Created {
		return differs("creation time", stamp(b.Created), stamp(in.Created))
	}
	if err := witness("the checkpoint", f.Checkpoint, in.CheckpointTime); err != nil {
		return err
	}
	if err := witness("the highest ever stored", f.Highest, in.HighestTime); err != nil {
		return err
	}
	if ck := f.Checkpoint.Seq; ck != 0 && in.First > ck+1 {
		return &GapError{Partition: partition, Checkpoint: ck, First: in.First}
	}
	return nil
}

// Inspect reads from the stream what Obstacle compares with a fence row.
func (f *Fragments) Inspect(ctx context.Context, fence lobwriter.Fence) (Inspection, error) {
	return f.source.inspect(ctx, fence.Checkpoint, fence.Highest)
}

// Rebound tells that an operator has bound the database to another existence of the
// stream. It comes before Claimed, whose fence row is of that life.
func (p *Partition) Rebound(b lobwriter.Binding) { p.opt.Binding = b }
