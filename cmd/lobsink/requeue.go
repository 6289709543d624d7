package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/rebuild"
	"github.com/lobsink/lobsink/lobwriter"
)

// requeue is one run of the command.
type requeue struct {
	*app
	desk    *desk
	key     string
	without []uint
	replace []string
	dryRun  bool
	view    *requeueView
}

// requeueView is what became of a document in JSON.
type requeueView struct {
	Key                string          `json:"key"`
	Generation         int64           `json:"generation"`
	State              string          `json:"state"`
	Fragments          int64           `json:"fragments"`
	Holes              int64           `json:"holes"`
	Late               int64           `json:"late"`
	Bytes              int64           `json:"bytes"`
	CRC32C             string          `json:"crc32c"`
	LeftOut            []leftOutView   `json:"left_out"`
	DeadLettersRemoved int             `json:"dead_letters_removed"`
	DryRun             bool            `json:"dry_run"`
	before             lobwriter.State // for people
}

// leftOutView is a fragment whose text is not in the document.
type leftOutView struct {
	Sequence uint64 `json:"sequence"`
	Code     string `json:"code"`
	Text     string `json:"text"`
}

func (a *app) deadLetterRequeue() *cobra.Command {
	out := newOutput()
	r := &requeue{app: a}
	cmd := &cobra.Command{
		Use:   "requeue KEY",
		Short: "Build a document again, with the fragments that were refused",
		Long: `Builds a document again, in order, from the stream; or, when the stream no
longer has it, from what is stored and the dead letters. It works beside running
instances. The dead letters whose fragments are in the document then are removed.

When a fragment would be refused again, nothing is changed and the exit code is
2. Either change what it was refused for (a limit, the database), or decide:
--without leaves a fragment out, and the document says so; --replace puts the
content of a file in its place. Decisions are kept with the document: a later
replay comes to the same text. The dead letters of what was left out or replaced
stay, for nothing else has what they hold.`,
		Example: `  lobsink dlq requeue ORDER-1
  lobsink dlq requeue ORDER-1 --dry-run
  lobsink dlq requeue ORDER-1 --without 4711
  lobsink dlq show 4711 --payload | iconv -f latin1 -t utf8 > fixed.xml
  lobsink dlq requeue ORDER-1 --replace 4711=fixed.xml`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.key = args[0]
			err := a.withDesk(cmd.Context(), func(d *desk) error {
				r.desk = d
				if r.dryRun {
					_, err := r.run(cmd.Context())
					return err
				}
				return a.audited(cmd, d, func() (any, error) { return r.run(cmd.Context()) })
			})
			if r.view == nil {
				return err
			}
			return errors.Join(r.print(out), err)
		},
	}
	flags := cmd.Flags()
	flags.UintSliceVar(&r.without, "without", nil, "leave the fragment with this `sequence` out; may be repeated")
	flags.StringArrayVar(&r.replace, "replace", nil, "put the content of a file in the place of a fragment: `SEQUENCE=FILE`; may be repeated")
	flags.BoolVar(&r.dryRun, "dry-run", false, "only read, and say what would be done")
	a.flags.add(flags, "max_fragment_bytes", "chunk_bytes")
	out.addFlag(cmd)
	return cmd
}

// run rebuilds the document. It returns what the audit stream gets to know.
func (r *requeue) run(ctx context.Context) (any, error) {
	b, err := r.desk.rebuilder(ctx)
	if err != nil {
		return nil, err
	}
	repairs, err := r.repairs(b.Life())
	if err != nil {
		return nil, err
	}
	has, err := b.HasLetters(ctx, r.key)
	if err != nil {
		return nil, err
	}
	if !has && len(repairs) == 0 {
		return nil, failed("there is no dead letter of document %s; lobsink dlq ls lists them, and lobsink replay --key builds a document again anyway", strconv.Quote(r.key))
	}
	res, err := b.Requeue(ctx, r.key, rebuild.Options{Repairs: repairs, Whole: true, DryRun: r.dryRun})
	var refused *rebuild.RefusedError
	if errors.As(err, &refused) {
		return nil, r.refused(refused)
	}
	if err != nil {
		return nil, err
	}
	v := &requeueView{
		Key: r.key, Generation: res.After.Generation, State: res.After.State.String(), before: res.Before.State,
		Fragments: res.After.Fragments, Holes: res.After.Holes, Late: res.After.Late,
		Bytes: res.After.Bytes, CRC32C: checksumText(res.After.CRC), LeftOut: []leftOutView{},
		DeadLettersRemoved: res.Removed, DryRun: r.dryRun,
	}
	for _, f := range res.Refused {
		v.LeftOut = append(v.LeftOut, leftOutView{f.Fragment.Seq, f.Reason.Code, f.Reason.Text})
	}
	r.view = v
	return v, nil
}

// repairs are the decisions of the command line.
func (r *requeue) repairs(life int64) (out []lobwriter.Repair, err error) {
	seen := map[uint64]bool{}
	add := func(one lobwriter.Repair) error {
		if seen[one.Mark.Seq] || one.Mark.Seq == 0 {
			return usage("sequence %d is no sequence, or stands twice", one.Mark.Seq)
		}
		seen[one.Mark.Seq] = true
		one.Mark.Life = life
		out = append(out, one)
		return nil
	}
	for _, seq := range r.without {
		if err := add(lobwriter.Repair{Mark: lobwriter.Mark{Seq: uint64(seq)}, Omit: true}); err != nil {
			return nil, err
		}
	}
	for _, text := range r.replace {
		number, path, ok := strings.Cut(text, "=")
		seq, err := strconv.ParseUint(number, 10, 64)
		if err != nil || !ok || path == "" {
			return nil, usage("--replace: %q is not SEQUENCE=FILE", text)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, failed("--replace: %w", err)
		}
		if why := consumer.CheckText(data, int(r.desk.cfg.MaxFragmentBytes)); why != nil {
			return nil, failed("--replace: %s would be refused too: %s: %s", path, why.Code, why.Text)
		}
		if err := add(lobwriter.Repair{Mark: lobwriter.Mark{Seq: seq}, Text: data}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// refused says why nothing was changed.
func (r *requeue) refused(e *rebuild.RefusedError) error {
	for _, f := range e.Again {
		fmt.Fprintf(r.stderr, "refused again: message %d: %s: %s\n", f.Fragment.Seq, f.Reason.Code, printable(f.Reason.Text))
	}
	if len(e.Again) > 0 {
		seq := e.Again[0].Fragment.Seq
		fmt.Fprintf(r.stderr, "leave one out with --without %d, or replace it with --replace %d=FILE\n", seq, seq)
	}
	return withCode(exitRejects, fmt.Errorf("document %s: nothing was changed: %s", strconv.Quote(r.key), e.Reason))
}

func (r *requeue) print(out *output) error {
	v := r.view
	if out.json() {
		return r.printJSON(v)
	}
	fields := []field{
		{"key", printable(v.Key)},
		{"generation", number(v.Generation)},
		{"state", v.State + ", was " + v.before.String()},
		{"fragments", number(v.Fragments)},
		{"holes", number(v.Holes)},
		{"late", number(v.Late)},
		{"bytes", number(v.Bytes)},
		{"crc32c", v.CRC32C},
		{"letters removed", strconv.Itoa(v.DeadLettersRemoved)},
	}
	for _, f := range v.LeftOut {
		fields = append(fields, field{"left out", fmt.Sprintf("message %d: %s: %s", f.Sequence, f.Code, printable(f.Text))})
	}
	if v.DryRun {
		fields = append(fields, field{"dry run", "nothing was changed"})
	}
	return r.printFields(fields)
}
