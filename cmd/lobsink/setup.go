package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// The results of a setup step.
const (
	created     = "created"
	updated     = "updated"
	wasThere    = "was there already"
	wouldCreate = "would be created"
	wouldUpdate = "would be created or updated"
	atRun       = "made by lobsink run"
)

// setupStep is one thing that setup makes.
type setupStep struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Result string `json:"result"`
	Detail string `json:"detail"`
}

func (a *app) setupCommand() *cobra.Command {
	out := newOutput()
	var dryRun bool
	var replicas int
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Make the stream, the dead-letter stream and the tables",
		Long: `Makes what lobsink needs: the stream of fragments, the stream of dead letters,
and the tables in the database. What is there already stays as it is; older
tables are brought to this program's version. It may be repeated at any time.

Without --nats there is no server to make streams on: lobsink run serves NATS
itself then, and makes them.`,
		Example: `  lobsink setup
  lobsink setup --dry-run
  lobsink setup --nats nats://nats:4222 --store postgres://lobsink@db/docs --partitions 16 --replicas 3`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if replicas < 1 {
				return usage("--replicas: %d is too few; write at least 1", replicas)
			}
			cfg, err := a.load()
			if err != nil {
				return err
			}
			s := &setup{app: a, cfg: cfg, dryRun: dryRun, replicas: replicas}
			err = s.run(cmd.Context())
			return errors.Join(s.print(out), err)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	cmd.Flags().IntVar(&replicas, "replicas", 1, "`number` of servers that keep new streams")
	a.flags.add(cmd.Flags(), "root", "partitions")
	out.addFlag(cmd)
	return cmd
}

// setup is one run of the command.
type setup struct {
	*app
	cfg      *Config
	dryRun   bool
	replicas int
	steps    []setupStep
}

// run does all steps, in the order in which the next needs the one before. It
// stops at the first error; the steps done stay done.
func (s *setup) run(ctx context.Context) error {
	if err := s.streams(ctx); err != nil {
		return jetStreamError(err)
	}
	return s.tables(ctx)
}

func (s *setup) did(kind, name, result, detail string) {
	s.steps = append(s.steps, setupStep{kind, name, result, detail})
}

func (s *setup) streams(ctx context.Context) error {
	spec := consumer.StreamSpec{Name: s.cfg.Stream, Root: s.cfg.Root, Partitions: s.cfg.DefaultPartitions(), Replicas: s.replicas}
	dead := consumer.DeadStream(s.cfg.Stream)
	if s.cfg.Embedded() {
		s.did("stream", spec.Name, atRun, "served at "+s.cfg.NATSURL())
		s.did("stream", dead, atRun, "served at "+s.cfg.NATSURL())
		return nil
	}
	nc, err := dialNATS(s.cfg)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := openJetStream(nc, s.cfg)
	if err != nil {
		return err
	}
	if err := s.stream(ctx, js, spec); err != nil {
		return err
	}
	if s.dryRun {
		return s.wouldCreate(ctx, js, dead, "lobsink.dead."+spec.Name+".>")
	}
	made, err := consumer.CreateDeadStream(ctx, js, spec.Name, s.replicas)
	if err == nil {
		s.did("stream", dead, outcome(made), "dead letters")
	}
	return err
}

func (s *setup) stream(ctx context.Context, js jetstream.JetStream, spec consumer.StreamSpec) error {
	if s.dryRun {
		if _, err := js.Stream(ctx, spec.Name); err != nil {
			return s.wouldCreate(ctx, js, spec.Name, describeLayout(consumer.Layout{Root: spec.Root, Partitions: spec.Partitions}))
		}
	}
	made := false
	if !s.dryRun {
		var err error
		if made, err = consumer.CreateStream(ctx, js, spec); err != nil {
			return err
		}
	}
	stream, err := js.Stream(ctx, spec.Name)
	if err != nil {
		return fmt.Errorf("stream %s: %w", spec.Name, err)
	}
	layout, warnings, err := consumer.DescribeStream(stream.CachedInfo())
	if err != nil {
		return misconfigured("stream %s is there already, but lobsink cannot use it: %w", spec.Name, err)
	}
	for _, w := range warnings {
		fmt.Fprintf(s.stderr, "warning: %s\n", w)
	}
	if layout.Root != s.cfg.Root || s.cfg.Partitions > 0 && layout.Partitions != s.cfg.Partitions {
		return misconfigured("stream %s is there already with %s: set root to %s and partitions to %d, or choose another stream; neither can be changed under stored messages",
			spec.Name, describeLayout(layout), layout.Root, layout.Partitions)
	}
	s.did("stream", spec.Name, outcome(made), describeLayout(layout))
	return nil
}

// wouldCreate looks whether a stream is there.
func (s *setup) wouldCreate(ctx context.Context, js jetstream.JetStream, name, detail string) error {
	_, err := js.Stream(ctx, name)
	switch {
	case err == nil:
		s.did("stream", name, wasThere, detail)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		s.did("stream", name, wouldCreate, detail)
	default:
		return fmt.Errorf("stream %s: %w", name, err)
	}
	return nil
}

func (s *setup) tables(ctx context.Context) error {
	name := redact(s.cfg.Store)
	if s.dryRun {
		r, err := openReader(ctx, s.cfg)
		switch {
		case err == nil:
			s.did("tables", name, wasThere, "")
			return r.Close()
		case lobwriter.KindOf(err) == lobwriter.Fatal:
			s.did("tables", name, wouldUpdate, "")
			return nil
		}
		return err
	}
	from, to, err := setupStore(ctx, s.cfg)
	if err != nil {
		return err
	}
	result := wasThere
	switch {
	case from == 0:
		result = created
	case from != to:
		result = updated
	}
	s.did("tables", name, result, fmt.Sprintf("version %d", to))
	return nil
}

func (s *setup) print(out *output) error {
	if out.json() {
		list := jsonList{w: s.stdout}
		for _, step := range s.steps {
			if err := list.add(step); err != nil {
				return err
			}
		}
		return list.end()
	}
	for _, step := range s.steps {
		line := fmt.Sprintf("%s %s: %s", step.Kind, step.Name, step.Result)
		if step.Detail != "" {
			line += " (" + step.Detail + ")"
		}
		if _, err := fmt.Fprintln(s.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

func outcome(made bool) string {
	if made {
		return created
	}
	return wasThere
}

func describeLayout(l consumer.Layout) string {
	return l.Root + ".*, " + plural(l.Partitions, "partition")
}
