package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// repartition is one run of checkpoint partitions.
type repartition struct {
	decision
	partitions int
	desk       *desk
}

func (a *app) checkpointPartitions() *cobra.Command {
	q := &repartition{decision: decision{app: a}}
	cmd := &cobra.Command{
		Use:   "partitions NUMBER",
		Short: "Give stream and database another number of partitions",
		Long: `Gives the stream and the database another number of partitions. Stop all
publishers first, then, when lobsink checkpoint show has nothing pending, all
instances: every message must be stored, and the stream must not grow meanwhile.

The stream's subject transform is changed, so that what is published from then on
is stored under other subjects, and documents and checkpoints are moved to their
new partitions in one transaction. If it is interrupted, run it again.`,
		Example: `  lobsink checkpoint partitions 16 --dry-run
  lobsink checkpoint partitions 16 --yes`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if q.partitions, err = strconv.Atoi(args[0]); err != nil || q.partitions < 1 {
				return usage("%q is no number of partitions, which is a number from 1", args[0])
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

func (q *repartition) run(cmd *cobra.Command) error {
	ctx, d := cmd.Context(), q.desk
	b, err := d.bound(ctx)
	if err != nil {
		return err
	}
	facts, layout := d.stream.Facts(), d.stream.Layout()
	switch {
	case facts.Created != b.Created:
		return failed("the stream is another one than the database was fed from; see: lobsink checkpoint show")
	case b.Partitions == q.partitions && layout.Partitions == q.partitions:
		fmt.Fprintf(q.stdout, "there are %s already: nothing was changed\n", plural(q.partitions, "partition"))
		return nil
	}
	checkpoints := make([]uint64, b.Partitions)
	for p := range checkpoints {
		f, err := d.operator.Fence(ctx, p)
		if err != nil {
			return err
		}
		checkpoints[p] = f.Checkpoint.Seq
	}
	to := consumer.Layout{Root: layout.Root, Partitions: q.partitions}
	checkpoint, err := d.stream.Drained(ctx, checkpoints, to)
	if err != nil {
		return q.notDrained(b, err)
	}
	what := []string{
		fmt.Sprintf("stream %s will store what is published from now on in %s, now %d", b.Name, plural(q.partitions, "partition"), layout.Partitions),
		fmt.Sprintf("all documents and checkpoints will move from %d to %d partitions; everything up to message %d is stored", b.Partitions, q.partitions, checkpoint),
		"publishers and instances must be stopped",
	}
	return q.agreed(cmd, d, what, func() (any, error) {
		err := q.change(cmd, b, checkpoints, to)
		return map[string]int{"from": b.Partitions, "to": q.partitions}, err
	})
}

func (q *repartition) notDrained(b lobwriter.Binding, err error) error {
	var not *consumer.NotDrainedError
	if !errors.As(err, &not) {
		return err
	}
	return failed("%w: stop the publishers and let lobsink run until lobsink checkpoint show has nothing pending; "+
		"if the stream has another number of partitions by now, set it back first: lobsink checkpoint partitions %d", err, b.Partitions)
}

// change changes the stream first: what is published from then on cannot be read
// under the old number, so that nobody goes on by mistake.
func (q *repartition) change(cmd *cobra.Command, b lobwriter.Binding, checkpoints []uint64, to consumer.Layout) error {
	ctx, d := cmd.Context(), q.desk
	release, err := q.alone(ctx, d.cfg)
	if err != nil {
		return err
	}
	defer release()
	if err := d.unowned(ctx); err != nil {
		return err
	}
	before := d.stream.Facts().Last.Seq
	if d.stream.Layout().Partitions != to.Partitions {
		was := d.stream.Layout().Partitions
		if err := d.stream.Repartition(ctx, to.Partitions); err != nil {
			return err
		}
		if after := d.stream.Facts().Last.Seq; after != before {
			return errors.Join(
				failed("the stream has grown from %d to %d meanwhile: stop the publishers, then try again", before, after),
				d.stream.Repartition(ctx, was))
		}
	}
	checkpoint, err := d.stream.Drained(ctx, checkpoints, to)
	if err != nil {
		return q.notDrained(b, err)
	}
	r := lobwriter.Rebinding{From: b, To: b, ClaimID: consumer.NewID(), PartitionOf: partitionOf(to)}
	r.To.Partitions, r.Checkpoint.Seq = to.Partitions, checkpoint
	if r.Checkpoint.Time, err = d.stream.TimeOf(ctx, checkpoint); err != nil {
		return err
	}
	if b.Partitions != to.Partitions {
		err := d.operator.Rebind(ctx, r)
		if lobwriter.KindOf(err) == lobwriter.Fenced {
			return failed("the database was bound anew meanwhile: look again")
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(q.stdout, "there are %s now\n", plural(to.Partitions, "partition"))
	return nil
}
