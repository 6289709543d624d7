package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/lobwriter"
)

func (a *app) documentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doc",
		Short: "List, show, read, check and purge stored documents",
		Long: `Reads documents from the database, while lobsink run runs or not. Only doc purge
changes anything.`,
		Example: `  lobsink doc ls --prefix ORDER-
  lobsink doc show ORDER-1
  lobsink doc cat ORDER-1 > order.xml
  lobsink doc verify --all`,
	}
	asGroup(cmd)
	cmd.AddCommand(a.documentList(), a.documentShow(), a.documentCat(), a.documentVerify(), a.documentPurge())
	return cmd
}

// documentView is a document in JSON.
type documentView struct {
	Key           string  `json:"key"`
	Generation    int64   `json:"generation"`
	State         string  `json:"state"`
	Partition     int     `json:"partition"`
	Fragments     int64   `json:"fragments"`
	Holes         int64   `json:"holes"`
	Late          int64   `json:"late"`
	Bytes         int64   `json:"bytes"`
	Chunks        int64   `json:"chunks"`
	CRC32C        string  `json:"crc32c"`
	FirstSequence *uint64 `json:"first_sequence"`
	LastSequence  *uint64 `json:"last_sequence"`
	Reason        *string `json:"reason"`
	CreatedAt     string  `json:"created_at"`
	UpdatedAt     string  `json:"updated_at"`
}

func viewDocument(d lobwriter.Document) documentView {
	return documentView{
		Key: d.Key, Generation: d.Generation, State: d.State.String(), Partition: d.Partition,
		Fragments: d.Fragments, Holes: d.Holes, Late: d.Late,
		Bytes: d.Bytes, Chunks: d.Chunks, CRC32C: checksumText(d.CRC),
		FirstSequence: known(d.First), LastSequence: known(d.Mark.Seq), Reason: known(d.Reason),
		CreatedAt: timestamp(d.CreatedAt), UpdatedAt: timestamp(d.UpdatedAt),
	}
}

func (v documentView) fields() []field {
	return []field{
		{"key", printable(v.Key)},
		{"state", v.State},
		{"reason", orDash(v.Reason)},
		{"generation", number(v.Generation)},
		{"partition", strconv.Itoa(v.Partition)},
		{"fragments", number(v.Fragments)},
		{"holes", number(v.Holes)},
		{"late", number(v.Late)},
		{"bytes", number(v.Bytes)},
		{"chunks", number(v.Chunks)},
		{"crc32c", v.CRC32C},
		{"first_sequence", orDash(v.FirstSequence)},
		{"last_sequence", orDash(v.LastSequence)},
		{"created_at", v.CreatedAt},
		{"updated_at", v.UpdatedAt},
	}
}

// parseState returns the state with a name; 0 for "".
func parseState(name string) lobwriter.State {
	for _, s := range []lobwriter.State{lobwriter.Open, lobwriter.Complete, lobwriter.Incomplete, lobwriter.Quarantined} {
		if s.String() == name {
			return s
		}
	}
	return 0
}

func (a *app) documentList() *cobra.Command {
	out := newOutput()
	var q lobwriter.Query
	var state string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List documents by key",
		Long: `Lists documents in byte order of their keys. When there are more than --limit,
the last line of stderr is the --after of the next page.`,
		Example: `  lobsink doc ls
  lobsink doc ls --prefix ORDER- --state incomplete
  lobsink doc ls --limit 0 -o json | jq -r '.items[].key'`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Limit < 0 {
				return usage("--limit: %d is negative; write 0 for no limit", q.Limit)
			}
			q.State = parseState(state)
			return a.withReader(cmd.Context(), func(r lobwriter.Reader) error {
				return a.listDocuments(cmd.Context(), r, q, out)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Prefix, "prefix", "", "only keys that begin with this `text`")
	flags.Var(&choice{&state, []string{"open", "complete", "incomplete", "quarantined"}}, "state", "only documents in this `state`: open, complete, incomplete or quarantined")
	flags.StringVar(&q.After, "after", "", "begin after this `key`")
	flags.IntVar(&q.Limit, "limit", 100, "most documents; 0: all")
	out.addFlag(cmd)
	return cmd
}

func (a *app) documentShow() *cobra.Command {
	out := newOutput()
	cmd := &cobra.Command{
		Use:   "show KEY",
		Short: "Show what is known of a document",
		Example: `  lobsink doc show ORDER-1
  lobsink doc show ORDER-1 -o json | jq -r .state`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withReader(cmd.Context(), func(r lobwriter.Reader) error {
				d, err := r.Document(cmd.Context(), args[0])
				if err != nil {
					return documentError(args[0], err)
				}
				if out.json() {
					return a.printJSON(viewDocument(d))
				}
				return a.printFields(viewDocument(d).fields())
			})
		},
	}
	out.addFlag(cmd)
	return cmd
}

func (a *app) documentCat() *cobra.Command {
	return &cobra.Command{
		Use:   "cat KEY",
		Short: "Print the text of a document, byte for byte",
		Long: `Prints the text of a document and nothing else, and checks its length and its
checksum on the way: if they are not what the database says, the exit code is 1
although everything was printed. If fragments of the document are in the dead
letters, a warning on stderr says so.`,
		Example: `  lobsink doc cat ORDER-1 > order.xml
  lobsink doc cat ORDER-1 | xmllint --noout -`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withReader(cmd.Context(), func(r lobwriter.Reader) error {
				text, err := readText(cmd.Context(), r, args[0], a.stdout)
				if err != nil {
					return documentError(args[0], err)
				}
				a.warnMissing(text.row)
				return text.fault()
			})
		},
	}
}

// warnMissing says that the text of a document is not all that was published.
func (a *app) warnMissing(d lobwriter.Document) {
	if d.Holes > 0 || d.State == lobwriter.Incomplete || d.State == lobwriter.Quarantined {
		fmt.Fprintf(a.stderr, "lobsink: warning: document %s is %s: what is missing is in the dead letters, see lobsink dlq ls --key %s\n",
			strconv.Quote(d.Key), d.State, shellQuoted(d.Key))
	}
}

func (a *app) documentVerify() *cobra.Command {
	v := &verification{app: a, out: newOutput()}
	cmd := &cobra.Command{
		Use:   "verify [KEY... | --all | --since TIME]",
		Short: "Compare documents with their length and checksum, or with the stream",
		Long: `Reads documents and compares their text with the length and the CRC-32C that
lobsink noted when it was written; with --stream also with the stream, byte by
byte, from their first fragment to the last one that is stored.

The exit code is 1 if one differs, and 2 if one cannot be compared, because the
stream no longer has all of it. The table has the documents that differ, with the
first byte that does, from 0, and the sequence of its fragment; the JSON has all
that were checked.`,
		Example: `  lobsink doc verify ORDER-1
  lobsink doc verify --all
  lobsink doc verify --since 24h --stream
  lobsink doc verify --all --prefix ORDER- -o json | jq '.items[] | select(.ok | not)'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			since := cmd.Flags().Changed("since")
			switch {
			case (v.all || since) == (len(args) > 0):
				return usage("name the documents to verify, or say --all or --since")
			case v.prefix != "" && !v.all && !since:
				return usage("--prefix needs --all or --since")
			}
			return a.withReader(cmd.Context(), func(r lobwriter.Reader) error {
				v.reader = r
				return v.begin(cmd.Context(), args)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&v.all, "all", false, "verify all documents")
	flags.Var(&sinceValue{now: time.Now, at: &v.since}, "since", "verify documents that were changed since this `time`: how long ago, such as 2h, or RFC 3339")
	flags.StringVar(&v.prefix, "prefix", "", "with --all or --since: only keys that begin with this `text`")
	flags.BoolVar(&v.stream, "stream", false, "compare with the stream too")
	a.flags.add(flags, "max_fragment_bytes")
	v.out.addFlag(cmd, ndjson)
	return cmd
}
