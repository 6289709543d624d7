package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

func (a *app) partitionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "partitions",
		Short: "Show who owns which partition",
		Long: `The partitions of the stream are shared by all running instances. See
docs/scaling.md for how.`,
		Example: `  lobsink partitions show`,
	}
	asGroup(cmd)
	cmd.AddCommand(a.partitionsShow())
	return cmd
}

func (a *app) partitionsShow() *cobra.Command {
	out := newOutput()
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show owner, checkpoint, lag and lease of every partition, and the members",
		Long: `Shows what the database knows of each partition: the member that owns it, the
epoch (how often it was claimed), the checkpoint (the sequence up to which the
stream is stored), and how long the lease holds without being renewed; and the
members that are running. The lag is how many messages of the partition the
stream has above the checkpoint; it is not known while NATS cannot be reached.`,
		Example: `  lobsink partitions show
  lobsink partitions show -o json | jq '.partitions[] | select(.owner == null)'`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			return a.withReader(cmd.Context(), func(r lobwriter.Reader) error {
				return a.showPartitions(cmd.Context(), cfg, r, out)
			})
		},
	}
	out.addFlag(cmd)
	return cmd
}

// partitionsView is the result in JSON.
type partitionsView struct {
	Partitions []partitionView `json:"partitions"`
	Members    []memberView    `json:"members"`
}

type partitionView struct {
	Partition int `json:"partition"`
	// Owner is the name of the member that holds the lease; null: nobody does.
	Owner      *string `json:"owner"`
	MemberID   *string `json:"member_id"`
	Epoch      int64   `json:"epoch"`
	Checkpoint *uint64 `json:"checkpoint"`
	// Lag is null where it is not known.
	Lag          *uint64  `json:"lag"`
	LeaseSeconds *float64 `json:"lease_seconds"`
}

type memberView struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Version    string `json:"version"`
	Partitions int    `json:"partitions"`
}

func (a *app) showPartitions(ctx context.Context, cfg *Config, r lobwriter.Reader, out *output) error {
	binding, err := r.Binding(ctx)
	if errors.Is(err, lobwriter.ErrNotFound) {
		return failed("nothing has run on this database yet: start lobsink run")
	}
	if err != nil {
		return err
	}
	v, err := readPartitions(ctx, cfg, r, binding.Partitions)
	if err != nil {
		return err
	}
	if err := v.measure(ctx, cfg, binding); err != nil {
		fmt.Fprintf(a.stderr, "lobsink: warning: the lag is not known: %s\n", redact(err.Error()))
	}
	if out.json() {
		return a.printJSON(v)
	}
	return a.printPartitions(v)
}

// readPartitions reads what the database knows.
func readPartitions(ctx context.Context, cfg *Config, r lobwriter.Reader, partitions int) (*partitionsView, error) {
	roster, err := r.Roster(ctx)
	if err != nil {
		return nil, err
	}
	v := &partitionsView{Partitions: make([]partitionView, partitions), Members: []memberView{}}
	names, live := map[string]string{}, map[string]time.Duration{}
	for _, m := range roster.Members {
		names[m.ID], live[m.ID] = m.Name, m.Left
	}
	owned := map[string]int{}
	for p := range v.Partitions {
		f, err := r.Fence(ctx, p)
		if err != nil {
			return nil, err
		}
		v.Partitions[p] = partitionView{Partition: p, Epoch: f.Epoch, Checkpoint: known(f.Checkpoint.Seq)}
	}
	for _, l := range roster.Leases {
		left := l.Left
		if cfg.sqlite() {
			// The lock of the file is the lease, which is not renewed.
			left = max(left, live[l.MemberID])
		}
		if left <= 0 || l.Partition >= partitions {
			continue
		}
		owned[l.MemberID]++
		name := names[l.MemberID]
		if name == "" {
			name = l.MemberID // it is about to stop, or has died
		}
		seconds := left.Round(time.Millisecond).Seconds()
		w := &v.Partitions[l.Partition]
		w.Owner, w.MemberID, w.LeaseSeconds = &name, &l.MemberID, &seconds
	}
	for _, m := range roster.Members {
		v.Members = append(v.Members, memberView{m.ID, m.Name, m.Version, owned[m.ID]})
	}
	return v, nil
}

// measure counts the messages above the checkpoints.
func (v *partitionsView) measure(ctx context.Context, cfg *Config, b lobwriter.Binding) error {
	nc, err := dialNATS(cfg)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := openJetStream(nc, cfg)
	if err != nil {
		return err
	}
	stream, err := consumer.OpenFragments(ctx, js, b.Name, int(cfg.MaxFragmentBytes))
	if err != nil {
		return jetStreamError(err)
	}
	if created := stream.Facts().Created; created != b.Created {
		return fmt.Errorf("stream %s is not the one that this database was fed from", b.Name)
	}
	for p := range v.Partitions {
		checkpoint := uint64(0)
		if c := v.Partitions[p].Checkpoint; c != nil {
			checkpoint = *c
		}
		n := uint64(0)
		if last := stream.Facts().Last.Seq; checkpoint < last {
			if n, err = stream.Pending(ctx, p, checkpoint+1); err != nil {
				return jetStreamError(err)
			}
		}
		v.Partitions[p].Lag = &n
	}
	return nil
}

func (a *app) printPartitions(v *partitionsView) error {
	t := newTable("PARTITION", "OWNER", "MEMBER", "EPOCH", "CHECKPOINT", "LAG", "LEASE")
	for _, p := range v.Partitions {
		owner, lease := "-", "-"
		if p.Owner != nil {
			owner = printable(*p.Owner)
			lease = time.Duration(*p.LeaseSeconds * float64(time.Second)).Round(100 * time.Millisecond).String()
		}
		t.AppendRow(table.Row{p.Partition, owner, orDash(p.MemberID), p.Epoch, orDash(p.Checkpoint), orDash(p.Lag), lease})
	}
	if err := a.printTable(t); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	t = newTable("MEMBER", "NAME", "VERSION", "PARTITIONS")
	for _, m := range v.Members {
		t.AppendRow(table.Row{m.ID, printable(m.Name), printable(m.Version), strconv.Itoa(m.Partitions)})
	}
	if len(v.Members) == 0 {
		_, err := fmt.Fprintln(a.stdout, "no members are running")
		return err
	}
	return a.printTable(t)
}
