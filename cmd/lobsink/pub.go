package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go"
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
	cmd := &cobra.Command{
		Use:   "pub [--key KEY] [--depth N] FILE...",
		Short: "Publish XML files as fragments",
		Long: `Cuts files before every element of a depth and publishes the pieces, which
joined are the file again, byte for byte, whether it is well-formed or not. What
is larger than the server takes is cut at character borders.

Each file is one document. Its key is the path as given, without ./ and the like,
unless --key says another. A folder stands for all regular files below it. The
file - is standard input, and needs --key.

The last piece completes the document, unless --final=false: then a later pub
with the same --key goes on with it.

What is not UTF-8, or has U+0000, is published as it is; lobsink puts it into the
dead letters.`,
		Example: `  lobsink pub report.xml
  lobsink pub --key ORDER-1 --depth 2 order.xml
  generate | lobsink pub --key ORDER-2 -
  lobsink pub --key LOG --final=false part1.xml && lobsink pub --key LOG part2.xml`,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.run(cmd.Context(), args); err != nil {
				return err
			}
			return p.print(out)
		},
	}
	cmd.Flags().StringVar(&p.key, "key", "", "`key` of the document; only with one file")
	cmd.Flags().IntVar(&p.depth, "depth", 1, "`depth` of the elements before which files are cut: 1 are the children of the root, 0 is not at all")
	cmd.Flags().BoolVar(&p.final, "final", true, "complete the document with the last piece")
	cmd.Flags().StringVar(&p.id, "id", "", "`name` of this publication; with that of one that failed it goes on where that one ended (default: random)")
	cmd.Flags().IntVar(&p.perKey, "in-flight", 1, "`number` of fragments of a document that may be unanswered; more is faster over a slow network, but if the stream refuses one of them the document may be broken, which is reported")
	out.addFlag(cmd)
	return cmd
}

// publication is one run of the command.
type publication struct {
	*app
	key    string
	depth  int
	final  bool
	id     string
	perKey int

	documents, fragments int
	bytes                int64
	first, last          uint64
	progress             *progressbar.ProgressBar
}

// source is a file to publish.
type source struct {
	path string // "-": standard input
	key  string
}

func (p *publication) run(ctx context.Context, args []string) error {
	if p.depth < 0 {
		return usage("--depth: %d is negative", p.depth)
	}
	if p.perKey < 1 {
		return usage("--in-flight: %d is less than 1", p.perKey)
	}
	sources, err := p.sources(args)
	if err != nil {
		return err
	}
	cfg, err := p.load()
	if err != nil {
		return err
	}
	nc, err := dialNATS(cfg, publishingOptions()...)
	if err != nil {
		return err
	}
	defer nc.Close()
	stream, err := openStream(ctx, nc, cfg)
	if err != nil {
		return err
	}
	pub, err := publish.New(nc, stream, publish.Options{Run: p.id, PerKey: p.perKey, Published: p.published, Log: p.logger(cfg)})
	if err != nil {
		return misconfigured("%w", err)
	}
	room := min(publish.Room(nc, stream.CachedInfo()), int(min(cfg.MaxFragmentBytes, math.MaxInt32)))
	p.progress = p.progressBar(-1, "publishing")
	defer func() { _ = p.progress.Finish() }() // a line on a terminal
	for _, s := range sources {
		if err = p.file(ctx, pub, s, room); err != nil {
			break
		}
		p.documents++
	}
	if err == nil {
		err = pub.Flush(ctx)
	}
	return p.explain(ctx, pub, err)
}

func (p *publication) published(f publish.Fragment, seq uint64) {
	if p.first == 0 {
		p.first = seq
	}
	p.last = seq
	p.fragments++
	p.bytes += int64(len(f.Data))
	_ = p.progress.Add(len(f.Data))
}

// localError is an error of a file that is to be published.
type localError struct{ error }

// explain says how to go on after an error of NATS.
func (p *publication) explain(ctx context.Context, pub *publish.Publisher, err error) error {
	var local localError
	var broken *publish.BrokenError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &local), errors.As(err, &broken), errors.Is(err, publish.ErrComplete), errors.Is(err, publish.ErrChanged):
		return failed("%w", err)
	}
	// The publisher is of no more use, but knows what it was.
	goOn := fmt.Sprintf("the same command with --id %s goes on from there", shellQuoted(pub.Run()))
	if ctx.Err() != nil {
		return failed("stopped; %s", goOn)
	}
	return withCode(exitUnavailable, fmt.Errorf("%w; %s", err, goOn))
}

// sources gives each file its key. What is wrong with files and keys is found
// before anything is published.
func (p *publication) sources(args []string) (found []source, err error) {
	files, err := filesBelow(args)
	if err != nil {
		return nil, err
	}
	if p.key != "" && len(files) > 1 {
		return nil, usage("--key names one document, but there are %d files", len(files))
	}
	for _, path := range files {
		key := p.key
		switch {
		case key != "":
		case path == "-":
			return nil, usage("standard input has no name: say --key")
		default:
			key = filepath.ToSlash(filepath.Clean(path))
		}
		if _, err := consumer.Token(key); err != nil {
			return nil, usage("%s cannot be the key of a document: %w; say another one with --key", printable(key), err)
		}
		found = append(found, source{path, key})
	}
	if found == nil {
		return nil, failed("there is no file to publish in %s", strings.Join(args, ", "))
	}
	return found, nil
}

// filesBelow replaces folders by all regular files below them.
func filesBelow(paths []string) (files []string, err error) {
	for _, path := range paths {
		if path == "-" {
			files = append(files, path)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, failed("%w", err)
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		err = filepath.WalkDir(path, func(below string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				files = append(files, below)
			}
			return err
		})
		if err != nil {
			return nil, failed("%w", err)
		}
	}
	return files, nil
}

// openStream returns the stream to publish to.
func openStream(ctx context.Context, nc *nats.Conn, cfg *Config) (jetstream.Stream, error) {
	js, err := openJetStream(nc, cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	s, err := js.Stream(ctx, cfg.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, misconfigured("there is no stream %s: make it with `lobsink setup`, or start `lobsink run`, or name another one with --stream", cfg.Stream)
	}
	return s, jetStreamError(err)
}

// file publishes one document, in pieces of at most room bytes. A piece is held
// back until it is known whether it is the last.
func (p *publication) file(ctx context.Context, pub *publish.Publisher, s source, room int) error {
	var src io.Reader = os.Stdin
	if s.path != "-" {
		f, err := os.Open(s.path)
		if err != nil {
			return localError{err}
		}
		defer f.Close()
		src = f
	}
	warned := false
	send := func(piece []byte, last bool) error {
		if reason := consumer.CheckText(piece, room); reason != nil && !warned {
			warned = true
			fmt.Fprintf(p.stderr, "lobsink: %s: a piece goes to the dead letters: %s\n", printable(s.path), reason.Text)
		}
		return pub.Publish(ctx, publish.Fragment{Key: s.key, Data: piece, Final: last && p.final})
	}
	var held []byte
	for piece, err := range xmlsplit.Split(src, xmlsplit.Options{Depth: p.depth, Limit: room}) {
		if err != nil {
			return localError{fmt.Errorf("reading %s: %w", printable(s.path), err)}
		}
		if held != nil {
			if err := send(held, false); err != nil {
				return err
			}
		}
		held = piece
	}
	if held == nil && !p.final {
		return nil // an empty file adds nothing to an open document
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
	if p.fragments == 0 {
		_, err := fmt.Fprintf(p.stdout, "published nothing: of %s the stream has everything already\n", plural(p.documents, "document"))
		return err
	}
	_, err := fmt.Fprintf(p.stdout, "published %s in %s, %s, sequences %d to %d\n",
		plural(p.documents, "document"), plural(p.fragments, "fragment"), humanize.IBytes(uint64(p.bytes)), p.first, p.last)
	return err
}

// progressBar shows progress on a terminal, and nothing elsewhere. A total of -1
// is not known.
func (a *app) progressBar(total int64, what string) *progressbar.ProgressBar {
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetVisibility(isTerminal(a.stderr)),
		progressbar.OptionSetDescription(what), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionShowCount(), progressbar.OptionClearOnFinish())
}
