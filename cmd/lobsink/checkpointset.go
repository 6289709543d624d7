package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// aloneWait is how long a command waits for the end of another lobsink.
const aloneWait = 2 * time.Second

// setting of one checkpoint.
type checkpointSet struct {
	decision
	partition int
	seq       uint64
	desk      *desk
}

func (a *app) checkpointSet() *cobra.Command {
	q := &checkpointSet{decision: decision{app: a}}
	cmd := &cobra.Command{
		Use:   "set PARTITION SEQUENCE",
		Short: "Move the checkpoint of one partition",
		Long: `Moves the checkpoint of one partition to a sequence of the stream; 0 is before
its first message.

Back: the messages behind it are read again. Documents know what they have: what
is stored already changes nothing. Forward: messages are skipped. They will never
be stored by themselves; open documents that they belong to become incomplete.
lobsink replay can still build those documents, as long as the stream has them.`,
		Example: `  lobsink checkpoint set 3 4711 --dry-run
  lobsink checkpoint set 0 0 --yes`,
		Args: arguments(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if q.partition, err = strconv.Atoi(args[0]); err != nil || q.partition < 0 {
				return usage("%q is no partition, which is a number from 0", args[0])
			}
			if q.seq, err = strconv.ParseUint(args[1], 10, 63); err != nil {
				return usage("%q is no sequence, which is a number from 0", args[1])
			}
			return a.withDesk(cmd.Context(), func(d *desk) error {
				q.desk = d
				return q.run(cmd)
			})
		},
	}
	q.addFlags(cmd)
	return cmd
}

func (q *checkpointSet) run(cmd *cobra.Command) error {
	ctx, d := cmd.Context(), q.desk
	b, err := d.bound(ctx)
	if err != nil {
		return err
	}
	facts := d.stream.Facts()
	switch {
	case q.partition >= b.Partitions:
		return usage("there is no partition %d of %d", q.partition, b.Partitions)
	case facts.Created != b.Created || d.stream.Layout().Partitions != b.Partitions:
		return failed("the stream is another one than the database was fed from; see: lobsink checkpoint show")
	case q.seq > facts.Last.Seq:
		return failed("the stream ends at sequence %d", facts.Last.Seq)
	case q.seq > 0 && q.seq+1 < facts.First:
		return failed("the stream begins at sequence %d: set the checkpoint to 0 or from %d on", facts.First, facts.First-1)
	}
	fence, err := d.operator.Fence(ctx, q.partition)
	if err != nil {
		return err
	}
	m := lobwriter.CheckpointMove{Partition: q.partition, Life: fence.Life, From: fence.Checkpoint, To: lobwriter.Position{Seq: q.seq}}
	if m.To.Time, err = d.stream.TimeOf(ctx, q.seq); err != nil {
		return err
	}
	what, err := q.explain(ctx, &m)
	if err != nil {
		return err
	}
	return q.agreed(cmd, d, what, func() (any, error) { return q.move(ctx, d, m) })
}

// explain says what the move does, and notes which documents it is about.
func (q *checkpointSet) explain(ctx context.Context, m *lobwriter.CheckpointMove) ([]string, error) {
	from, to := m.From.Seq, m.To.Seq
	line := fmt.Sprintf("partition %d: the checkpoint moves from %d to %d", m.Partition, from, to)
	switch {
	case to == from:
		return []string{line + ": its owner will begin again from there"}, nil
	case to < from:
		again, err := q.desk.stream.Pending(ctx, m.Partition, to+1)
		if err != nil {
			return nil, err
		}
		return []string{line, fmt.Sprintf("%d messages of the partition will be read again; what is stored already changes nothing", again)}, nil
	}
	skipped, last, err := q.skipped(ctx, m.Partition, from, to)
	if err != nil {
		return nil, err
	}
	open, unborn := 0, 0
	for key, seq := range last {
		doc, err := q.desk.operator.Document(ctx, key)
		switch {
		case errors.Is(err, lobwriter.ErrNotFound):
			unborn++
		case err != nil:
			return nil, err
		case doc.Mark.Before(lobwriter.Mark{Life: m.Life, Seq: seq}):
			m.Keys = append(m.Keys, key)
			if doc.State == lobwriter.Open {
				open++
			}
		}
	}
	if len(m.Keys) > 0 {
		m.Reason = fmt.Sprintf("%smessages %d to %d were skipped by an operator", lobwriter.ReasonGap, from+1, to)
	}
	return []string{line,
		fmt.Sprintf("%s of %s will be skipped: %s become incomplete, and %d that are not stored yet will lack their beginning",
			plural(skipped, "message"), plural(len(last), "document"), plural(open, "open document"), unborn)}, nil
}

// skipped counts the messages of a partition between two checkpoints, and returns
// the last one of each document.
func (q *checkpointSet) skipped(ctx context.Context, partition int, from, to uint64) (n int, last map[string]uint64, err error) {
	c, err := q.desk.stream.Keys(ctx, consumer.Selection{Partition: &partition, From: from + 1})
	if err != nil {
		return 0, nil, err
	}
	defer c.Close()
	last = map[string]uint64{}
	for {
		f, ok, err := c.Next(ctx)
		if err != nil || !ok || f.Seq > to {
			return n, last, err
		}
		n++
		if f.Key != "" {
			last[f.Key] = f.Seq
		}
	}
}
