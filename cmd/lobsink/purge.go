package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/lobwriter"
)

// purge is one run of the command.
type purge struct {
	*app
	desk     *desk
	complete bool
	older    duration
	prefix   string
	dryRun   bool

	batches  map[int]*purgeBatch
	progress *progress
	view     purgeView
	done     bool
}

// purgeView is what a purge did, in JSON.
type purgeView struct {
	Documents int   `json:"documents"`
	Bytes     int64 `json:"bytes"`
	// Kept counts documents that are above the checkpoint of their partition.
	Kept   int  `json:"kept"`
	DryRun bool `json:"dry_run"`
}

func (a *app) documentPurge() *cobra.Command {
	out := newOutput()
	p := &purge{app: a, batches: map[int]*purgeBatch{}}
	cmd := &cobra.Command{
		Use:   "purge --complete --older-than DURATION",
		Short: "Delete complete documents for good",
		Long: `Deletes complete documents that were not changed for a while, in small
transactions, beside running instances. Only documents are deleted of which no
instance holds anything: their last fragment is at or below the checkpoint.

A fragment that comes for a deleted document begins a new one. As long as the
stream has the fragments, lobsink replay --key builds the document again.`,
		Example: `  lobsink doc purge --complete --older-than 720h --dry-run
  lobsink doc purge --complete --older-than 720h --prefix ORDER-`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !p.complete || !cmd.Flags().Changed("older-than") {
				return usage("say --complete and --older-than: nothing else is deleted")
			}
			err := a.withDatabase(cmd.Context(), !p.dryRun, func(d *desk) error {
				p.desk = d
				if p.dryRun {
					_, err := p.run(cmd.Context())
					return err
				}
				return a.audited(cmd, d, func() (any, error) { return p.run(cmd.Context()) })
			})
			if !p.done {
				return err
			}
			return errors.Join(p.print(out), err)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&p.complete, "complete", false, "delete complete documents")
	flags.Var(&p.older, "older-than", "only documents that were not changed for this `duration`, such as 720h")
	flags.StringVar(&p.prefix, "prefix", "", "only keys that begin with this `text`")
	flags.BoolVar(&p.dryRun, "dry-run", false, "only say how many there are")
	out.addFlag(cmd)
	return cmd
}

// A transaction deletes so many documents, or so much text, at most: a flush of
// their partition waits for it.
const (
	purgeDocuments = 100
	purgeBytes     = 32 << 20
)

// purgeBatch are keys of one partition.
type purgeBatch struct {
	keys  []string
	bytes int64
}

// clocksApart is how far this machine's clock may be from the database's, which
// decides.
const clocksApart = time.Hour

// run looks for documents in the order of their keys, and deletes them in batches,
// each of one partition.
func (p *purge) run(ctx context.Context) (any, error) {
	p.progress = newProgress(p.stderr, "looked at", 0)
	p.view.DryRun = p.dryRun
	limit := time.Now().Add(clocksApart - time.Duration(p.older)).UnixNano()
	q := lobwriter.Query{Prefix: p.prefix, State: lobwriter.Complete}
	_, err := eachDocument(ctx, p.desk.operator, q, func(d lobwriter.Document) error {
		p.progress.document()
		if d.UpdatedAt > limit {
			return nil
		}
		b := p.batches[d.Partition]
		if b == nil {
			b = &purgeBatch{}
			p.batches[d.Partition] = b
		}
		b.keys, b.bytes = append(b.keys, d.Key), b.bytes+d.Bytes
		if len(b.keys) == purgeDocuments || b.bytes >= purgeBytes {
			return p.delete(ctx, d.Partition)
		}
		return nil
	})
	for partition := range p.batches {
		if err == nil {
			err = p.delete(ctx, partition)
		}
	}
	p.done = true
	return p.view, err
}

// delete deletes the batch of a partition.
func (p *purge) delete(ctx context.Context, partition int) error {
	b := p.batches[partition]
	if len(b.keys) == 0 {
		return nil
	}
	done, err := p.desk.operator.Purge(ctx, lobwriter.Purge{
		Partition: partition, Keys: b.keys, State: lobwriter.Complete, Older: time.Duration(p.older), DryRun: p.dryRun,
	})
	if err != nil {
		return err
	}
	p.view.Documents += done.Documents
	p.view.Bytes += done.Bytes
	p.view.Kept += done.Above
	p.progress.bytes = p.view.Bytes
	*b = purgeBatch{}
	return nil
}

func (p *purge) print(out *output) error {
	if out.json() {
		return p.printJSON(p.view)
	}
	word := "deleted"
	if p.dryRun {
		word = "would delete"
	}
	text := fmt.Sprintf("%s %s with %s", word, plural(p.view.Documents, "document"), humanize.IBytes(uint64(p.view.Bytes)))
	if p.view.Kept > 0 {
		text += fmt.Sprintf("; kept %d above the checkpoint", p.view.Kept)
	}
	_, err := fmt.Fprintln(p.stdout, text)
	return err
}
