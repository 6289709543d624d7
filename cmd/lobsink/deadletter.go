package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
)

func (a *app) deadLetterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Dead letters: list, show, export, requeue and purge fragments that could not be stored",
		Long: `A dead letter is a fragment that could not be stored, whole, with the reason. It
is in the dead-letter stream until dlq requeue has brought it into its document,
or dlq purge has deleted it.`,
		Example: `  lobsink dlq ls --since 2h
  lobsink dlq ls --key ORDER-1
  lobsink dlq show 4711
  lobsink dlq requeue ORDER-1`,
	}
	asGroup(cmd)
	cmd.AddCommand(a.deadLetterList(), a.deadLetterShow(), a.deadLetterExport(), a.deadLetterRequeue(), a.deadLetterPurge())
	return cmd
}

// withDeadLetters runs do with the dead letters of the configured stream.
func (a *app) withDeadLetters(do func(*consumer.DeadLetters) error) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	nc, err := dialNATS(cfg)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := openJetStream(nc, cfg)
	if err != nil {
		return err
	}
	return jetStreamError(do(consumer.NewDeadLetters(js, cfg.Stream)))
}

func (a *app) deadLetterList() *cobra.Command {
	out := newOutput()
	var f letterFilter
	limit := 0
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List dead letters, the oldest first",
		Example: `  lobsink dlq ls
  lobsink dlq ls --since 2h --code invalid-utf8
  lobsink dlq ls --key ORDER-1 --limit 0 -o json | jq '.items[].sequence'
  lobsink dlq ls --limit 0 -o ndjson | jq -r .key | sort | uniq -c`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usage("--limit: %d is negative; write 0 for no limit", limit)
			}
			return a.withDeadLetters(func(d *consumer.DeadLetters) error {
				return a.listDeadLetters(cmd.Context(), d, f.of(cmd, limit), out)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "most dead letters; 0: all")
	out.addFlag(cmd, ndjson)
	return cmd
}

// letterFilter are the flags that select dead letters.
type letterFilter struct {
	filter consumer.Filter
	key    string
}

func (f *letterFilter) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.key, "key", "", "only of the document with this `key`")
	flags.StringVar(&f.filter.Code, "code", "", "only with this `code` of the reason")
	flags.StringVar(&f.filter.Reason, "reason", "", "only with this `text` in the reason")
	flags.Var(&sinceValue{now: time.Now, at: &f.filter.Since}, "since", "only of fragments published since this `time`: how long ago, such as 2h, or RFC 3339")
}

func (f *letterFilter) of(cmd *cobra.Command, limit int) consumer.Filter {
	out := f.filter
	if cmd.Flags().Changed("key") {
		out.Key = &f.key
	}
	out.Limit = limit
	return out
}

// given reports whether one of the flags was.
func (f *letterFilter) given(cmd *cobra.Command) bool {
	for _, name := range []string{"key", "code", "reason", "since"} {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

func (a *app) listDeadLetters(ctx context.Context, d *consumer.DeadLetters, f consumer.Filter, out *output) error {
	list := out.list(a.stdout)
	t := newTable("SEQUENCE", "TIME", "KEY", "BYTES", "REASON")
	limit, n, more := f.Limit, 0, false
	if limit > 0 {
		f.Limit++ // one more tells whether there are more
	}
	err := d.List(ctx, f, func(r consumer.Record) error {
		if n++; limit > 0 && n > limit {
			more = true
			return nil
		}
		if out.json() {
			return list.add(r)
		}
		t.AppendRow(table.Row{r.Sequence, r.Time.UTC().Format(time.RFC3339Nano), orDash(r.Key), r.Bytes, printable(r.Reason)})
		return nil
	})
	if err != nil {
		return err
	}
	if out.json() {
		err = list.end()
	} else {
		err = a.printTable(t)
	}
	if more {
		fmt.Fprintf(a.stderr, "there are more than %d: raise --limit, or narrow them down with --since, --key, --code or --reason\n", limit)
	}
	return err
}

func (a *app) deadLetterShow() *cobra.Command {
	out := newOutput()
	var payload bool
	cmd := &cobra.Command{
		Use:   "show SEQUENCE",
		Short: "Show a dead letter, by the sequence of the fragment in its stream",
		Example: `  lobsink dlq show 4711
  lobsink dlq show 4711 -o json
  lobsink dlq show 4711 --payload > fragment.xml`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil || seq == 0 {
				return usage("%q is not a sequence, which is a number from 1; lobsink dlq ls lists them", args[0])
			}
			return a.withDeadLetters(func(d *consumer.DeadLetters) error {
				return a.showDeadLetter(cmd.Context(), d, seq, payload, out)
			})
		},
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "print the fragment itself, byte for byte, and nothing else")
	out.addFlag(cmd)
	return cmd
}

func (a *app) showDeadLetter(ctx context.Context, d *consumer.DeadLetters, seq uint64, payload bool, out *output) error {
	var newest consumer.Record
	n := 0
	err := d.List(ctx, consumer.Filter{Seq: seq}, func(r consumer.Record) error {
		newest = r
		n++
		return nil
	})
	switch {
	case err != nil:
		return err
	case n == 0:
		return failed("there is no dead letter of message %d; lobsink dlq ls lists them", seq)
	case n > 1:
		// A later life of the stream uses the numbers again.
		fmt.Fprintf(a.stderr, "there are %d dead letters of a message %d; this is the newest\n", n, seq)
	}
	if payload {
		data, err := d.Payload(ctx, newest)
		if err != nil {
			return err
		}
		_, err = a.stdout.Write(data)
		return err
	}
	if out.json() {
		return a.printJSON(newest)
	}
	return a.printFields(recordFields(newest))
}

func recordFields(r consumer.Record) []field {
	fields := []field{
		{"sequence", strconv.FormatUint(r.Sequence, 10)},
		{"key", orDash(r.Key)},
		{"code", r.Code},
		{"text", printable(r.Text)},
		{"subject", printable(r.Subject)},
		{"time", r.Time.UTC().Format(time.RFC3339Nano)},
		{"bytes", strconv.Itoa(r.Bytes)},
		{"crc32c", r.CRC32C},
		{"parts", strconv.Itoa(r.Parts)},
		{"stream", r.Stream},
		{"database_id", r.DatabaseID},
		{"life", number(r.Life)},
		{"generation", number(r.Generation)},
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		for _, value := range r.Headers[name] {
			fields = append(fields, field{"header", printable(name) + ": " + printable(value)})
		}
	}
	if len(r.Altered) > 0 {
		fields = append(fields, field{"altered", strings.Join(r.Altered, ", ")})
	}
	return fields
}

// sinceValue is a time, or how long ago it was.
type sinceValue struct {
	now func() time.Time
	at  *time.Time
}

// Set implements pflag.Value.
func (s *sinceValue) Set(text string) error {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		*s.at = t
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is neither how long ago, such as 2h, nor a time, such as 2026-01-02T15:04:05Z", text)
	}
	*s.at = s.now().Add(-d)
	return nil
}

func (s *sinceValue) String() string {
	if s.at == nil || s.at.IsZero() {
		return ""
	}
	return s.at.UTC().Format(time.RFC3339Nano)
}

// Type implements pflag.Value.
func (s *sinceValue) Type() string { return "time" }
