package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
)

// memberWait is how long a command waits for the answers of members.
const memberWait = time.Second

func (a *app) statusCommand() *cobra.Command {
	out := newOutput()
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show all running members and their partitions",
		Long: `Asks every lobsink that serves the stream, over NATS, what it is doing. Those that
do not answer within a second are not shown. The database knows more, also of
members that are gone: see lobsink partitions show.

The exit code is 1 if no member answers, or one that does is not ready.`,
		Example: `  lobsink status
  lobsink status --nats nats://nats:4222 -o json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withMembers(cmd.Context(), func(cfg *Config, nc *nats.Conn) error {
				members, err := askMembers[memberStatus](nc, statusSubject+cfg.Stream, "", memberWait)
				if err != nil {
					return err
				}
				slices.SortFunc(members, func(a, b memberStatus) int {
					return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.Member, b.Member))
				})
				if err := a.printMembers(members, out); err != nil {
					return err
				}
				return readyMembers(cfg, members)
			})
		},
	}
	out.addFlag(cmd)
	return cmd
}

// withMembers connects to NATS to ask members.
func (a *app) withMembers(_ context.Context, do func(cfg *Config, nc *nats.Conn) error) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	nc, err := dialNATS(cfg)
	if err != nil {
		return err
	}
	defer nc.Close()
	return do(cfg, nc)
}

// readyMembers returns an error unless there is a member and all are ready.
func readyMembers(cfg *Config, members []memberStatus) error {
	if len(members) == 0 {
		return failed("no lobsink serves stream %s: start one with lobsink run", cfg.Stream)
	}
	for _, m := range members {
		if !m.Ready {
			return failed("member %s on %s is not ready: %s", m.Member, m.Host, strings.Join(m.Reasons, "; "))
		}
	}
	return nil
}

func (a *app) printMembers(members []memberStatus, out *output) error {
	if out.json() {
		list := jsonList{w: a.stdout}
		for _, m := range members {
			if err := list.add(m); err != nil {
				return err
			}
		}
		return list.end()
	}
	t := newTable("MEMBER", "HOST", "VERSION", "PARTITION", "STATE", "CHECKPOINT", "READ", "OPEN", "BUFFERED", "OLDEST")
	for _, m := range members {
		if len(m.Partitions) == 0 {
			t.AppendRow(table.Row{m.Member, printable(m.Host), m.Version, "-", memberState(m), "-", "-", "-", "-", "-"})
		}
		for _, p := range m.Partitions {
			t.AppendRow(table.Row{
				m.Member, printable(m.Host), m.Version, p.Partition, partitionState(p), orDash(p.Checkpoint), orDash(p.Read),
				p.Documents, humanize.IBytes(uint64(max(p.Bytes, 0))), (time.Duration(p.Oldest * float64(time.Second))).Round(time.Millisecond),
			})
		}
	}
	if len(members) > 0 {
		if err := a.printTable(t); err != nil {
			return err
		}
	}
	for _, m := range members {
		for _, p := range m.Partitions {
			if p.Reason != nil {
				fmt.Fprintf(a.stderr, "partition %d: %s\n", p.Partition, *p.Reason)
			}
		}
	}
	return nil
}

func memberState(m memberStatus) string {
	if m.Ready {
		return "standby"
	}
	return "not ready"
}

func partitionState(p partitionStatus) string {
	switch {
	case p.Reason != nil:
		return "stopped"
	case p.Paused:
		return "paused"
	case p.Owned:
		return "owned"
	}
	return "-"
}
