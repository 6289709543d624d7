package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
)

func (a *app) flushCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "flush",
		Short: "Store what the members hold now, whatever its age",
		Long: `Makes everything due that the running members hold: it is stored as soon as the
database takes it, usually within a second. What arrives later waits as before.`,
		Example: `  lobsink flush
  lobsink flush --nats nats://nats:4222`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withMembers(cmd.Context(), func(cfg *Config, nc *nats.Conn) error {
				members, err := askMembers[memberStatus](nc, flushSubject+cfg.Stream, "", memberWait)
				if err != nil {
					return err
				}
				if len(members) == 0 {
					return readyMembers(cfg, nil)
				}
				_, err = fmt.Fprintf(a.stdout, "asked %s\n", plural(len(members), "member"))
				return err
			})
		},
	}
	return cmd
}

func (a *app) pauseCommand() *cobra.Command {
	return a.pauseOrResume(pauseSubject, &cobra.Command{
		Use:   "pause",
		Short: "Have the members read nothing more and store what they hold",
		Long: `Asks all running members to read no more, store what they hold, and keep their
partitions: for a maintenance of the database. The stream keeps what is published
meanwhile. A member that starts during a pause is not paused, nor is one that is
restarted.`,
		Example: `  lobsink pause
  lobsink pause --partition 3,4`,
	})
}

func (a *app) resumeCommand() *cobra.Command {
	return a.pauseOrResume(resumeSubject, &cobra.Command{
		Use:   "resume",
		Short: "Have paused members read on",
		Long:  `Asks all running members to go on after a pause.`,
		Example: `  lobsink resume
  lobsink resume --partition 3`,
	})
}

func (a *app) pauseOrResume(subject string, cmd *cobra.Command) *cobra.Command {
	out := newOutput()
	var partitions []int
	cmd.Args = arguments(cobra.NoArgs)
	cmd.Flags().IntSliceVar(&partitions, "partition", nil, "only these `partitions`, with commas between them")
	out.addFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(partitions) > 0 && slices.Min(partitions) < 0 {
			return usage("--partition: partitions are numbered from 0")
		}
		return a.withMembers(cmd.Context(), func(cfg *Config, nc *nats.Conn) error {
			answers, err := askMembers[pausedAnswer](nc, subject+cfg.Stream, commas(partitions), memberWait)
			if err != nil {
				return err
			}
			if len(answers) == 0 {
				return readyMembers(cfg, nil)
			}
			slices.SortFunc(answers, func(a, b pausedAnswer) int {
				return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.Member, b.Member))
			})
			return a.printPaused(answers, out)
		})
	}
	return cmd
}

func (a *app) printPaused(answers []pausedAnswer, out *output) error {
	list := jsonList{w: a.stdout}
	t := newTable("MEMBER", "HOST", "PAUSED")
	for _, p := range answers {
		if out.json() {
			if err := list.add(p); err != nil {
				return err
			}
		}
		t.AppendRow(table.Row{p.Member, printable(p.Host), cmp.Or(commas(p.Paused), "-")})
	}
	if out.json() {
		return list.end()
	}
	return a.printTable(t)
}

// commas returns numbers with commas between them.
func commas(numbers []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(numbers)), ","), "[]")
}
