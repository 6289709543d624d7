package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/publish"
	"github.com/lobsink/lobsink/internal/xmlsplit"
)

func (a *app) publishCommand() *cobra.Command {
	out := newOutput()
	p := &publication{app: a}
	var final bool
	cmd := &cobra.Command{
		Use:   "pub [--key KEY] [--depth N] FILE...",
		Short: "Publish XML files as fragments",
		Long: `Cuts files before every element of a depth and publishes the pieces, which
joined are the file again, byte for byte. What is larger than the server takes
is cut at character borders. Each file is one document; its key is the path as
given, unless --key says another. A folder stands for all files below it. The
file - is standard input, and needs --key.

The last piece completes the document, unless --final=false.`,
		Example: `  lobsink pub report.xml
  lobsink pub --key ORDER-1 --depth 2 order.xml
  generate | lobsink pub --key ORDER-2 -
  lobsink pub --key LOG --final=false part1.xml && lobsink pub --key LOG part2.xml`,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.open = !final
			err := p.run(cmd.Context(), args)
			if err != nil {
				return err
			}
			return p.print(out)
		},
	}
	cmd.Flags().StringVar(&p.key, "key", "", "`key` of the document; only with one file")
	cmd.Flags().IntVar(&p.depth, "depth", 1, "`depth` of the elements before which files are cut; 1 are the children of the root")
	cmd.Flags().BoolVar(&final, "final", true, "complete the document with the last piece")
	out.addFlag(cmd)
	return cmd
}

// publication is one run of the command.
type publication struct {
	*app
	key   string
	depth int
	open  bool // the documents stay open

	documents, fragments int
	bytes                int64
	first, last          uint64
	progress             *progressbar.ProgressBar
}

func (p *publication) run(ctx context.Context, args []string) error {
	switch {
	case p.depth < 0:
		return usage("--depth: %d is negative", p.depth)
	case p.key != "" && len(args) > 1:
		return usage("--key names one document, but there are %d files", len(args))
	}
	files, err := p.files(args)
	if err != nil {
		return err
	}
	cfg, err := p.load()
	if err != nil {
		return err
	}
	nc, err := dialNATS(cfg)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1<<20))
	if err != nil {
		return err
	}
	layout, err := streamLayout(ctx, js, cfg)
	if err != nil {
		return err
	}
	p.progress = p.progressBar(-1, "publishing")
	defer func() { _ = p.progress.Finish() }() // a line on a terminal
	pub := publish.New(js, publish.Options{
		Layout: layout, Run: consumer.NewID(),
		Published: func(f publish.Fragment, seq uint64) {
			if p.first == 0 {
				p.first = seq
			}
			p.last = max(p.last, seq)
			p.fragments++
			p.bytes += int64(len(f.Data))
			_ = p.progress.Add(len(f.Data))
		},
	})
	for _, f := range files {
		if err := p.file(ctx, pub, f, publish.Room(nc)); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		p.documents++
	}
	return pub.Flush(ctx)
}

// files replaces folders by the files below them.
func (p *publication) files(args []string) (files []string, err error) {
	for _, arg := range args {
		if arg == "-" {
			if p.key == "" {
				return nil, usage("standard input has no name: say --key")
			}
			files = append(files, arg)
			continue
		}
		err := filepath.WalkDir(arg, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return nil, failed("%w", err)
		}
	}
	if p.key != "" && len(files) > 1 {
		return nil, usage("--key names one document, but there are %d files", len(files))
	}
	return files, nil
}

// streamLayout finds out how the subjects of the stream are made.
func streamLayout(ctx context.Context, js jetstream.JetStream, cfg *Config) (consumer.Layout, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	s, err := js.Stream(ctx, cfg.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return consumer.Layout{}, misconfigured("there is no stream %s: make it with `lobsink setup`, or start `lobsink run`, or name another with --stream", cfg.Stream)
	}
	if err != nil {
		return consumer.Layout{}, err
	}
	layout, _, err := consumer.DescribeStream(s.CachedInfo())
	if err != nil {
		return layout, misconfigured("stream %s: %w", cfg.Stream, err)
	}
	return layout, nil
}

// file publishes one document. A piece is held back until it is known whether
// it is the last.
func (p *publication) file(ctx context.Context, pub *publish.Publisher, name string, room int) error {
	var src io.Reader = os.Stdin
	key := p.key
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return failed("%w", err)
		}
		defer f.Close()
		src = f
		if key == "" {
			key = filepath.ToSlash(filepath.Clean(name))
		}
	}
	index := uint64(0)
	warned := false
	send := func(piece []byte, last bool) error {
		index++
		if !warned && !utf8.Valid(piece) {
			warned = true
			fmt.Fprintf(p.stderr, "lobsink: %s is not UTF-8: what is not goes to the dead letters\n", name)
		}
		f := publish.Fragment{Key: key, Data: piece, Index: index, Final: last && !p.open}
		if p.open {
			f.Index = 0 // a later part would begin at 1 again
		}
		return pub.Publish(ctx, f)
	}
	var held []byte
	for piece, err := range xmlsplit.Split(src, xmlsplit.Options{Depth: p.depth, Limit: room}) {
		if err != nil {
			return err
		}
		if held != nil {
			if err := send(held, false); err != nil {
				return err
			}
		}
		held = piece
	}
	return send(held, true)
}

func (p *publication) print(out *output) error {
	if out.json() {
		return p.printJSON(struct {
			Documents     int     `json:"documents"`
			Fragments     int     `json:"fragments"`
			Bytes         int64   `json:"bytes"`
			FirstSequence *uint64 `json:"first_sequence"`
			LastSequence  *uint64 `json:"last_sequence"`
		}{p.documents, p.fragments, p.bytes, known(p.first), known(p.last)})
	}
	_, err := fmt.Fprintf(p.stdout, "published %s in %s as %s, %s, sequences %d to %d\n",
		plural(p.documents, "document"), plural(p.fragments, "fragment"), humanize.IBytes(uint64(p.bytes)), "stored by the stream", p.first, p.last)
	return err
}

// progressBar shows progress on a terminal, and nothing elsewhere.
func (a *app) progressBar(total int64, what string) *progressbar.ProgressBar {
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetVisibility(isTerminal(a.stderr)),
		progressbar.OptionSetDescription(strings.TrimSpace(what)), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionShowCount(), progressbar.OptionClearOnFinish())
}
