package consumer

import (
	"context"
	"fmt"
)

// Repartition gives the stream another number of partitions: messages that are
// published from now on are stored under other subjects. What is stored stays as it
// is. The caller has stopped publishers and owners.
func (f *Fragments) Repartition(ctx context.Context, partitions int) error {
	spec := StreamSpec{Name: f.source.name, Root: f.source.layout.Root, Partitions: partitions}
	if err := spec.validate(); err != nil {
		return err
	}
	cfg := f.stream.CachedInfo().Config
	cfg.SubjectTransform = spec.Config().SubjectTransform
	err := request(ctx, func(ctx context.Context) (err error) {
		f.stream, err = f.source.js.UpdateStream(ctx, cfg)
		return err
	})
	if err == nil {
		f.source.layout, _, err = DescribeStream(f.stream.CachedInfo())
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", f.source.name, err)
	}
	return f.Refresh(ctx)
}

// NotDrainedError: a message is not stored in the database, and would not be read
// under another number of partitions.
type NotDrainedError struct {
	Seq     uint64
	Subject string
}

func (e *NotDrainedError) Error() string {
	return fmt.Sprintf("message %d on %s is not stored yet", e.Seq, e.Subject)
}

// Drained returns a checkpoint for all partitions of another layout of the stream:
// everything up to it is at or below the checkpoint of its partition, and everything
// behind it is stored under its subject of the other layout. The error is a
// *NotDrainedError if there is no such checkpoint.
func (f *Fragments) Drained(ctx context.Context, checkpoints []uint64, to Layout) (uint64, error) {
	from := Layout{Root: to.Root, Partitions: len(checkpoints)}
	low := checkpoints[0]
	for _, ck := range checkpoints {
		low = min(low, ck)
	}
	c, err := f.Keys(ctx, Selection{From: low + 1})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	last := f.facts.Last.Seq
	var strange *NotDrainedError // the last message that does not fit the other layout
	unread := uint64(0)          // the first message that was not read
	for {
		frag, ok, err := c.Next(ctx)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		if partition, _, err := from.Parse(c.subject); unread == 0 && (err != nil || frag.Seq > checkpoints[partition]) {
			unread = frag.Seq
		}
		if !to.keeps(c.subject) {
			strange = &NotDrainedError{Seq: frag.Seq, Subject: c.subject}
		}
	}
	switch {
	case unread == 0:
		return last, nil
	case strange != nil && strange.Seq >= unread:
		return 0, strange
	}
	return unread - 1, nil
}

// keeps reports whether the stream stores a message under this subject.
func (l Layout) keeps(subject string) bool {
	partition, token, err := l.Parse(subject)
	return err == nil && PartitionOf(token, l.Partitions) == partition
}
