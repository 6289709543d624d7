package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

func (a *app) checkpointCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "How far each partition is, and decisions about it",
		Long: `The checkpoint of a partition is the message up to which everything is stored or
in the dead letters. It is in the database, with the documents. lobsink moves it
by itself; these commands are for partitions that stopped, since the stream is
not what the database knows.

What changes something says first what will be skipped and what will be read
again, and asks; with --yes it does not ask. A running lobsink goes on from there
by itself.`,
		Example: `  lobsink checkpoint show
  lobsink checkpoint adopt --partition 3
  lobsink checkpoint adopt --documents continue
  lobsink checkpoint set 3 4711
  lobsink checkpoint partitions 16`,
	}
	asGroup(cmd)
	cmd.AddCommand(a.checkpointShow(), a.checkpointAdopt(), a.checkpointSet(), a.checkpointPartitions())
	return cmd
}

// standing is a partition as it stands, beside the stream.
type standing struct {
	partition int
	fence     lobwriter.Fence
	facts     consumer.StreamFacts
	pending   uint64
	lease     *lobwriter.Lease // nil: free
	obstacle  error            // nil: it can be read on
}

// standings looks at all partitions of the database.
func (d *desk) standings(ctx context.Context, b lobwriter.Binding) ([]standing, error) {
	roster, err := d.operator.Roster(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]standing, b.Partitions)
	for p := range all {
		s := standing{partition: p}
		if s.fence, err = d.operator.Fence(ctx, p); err != nil {
			return nil, err
		}
		in, err := d.stream.Inspect(ctx, s.fence)
		if err != nil {
			return nil, err
		}
		s.facts = in.StreamFacts
		s.obstacle = consumer.Obstacle(p, b, s.fence, in)
		if layout := d.stream.Layout(); layout.Partitions == b.Partitions && s.obstacle == nil {
			if s.pending, err = d.stream.Pending(ctx, p, s.fence.Checkpoint.Seq+1); err != nil {
				return nil, err
			}
		}
		for i, l := range roster.Leases {
			if l.Partition == p && l.Left > 0 {
				s.lease = &roster.Leases[i]
			}
		}
		all[p] = s
	}
	return all, nil
}

// standingView is a partition in JSON.
type standingView struct {
	Partition     int     `json:"partition"`
	Life          int64   `json:"life"`
	Epoch         int64   `json:"epoch"`
	Checkpoint    uint64  `json:"checkpoint"`
	CheckpointAt  *string `json:"checkpoint_time"`
	Highest       uint64  `json:"highest"`
	StreamFirst   uint64  `json:"stream_first"`
	StreamLast    uint64  `json:"stream_last"`
	StreamCreated string  `json:"stream_created"`
	Pending       uint64  `json:"pending"`
	Member        *string `json:"member"`
	Obstacle      *string `json:"obstacle"`
}

func (s *standing) view() standingView {
	v := standingView{
		Partition: s.partition, Life: s.fence.Life, Epoch: s.fence.Epoch,
		Checkpoint: s.fence.Checkpoint.Seq, Highest: s.fence.Highest.Seq,
		StreamFirst: s.facts.First, StreamLast: s.facts.Last.Seq, StreamCreated: timestamp(s.facts.Created), Pending: s.pending,
	}
	if t := s.fence.Checkpoint.Time; t != 0 {
		v.CheckpointAt = known(timestamp(t))
	}
	if s.lease != nil {
		v.Member = &s.lease.MemberID
	}
	if s.obstacle != nil {
		v.Obstacle = known(s.obstacle.Error())
	}
	return v
}

func (a *app) checkpointShow() *cobra.Command {
	out := newOutput()
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show how far each partition is, and what stops it",
		Long: `Shows how far each partition is, who owns it, how many messages are not stored
yet, and what stops it. It changes nothing. The exit code is 2 if something
stops a partition.`,
		Example: `  lobsink checkpoint show
  lobsink checkpoint show -o json | jq '.items[] | select(.obstacle)'`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDesk(cmd.Context(), func(d *desk) error { return a.showCheckpoints(cmd.Context(), d, out) })
		},
	}
	out.addFlag(cmd, ndjson)
	return cmd
}

func (a *app) showCheckpoints(ctx context.Context, d *desk, out *output) error {
	b, err := d.bound(ctx)
	if err != nil {
		return err
	}
	all, err := d.standings(ctx, b)
	if err != nil {
		return err
	}
	list := out.list(a.stdout)
	t := newTable("PARTITION", "LIFE", "EPOCH", "CHECKPOINT", "TIME", "PENDING", "OWNER")
	var stopped []error
	for i := range all {
		v := all[i].view()
		if err := all[i].obstacle; err != nil {
			stopped = append(stopped, err)
		}
		if out.json() {
			if err := list.add(v); err != nil {
				return err
			}
			continue
		}
		t.AppendRow(table.Row{v.Partition, v.Life, v.Epoch, v.Checkpoint, orDash(v.CheckpointAt), v.Pending, orDash(v.Member)})
	}
	if out.json() {
		err = list.end()
	} else {
		err = a.printTable(t)
	}
	if err == nil && len(stopped) > 0 {
		err = withCode(exitRejects, errors.Join(stopped...))
	}
	return err
}

// bound returns what the database is bound to.
func (d *desk) bound(ctx context.Context) (lobwriter.Binding, error) {
	b, err := d.operator.Binding(ctx)
	if errors.Is(err, lobwriter.ErrNotFound) {
		err = failed("nothing was ever stored in this database: there are no checkpoints yet")
	}
	return b, err
}

// unowned returns an error if a partition is owned.
func (d *desk) unowned(ctx context.Context) error {
	roster, err := d.operator.Roster(ctx)
	if err != nil {
		return err
	}
	for _, l := range roster.Leases {
		if l.Left > 0 && !d.cfg.sqlite() {
			return failed("partition %d is owned by member %s: stop all instances first", l.Partition, l.MemberID)
		}
	}
	return nil
}

// decision is a change that an operator is asked about.
type decision struct {
	*app
	yes    bool
	dryRun bool
}

func (q *decision) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&q.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&q.dryRun, "dry-run", false, "only say what would be done")
}

// errNotAgreed ends a command that changes nothing.
var errNotAgreed = failed("nothing was changed")

// ask says what will be done, and asks unless that was answered by a flag.
func (q *decision) ask(what []string) error {
	for _, line := range what {
		fmt.Fprintln(q.stderr, line)
	}
	switch {
	case q.dryRun:
		return errNotAgreed
	case q.yes:
		return nil
	case !isTerminal(q.stderr):
		return usage("nobody can be asked here: add --yes to do it")
	}
	fmt.Fprint(q.stderr, "Do it? [y/N] ")
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if strings.ToLower(strings.TrimSpace(answer)) != "y" {
		return errNotAgreed
	}
	return nil
}

// agreed runs do after the operator has agreed, between two records in the audit
// stream.
func (q *decision) agreed(cmd *cobra.Command, d *desk, what []string, do func() (any, error)) error {
	err := q.ask(what)
	if errors.Is(err, errNotAgreed) && q.dryRun {
		return nil
	}
	if err != nil {
		return err
	}
	return q.audited(cmd, d, do)
}

// moved is what a decision did to one partition, for the audit stream.
type moved struct {
	Partition int    `json:"partition"`
	From      uint64 `json:"from"`
	To        uint64 `json:"to"`
}

// moveTries is how often a checkpoint is set back while its owner moves it on.
const moveTries = 20

// move moves one checkpoint, and says so.
func (a *app) move(ctx context.Context, d *desk, m lobwriter.CheckpointMove) (moved, error) {
	m.ClaimID = consumer.NewID()
	back := m.To.Seq <= m.From.Seq
	f, err := d.operator.MoveCheckpoint(ctx, m)
	var fenced *lobwriter.FencedError
	for try := 1; errors.As(err, &fenced) && back && fenced.Stored.Life == m.Life && m.To.Seq < fenced.Stored.Checkpoint.Seq && try < moveTries; try++ {
		m.From = fenced.Stored.Checkpoint
		f, err = d.operator.MoveCheckpoint(ctx, m)
	}
	if errors.As(err, &fenced) {
		return moved{}, failed("partition %d: its checkpoint is %d by now, not %d: look again", m.Partition, fenced.Stored.Checkpoint.Seq, m.From.Seq)
	}
	if err != nil {
		return moved{}, err
	}
	fmt.Fprintf(a.stdout, "partition %d: checkpoint %d, was %d\n", m.Partition, f.Checkpoint.Seq, m.From.Seq)
	return moved{m.Partition, m.From.Seq, f.Checkpoint.Seq}, nil
}

// openDocuments counts the documents of a partition, -1: of all, that take
// fragments.
func (d *desk) openDocuments(ctx context.Context, partition int, states ...lobwriter.State) (n int, err error) {
	for _, state := range states {
		_, err = eachDocument(ctx, d.operator, lobwriter.Query{State: state}, func(doc lobwriter.Document) error {
			if partition < 0 || doc.Partition == partition {
				n++
			}
			return nil
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
