package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/rebuild"
	"github.com/lobsink/lobsink/lobwriter"
)

// replay is one run of the command.
type replay struct {
	*app
	desk     *desk
	keys     []string
	since    time.Time
	from, to uint64
	all      bool
	missing  bool
	dryRun   bool
	throttle size

	progress *progress
	summary  replaySummary
}

// replaySummary is what a replay did, in the words of Oracle's SQL*Loader: loaded
// is what went in, rejected what could not, discarded what was left out on
// purpose, skipped what was not looked at.
type replaySummary struct {
	DocumentsRead      int   `json:"documents_read"`
	DocumentsLoaded    int   `json:"documents_loaded"`
	DocumentsSkipped   int   `json:"documents_skipped"`
	DocumentsRejected  int   `json:"documents_rejected"`
	FragmentsRead      int64 `json:"fragments_read"`
	FragmentsLoaded    int64 `json:"fragments_loaded"`
	FragmentsRejected  int64 `json:"fragments_rejected"`
	FragmentsDiscarded int64 `json:"fragments_discarded"`
	Bytes              int64 `json:"bytes"`
	DeadLettersRemoved int   `json:"dead_letters_removed"`
	DryRun             bool  `json:"dry_run"`
	// Seconds is the elapsed time.
	Seconds float64 `json:"seconds"`
}

func (s *replaySummary) fields() []field {
	loaded := "loaded"
	if s.DryRun {
		loaded = "would be loaded"
	}
	return []field{
		{"documents read", strconv.Itoa(s.DocumentsRead)},
		{"documents " + loaded, strconv.Itoa(s.DocumentsLoaded)},
		{"documents skipped", strconv.Itoa(s.DocumentsSkipped)},
		{"documents rejected", strconv.Itoa(s.DocumentsRejected)},
		{"fragments read", number(s.FragmentsRead)},
		{"fragments " + loaded, number(s.FragmentsLoaded)},
		{"fragments rejected", number(s.FragmentsRejected)},
		{"fragments discarded", number(s.FragmentsDiscarded)},
		{"bytes", number(s.Bytes)},
		{"dead letters removed", strconv.Itoa(s.DeadLettersRemoved)},
		{"elapsed", (time.Duration(s.Seconds * float64(time.Second))).Round(time.Millisecond).String()},
	}
}

func (a *app) replayCommand() *cobra.Command {
	out := newOutput()
	r := &replay{app: a, throttle: 16 << 20}
	cmd := &cobra.Command{
		Use:   "replay (--key KEY... | --since TIME | --from-seq N [--to N] | --all)",
		Short: "Build documents again from the stream",
		Long: `Builds documents again from the stream, each from its first fragment to the
last one that is stored, and swaps the new generation in when it is whole. It
works beside running instances or alone; readers see the old text until then.
When it is interrupted nothing is left behind: run it again.

--since and --from-seq select the documents that have a fragment in that range
of the stream; each is built from its beginning all the same. A document whose
beginning the stream no longer has is rejected and stays as it is. Documents
that are not stored, such as purged ones, are built for --key, otherwise only
with --missing.

Fragments that break a rule stay in the dead letters; what is in the document
now leaves them. What dlq requeue decided about fragments is kept.

The exit code is 2 if a document or a fragment was rejected.`,
		Example: `  lobsink replay --key ORDER-1
  lobsink replay --since 2h --dry-run
  lobsink replay --from-seq 4711 --to 4800
  lobsink replay --all --throttle 4MiB`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.check(cmd); err != nil {
				return err
			}
			err := a.withDesk(cmd.Context(), func(d *desk) error {
				r.desk = d
				if r.dryRun {
					_, err := r.run(cmd.Context())
					return err
				}
				return a.audited(cmd, d, func() (any, error) { return r.run(cmd.Context()) })
			})
			if r.progress == nil {
				return err
			}
			return errors.Join(r.print(out), err)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&r.keys, "key", nil, "build the document with this `key`; may be repeated")
	flags.Var(&sinceValue{now: time.Now, at: &r.since}, "since", "build documents with fragments published since this `time`: how long ago, such as 2h, or RFC 3339")
	flags.Uint64Var(&r.from, "from-seq", 0, "build documents with fragments from this `sequence` of the stream on")
	flags.Uint64Var(&r.to, "to", 0, "with --from-seq or --since: up to this `sequence`")
	flags.BoolVar(&r.all, "all", false, "build all documents")
	flags.BoolVar(&r.missing, "missing", false, "also documents that the stream has and the database has not")
	flags.BoolVar(&r.dryRun, "dry-run", false, "only read, and say what would be done")
	flags.Var(&r.throttle, "throttle", "most `bytes` written per second; 0: no limit")
	a.flags.add(flags, "max_fragment_bytes", "chunk_bytes")
	out.addFlag(cmd)
	return cmd
}

func (r *replay) check(cmd *cobra.Command) error {
	ways := 0
	for _, name := range []string{"key", "since", "from-seq", "all"} {
		if cmd.Flags().Changed(name) {
			ways++
		}
	}
	switch {
	case ways != 1:
		return usage("say which documents: one of --key, --since, --from-seq and --all")
	case r.to > 0 && (len(r.keys) > 0 || r.all):
		return usage("--to needs --from-seq or --since")
	case r.to > 0 && r.to < r.from:
		return usage("--to %d is below --from-seq %d", r.to, r.from)
	}
	return nil
}

// run rebuilds the selected documents, one after the other.
func (r *replay) run(ctx context.Context) (any, error) {
	start := time.Now()
	b, err := r.desk.rebuilder(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := r.selected(ctx)
	if err != nil {
		return nil, err
	}
	r.progress = newProgress(r.stderr, "rebuilt", len(keys))
	r.progress.rate = int64(r.throttle)
	b.Pace = r.progress.pace
	r.summary.DryRun = r.dryRun
	err = r.documents(ctx, b, keys)
	r.summary.Seconds = time.Since(start).Seconds()
	if err == nil && (r.summary.DocumentsRejected > 0 || r.summary.FragmentsRejected > 0) {
		err = withCode(exitRejects, fmt.Errorf("rejected: %s, %s", plural(r.summary.DocumentsRejected, "document"), plural(int(r.summary.FragmentsRejected), "fragment")))
	}
	return r.summary, err
}

// documents rebuilds documents in batches of what is stored near each other.
func (r *replay) documents(ctx context.Context, b *rebuild.Rebuilder, keys []string) error {
	var batch []string
	bytes := int64(0)
	flush := func() error {
		defer func() { batch, bytes = batch[:0], 0 }()
		if len(batch) == 0 {
			return nil
		}
		return b.Batch(ctx, batch, rebuild.Options{DryRun: r.dryRun}, r.rebuilt)
	}
	for _, key := range keys {
		d, err := r.desk.operator.Document(ctx, key)
		missing := errors.Is(err, lobwriter.ErrNotFound)
		switch {
		case missing && len(r.keys) == 0 && !r.missing:
			r.summary.DocumentsRead++
			r.summary.DocumentsSkipped++
			r.progress.document()
			continue
		case missing || err == nil && d.Bytes > rebuild.BatchBytes/8:
			res, err := b.Document(ctx, key, rebuild.Options{DryRun: r.dryRun})
			if err := r.rebuilt(key, res, err); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if len(batch) == rebuild.BatchDocuments || bytes+d.Bytes > rebuild.BatchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		batch, bytes = append(batch, key), bytes+d.Bytes
	}
	return flush()
}

// rebuilt counts what became of a document.
func (r *replay) rebuilt(key string, res rebuild.Result, err error) error {
	s := &r.summary
	s.DocumentsRead++
	defer r.progress.document()
	var refused *rebuild.RefusedError
	if errors.As(err, &refused) {
		s.DocumentsRejected++
		fmt.Fprintf(r.stderr, "rejected: %s: %s\n", printable(key), refused.Reason)
		return nil
	}
	if err != nil {
		return fmt.Errorf("document %s: %w", strconv.Quote(key), err)
	}
	s.DocumentsLoaded++
	s.add(res)
	return nil
}

// add counts the fragments of a document.
func (s *replaySummary) add(res rebuild.Result) {
	s.FragmentsRead += res.After.Fragments
	s.FragmentsLoaded += res.After.Fragments - int64(len(res.Refused))
	for _, f := range res.Refused {
		if f.Decided {
			s.FragmentsDiscarded++
		} else {
			s.FragmentsRejected++
		}
	}
	s.Bytes += res.After.Bytes
	s.DeadLettersRemoved += res.Removed
}

// selected returns the keys of the documents to build.
func (r *replay) selected(ctx context.Context) ([]string, error) {
	switch {
	case len(r.keys) > 0:
		slices.Sort(r.keys)
		return slices.Compact(r.keys), nil
	case r.all && !r.missing:
		return storedKeys(ctx, r.desk.operator)
	}
	return r.publishedKeys(ctx)
}

// storedKeys returns the keys of all documents in the order in which they began in
// the stream, so that what lies together there is read together.
func storedKeys(ctx context.Context, reader lobwriter.Reader) ([]string, error) {
	type begun struct {
		key   string
		first uint64
	}
	var all []begun
	_, err := eachDocument(ctx, reader, lobwriter.Query{}, func(d lobwriter.Document) error {
		all = append(all, begun{d.Key, d.First})
		return nil
	})
	slices.SortStableFunc(all, func(a, b begun) int {
		switch {
		case a.first < b.first:
			return -1
		case a.first > b.first:
			return 1
		}
		return 0
	})
	keys := make([]string, len(all))
	for i, d := range all {
		keys[i] = d.key
	}
	return keys, err
}

// publishedKeys returns the keys of the documents that have a fragment in the
// selected range of the stream, in the order in which they come there.
func (r *replay) publishedKeys(ctx context.Context) ([]string, error) {
	c, err := r.desk.stream.Keys(ctx, consumer.Selection{From: r.from, Since: r.since})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	seen := map[string]bool{"": true} // messages without a readable key
	var keys []string
	for {
		f, ok, err := c.Next(ctx)
		if err != nil {
			return nil, err
		}
		if !ok || r.to > 0 && f.Seq > r.to {
			return keys, nil
		}
		if !seen[f.Key] {
			seen[f.Key] = true
			keys = append(keys, f.Key)
		}
	}
}

func (r *replay) print(out *output) error {
	if out.json() {
		return r.printJSON(r.summary)
	}
	for _, f := range r.summary.fields() {
		if _, err := fmt.Fprintf(r.stdout, "%-26s %s\n", f.name, f.value); err != nil {
			return err
		}
	}
	return nil
}
