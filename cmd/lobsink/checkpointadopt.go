package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// adoption is one run of checkpoint adopt.
type adoption struct {
	decision
	partition int
	documents string

	desk    *desk
	binding lobwriter.Binding
}

// What becomes of open documents in a new life of the stream.
const (
	documentsContinue = "continue"
	documentsRestart  = "restart"
)

func (a *app) checkpointAdopt() *cobra.Command {
	q := &adoption{decision: decision{app: a}, partition: -1}
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Go on with the stream as it is",
		Long: `Resolves what stops partitions: they go on with the stream as it is.

If the stream has discarded messages that were never read (a gap), the checkpoint
moves to where the stream begins now, and the open documents of the partition
become incomplete: what is missing may have been theirs.

If the stream is another one than the database was fed from (created again, or
gone back), a new life of the stream begins, and all partitions read it from its
first message. Complete documents stay. What becomes of open and incomplete ones
has to be said: --documents continue appends what comes to what is stored;
--documents restart deletes their text and has them begin again, for producers
that publish everything again.

If the stream also has another number of partitions, all instances must be
stopped.`,
		Example: `  lobsink checkpoint adopt --dry-run
  lobsink checkpoint adopt --partition 3 --yes
  lobsink checkpoint adopt --documents restart`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDesk(cmd.Context(), func(d *desk) (err error) {
				q.desk = d
				if q.binding, err = d.bound(cmd.Context()); err != nil {
					return err
				}
				return q.run(cmd)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&q.partition, "partition", -1, "only this `partition`; -1: all that are stopped")
	flags.Var(&choice{&q.documents, []string{documentsContinue, documentsRestart}}, "documents", "in a new life of the stream, open documents `continue` or restart")
	q.addFlags(cmd)
	return cmd
}

func (q *adoption) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if q.desk.stream.Facts().Created != q.binding.Created {
		return q.newLife(cmd, nil)
	}
	all, err := q.desk.standings(ctx, q.binding)
	if err != nil {
		return err
	}
	var gaps []standing
	for _, s := range all {
		var identity *consumer.IdentityError
		var gap *consumer.GapError
		switch {
		case q.partition >= 0 && s.partition != q.partition:
		case errors.As(s.obstacle, &identity):
			return q.newLife(cmd, s.obstacle)
		case errors.As(s.obstacle, &gap):
			gaps = append(gaps, s)
		}
	}
	if len(gaps) == 0 {
		fmt.Fprintln(q.stdout, "nothing stops the partitions: nothing was changed")
		return nil
	}
	return q.skip(cmd, gaps)
}

// skip moves checkpoints over gaps.
func (q *adoption) skip(cmd *cobra.Command, gaps []standing) error {
	ctx := cmd.Context()
	var what []string
	for _, s := range gaps {
		open, err := q.desk.openDocuments(ctx, s.partition, lobwriter.Open)
		if err != nil {
			return err
		}
		what = append(what, fmt.Sprintf("partition %d: messages %d to %d are gone from the stream and will be skipped; %s of the partition will become incomplete",
			s.partition, s.fence.Checkpoint.Seq+1, s.facts.First-1, plural(open, "open document")))
	}
	return q.agreed(cmd, q.desk, what, func() (any, error) {
		var done []moved
		for _, s := range gaps {
			m, err := q.move(ctx, q.desk, lobwriter.CheckpointMove{
				Partition: s.partition, Life: s.fence.Life, From: s.fence.Checkpoint, To: lobwriter.Position{Seq: s.facts.First - 1},
				Reason: fmt.Sprintf("%smessages %d to %d were discarded before they were read", lobwriter.ReasonGap, s.fence.Checkpoint.Seq+1, s.facts.First-1),
			})
			if err != nil {
				return done, err
			}
			done = append(done, m)
		}
		return done, nil
	})
}

// newLife binds the database to the stream that there is.
func (q *adoption) newLife(cmd *cobra.Command, why error) error {
	ctx := cmd.Context()
	facts, layout := q.desk.stream.Facts(), q.desk.stream.Layout()
	if why == nil {
		why = fmt.Errorf("the stream was created at %s, the one that the database was fed from at %s", timestamp(facts.Created), timestamp(q.binding.Created))
	}
	if q.documents == "" {
		return usage("%w\na new life of the stream is to begin: say --documents continue or --documents restart", why)
	}
	open, err := q.desk.openDocuments(ctx, -1, lobwriter.Open, lobwriter.Incomplete)
	if err != nil {
		return err
	}
	r := lobwriter.Rebinding{From: q.binding, To: q.binding, ClaimID: consumer.NewID(), Restart: q.documents == documentsRestart}
	r.To.Life++
	r.To.Created = facts.Created
	what := []string{
		why.Error(),
		fmt.Sprintf("life %d of the stream will begin: all of its messages, %d to %d, will be read", r.To.Life, facts.First, facts.Last.Seq),
		"complete and quarantined documents stay as they are; what comes for them goes to the dead letters",
	}
	if r.Restart {
		what = append(what, plural(open, "open or incomplete document")+" will lose the text that is stored, and begin again")
	} else {
		what = append(what, plural(open, "open or incomplete document")+" will go on: what comes is appended to the text that is stored")
	}
	if layout.Partitions != q.binding.Partitions {
		what = append(what, fmt.Sprintf("the stream has %d partitions now, the database has %d", layout.Partitions, q.binding.Partitions))
		r.To.Partitions, r.PartitionOf = layout.Partitions, partitionOf(layout)
	}
	return q.agreed(cmd, q.desk, what, func() (any, error) {
		if err := q.rebind(ctx, q.desk, r); err != nil {
			return nil, err
		}
		fmt.Fprintf(q.stdout, "life %d of stream %s begins\n", r.To.Life, r.To.Name)
		return map[string]any{"life": r.To.Life, "documents": q.documents}, nil
	})
}

func partitionOf(l consumer.Layout) func(string) int {
	return func(key string) int {
		token, err := consumer.Token(key)
		if err != nil {
			return 0 // no key of a document
		}
		return consumer.PartitionOf(token, l.Partitions)
	}
}

// rebind binds the database anew. Where the number of partitions changes, nobody may
// run meanwhile.
func (a *app) rebind(ctx context.Context, d *desk, r lobwriter.Rebinding) error {
	if r.From.Partitions != r.To.Partitions {
		release, err := a.alone(ctx, d.cfg)
		if err != nil {
			return err
		}
		defer release()
	}
	err := d.operator.Rebind(ctx, r)
	if lobwriter.KindOf(err) == lobwriter.Fenced {
		return failed("the database was bound to another life of the stream meanwhile: look again")
	}
	return err
}

// alone makes sure that no lobsink runs on a database of one process.
func (a *app) alone(ctx context.Context, cfg *Config) (release func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, aloneWait)
	defer cancel()
	release, err = lockStore(ctx, cfg, a.logger(cfg))
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, failed("a lobsink runs on this database: stop it first")
	}
	return release, err
}
