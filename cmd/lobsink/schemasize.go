package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/internal/orascript"
)

func (a *app) schemaSize() *cobra.Command {
	out := newOutput()
	l := orascript.Load{Documents: 1_000_000, Bytes: 100_000, Open: time.Minute, Flush: time.Second, PerSecond: 10, Retention: 15 * time.Minute}
	cmd := &cobra.Command{
		Use:   "size",
		Short: "Estimate space, redo, retained space and sessions for Oracle, without a database",
		Long: `Estimates what documents take in Oracle. A CLOB takes two bytes for each character
of ASCII; each append writes the last block of a document anew, and the old one is
kept as long as the undo retention says.

These are estimates from Oracle's documentation. Nothing was measured on Oracle.`,
		Example: `  lobsink schema size --store oracle:lobsink@//db/docs --docs 1000000 --bytes 100KiB --flush 1s --open 1m --per-second 10`,
		Args:    arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.loadOffline()
			if err != nil {
				return err
			}
			if !cfg.isOracle() {
				return usage("lobsink schema size is for Oracle; write --store oracle:USER@CONNECT")
			}
			if l.Documents < 1 || l.Bytes < 1 || l.Flush <= 0 || l.Open < 0 || l.PerSecond < 0 || l.Retention < 0 {
				return usage("--docs, --bytes and --flush must be above 0, and no other number below it")
			}
			l.ChunkBytes, l.Partitions = int64(cfg.ChunkBytes), cfg.DefaultPartitions()
			return a.showSize(l.Estimate(), out)
		},
	}
	f := cmd.Flags()
	f.Int64Var(&l.Documents, "docs", l.Documents, "`number` of documents that are stored")
	f.Var((*size)(&l.Bytes), "bytes", "mean length of a document")
	f.Var((*duration)(&l.Flush), "flush", "how often a document is flushed: max_age")
	f.Var((*duration)(&l.Open), "open", "how long fragments of one document keep coming")
	f.Float64Var(&l.PerSecond, "per-second", l.PerSecond, "`number` of documents that begin in a second")
	f.Var((*duration)(&l.Retention), "retention", "how long the database keeps what was replaced: its undo retention")
	a.flags.add(f, "partitions", "chunk_bytes")
	out.addFlag(cmd)
	return cmd
}

// sizeView is an estimate in JSON. All bytes are of the database.
type sizeView struct {
	AppendsPerDocument float64 `json:"appends_per_document"`
	TextBytes          int64   `json:"text_bytes"`
	RowBytes           int64   `json:"row_bytes"`
	RedoBytes          int64   `json:"redo_bytes"`
	RedoPerSecond      float64 `json:"redo_bytes_per_second"`
	RetainedBytes      int64   `json:"retained_bytes"`
	SessionsPerMember  int     `json:"sessions_per_member"`
	Measured           bool    `json:"measured"`
}

func (a *app) showSize(s orascript.Size, out *output) error {
	if out.json() {
		return a.printJSON(sizeView{s.Appends, s.Text, s.Rows, s.Redo, s.RedoPerSecond, s.Retained, s.Sessions, false})
	}
	iec := func(n int64) string { return humanize.IBytes(uint64(n)) }
	for _, line := range [][2]string{
		{"appends of a document", strconv.FormatFloat(s.Appends, 'f', 0, 64)},
		{"segment of the text", iec(s.Text)},
		{"table and index", iec(s.Rows)},
		{"redo for all documents", iec(s.Redo)},
		{"redo in a second", iec(int64(s.RedoPerSecond))},
		{"replaced blocks that are kept", iec(s.Retained)},
		{"sessions of a member", strconv.Itoa(s.Sessions)},
	} {
		if _, err := fmt.Fprintf(a.stdout, "%-30s %s\n", line[0], line[1]); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(a.stdout, "estimated, not measured on Oracle")
	return err
}
