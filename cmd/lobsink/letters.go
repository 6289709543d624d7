package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
)

func (a *app) deadLetterExport() *cobra.Command {
	var f letterFilter
	var dir string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write dead letters out, with the fragments themselves",
		Long: `Writes dead letters out. With --dir, each becomes two files in a folder: .data is
the fragment, byte for byte, and .json says what it is. Their names begin with
the life of the stream, the sequence, and the generation of the document.
Otherwise each is a line of JSON on stdout, with the fragment as "data" in
base64. Nothing is deleted.`,
		Example: `  lobsink dlq export --dir letters --since 24h
  lobsink dlq export --key ORDER-1 | jq -r .data | base64 -d`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDeadLetters(func(d *consumer.DeadLetters) error {
				return a.exportDeadLetters(cmd.Context(), d, f.of(cmd, 0), dir)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&dir, "dir", "", "write files into this `folder`, which is made if it is not there")
	return cmd
}

// exportedLetter is a dead letter in JSON, with what it holds.
type exportedLetter struct {
	consumer.Record
	Data string `json:"data"`
}

func (a *app) exportDeadLetters(ctx context.Context, d *consumer.DeadLetters, f consumer.Filter, dir string) error {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return failed("%w", err)
		}
	}
	list := jsonList{w: a.stdout, lines: true}
	n := 0
	err := d.List(ctx, f, func(r consumer.Record) error {
		data, err := d.Payload(ctx, r)
		if err != nil {
			return err
		}
		n++
		if dir == "" {
			return list.add(exportedLetter{r, base64.StdEncoding.EncodeToString(data)})
		}
		return writeLetter(filepath.Join(dir, fmt.Sprintf("%d-%020d-%d", r.Life, r.Sequence, r.Generation)), r, data)
	})
	if err == nil && dir != "" {
		fmt.Fprintf(a.stderr, "wrote %s into %s\n", plural(n, "dead letter"), dir)
	}
	return err
}

// writeLetter writes the two files of a dead letter.
func writeLetter(path string, r consumer.Record, data []byte) error {
	text, err := compactJSON(r)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path+".data", data, 0o640), os.WriteFile(path+".json", append(text, '\n'), 0o640))
}

// letterPurge is one run of the command.
type letterPurge struct {
	filter letterFilter
	all    bool
	dryRun bool
}

func (a *app) deadLetterPurge() *cobra.Command {
	out := newOutput()
	var p letterPurge
	cmd := &cobra.Command{
		Use:   "purge (--key KEY | --code CODE | --reason TEXT | --since TIME | --all)",
		Short: "Delete dead letters for good",
		Long: `Deletes dead letters. What they hold is in no document; if the stream has
discarded it too, it is gone then. The documents still say that it is missing.
Several filters select what all of them select.`,
		Example: `  lobsink dlq purge --key ORDER-1 --dry-run
  lobsink dlq purge --code late`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.all == p.filter.given(cmd) {
				return usage("say which: with --key, --code, --reason or --since, or --all of them")
			}
			purge := func(d *desk) (int, error) {
				return a.purgeDeadLetters(cmd.Context(), d.letters, p.filter.of(cmd, 0), p.dryRun)
			}
			return a.withNATS(func(d *desk) error {
				n := 0
				do := func() (detail any, err error) {
					n, err = purge(d)
					return map[string]int{"purged": n}, err
				}
				var err error
				if p.dryRun {
					_, err = do()
				} else {
					err = a.audited(cmd, d, do)
				}
				if err != nil {
					return err
				}
				if out.json() {
					return a.printJSON(map[string]any{"purged": n, "dry_run": p.dryRun})
				}
				word := "deleted"
				if p.dryRun {
					word = "would delete"
				}
				_, err = fmt.Fprintf(a.stdout, "%s %s\n", word, plural(n, "dead letter"))
				return err
			})
		},
	}
	p.filter.add(cmd)
	cmd.Flags().BoolVar(&p.all, "all", false, "delete all of them")
	cmd.Flags().BoolVar(&p.dryRun, "dry-run", false, "only say how many there are")
	out.addFlag(cmd)
	return cmd
}

func (a *app) purgeDeadLetters(ctx context.Context, d *consumer.DeadLetters, f consumer.Filter, dryRun bool) (n int, err error) {
	progress := newProgress(a.stderr, "deleted", 0)
	progress.unit = "dead letters"
	err = d.List(ctx, f, func(r consumer.Record) error {
		n++
		progress.document()
		if dryRun {
			return nil
		}
		return d.Remove(ctx, r)
	})
	return n, err
}
