// Command chaos is the fault suite: real nats-server processes in a cluster, a
// real PostgreSQL, several lobsinks, a seeded plan of faults, and a comparison of
// every document, byte by byte. `make chaos` runs it.
//
// Its stdout is one JSON object; progress is on stderr. The exit code is 0 if
// every document is exact and nothing that was acknowledged is missing, otherwise
// 1.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lmittmann/tint"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := realMain(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		stop()
		os.Exit(1)
	}
}

// Without -phase, faults come as often as this, as long as there is time.
const (
	faultSpacing = 6 * time.Second
	longestPhase = 6 * time.Minute
)

// mostFaults is how many there is time for: members that are disturbed already
// are not disturbed once more.
const mostFaults = 200

func realMain(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.dir, err = os.MkdirTemp("", "lobsink-chaos-"); err != nil {
		return err
	}
	defer func() {
		if o.keep {
			o.log.Info("the logs are kept", "folder", o.dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(o.dir))
	}()
	if err := buildAll(ctx, &o); err != nil {
		return err
	}
	o.log.Info("chaos", "seed", o.seed, "faults", o.faults, "fragments", o.fragments, "documents", o.documents, "phase", o.phase)
	r, problems, err := do(ctx, o)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		o.keep = true
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	if fault := r.fault(); fault != nil || len(problems) > 0 {
		o.keep = true
		return fmt.Errorf("seed %d found faults: %w", o.seed, errors.Join(append(problems, fault)...))
	}
	return nil
}

// parse reads the command line.
func parse(args []string) (o options, err error) {
	o.log = slog.New(tint.NewHandler(os.Stderr, &tint.Options{TimeFormat: "15:04:05.000", NoColor: true}))
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.Uint64Var(&o.seed, "seed", 0, "what the run is made from; 0: any")
	f.IntVar(&o.faults, "faults", 50, fmt.Sprintf("number of faults, at most %d", mostFaults))
	f.IntVar(&o.fragments, "fragments", 100_000, "number of fragments, at least one for each document")
	f.IntVar(&o.documents, "documents", 1000, "number of documents")
	f.DurationVar(&o.phase, "phase", 0, "over how long faults and fragments are spread, at most 6m; 0: 6s for each fault")
	f.StringVar(&o.lobsink, "lobsink", "", "binary of lobsink; \"\": built from this source")
	f.BoolVar(&o.keep, "keep", false, "keep the folder with the logs, also if nothing is wrong")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.faults < 0 || o.faults > mostFaults || o.documents < 1 || o.fragments < o.documents || o.phase < 0 || o.phase > longestPhase {
		f.Usage()
		return o, errors.New("a value is out of its range")
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1 << 31) // as short as people like to type
	}
	if o.phase == 0 {
		o.phase = min(max(time.Duration(o.faults)*faultSpacing, 30*time.Second), longestPhase)
	}
	return o, nil
}

// buildAll builds what runs as a process of its own. The version of nats-server
// is that of the tool line in go.mod.
func buildAll(ctx context.Context, o *options) (err error) {
	build := func(name, pkg string) (string, error) {
		path := filepath.Join(o.dir, name)
		cmd := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
		}
		return path, nil
	}
	if o.natsServer, err = build("nats-server", "github.com/nats-io/nats-server/v2"); err != nil {
		return err
	}
	if o.lobsink == "" {
		o.lobsink, err = build("lobsink", "github.com/lobsink/lobsink/cmd/lobsink")
	}
	return err
}
