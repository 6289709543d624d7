package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/lobwriter"
)

func (a *app) doctorCommand() *cobra.Command {
	out := newOutput()
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at everything, on one page that can be sent to somebody",
		Long: `Looks at this program, its configuration, this machine, NATS, the database, and
the running members, and prints one line for each thing, without secrets.
Nothing is changed. The exit code is that of the first thing that failed.`,
		Example: `  lobsink doctor
  lobsink doctor -c /etc/lobsink.yaml -o json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := &findings{}
			f.program()
			cfg, origins, err := a.loadWithOrigins()
			if err != nil {
				f.fail("configuration", err)
				return errors.Join(a.printFindings(f, out), f.err(false))
			}
			f.given(cfg, origins)
			f.settings(cfg, origins)
			f.machine(cfg)
			f.connect(cmd.Context(), cfg)
			f.running(cmd.Context(), cfg)
			return errors.Join(a.printFindings(f, out), f.err(false))
		},
	}
	out.addFlag(cmd)
	a.flags.add(cmd.Flags(), runSettings...)
	return cmd
}

// program says which program looks, where, and when.
func (f *findings) program() {
	b := readBuild()
	f.ok("lobsink", "%s, %s, %s/%s, %s", b.Version, b.Go, b.OS, b.Arch, time.Now().UTC().Format(time.RFC3339))
	f.ok("machine", "%s", plural(runtime.GOMAXPROCS(0), "processor"))
}

// given lists the settings that have not their defaults.
func (f *findings) given(cfg *Config, origins map[string]string) {
	if len(origins) == 0 {
		f.ok("configuration", "%s", configText(origins))
	}
	for i := range settings {
		s := &settings[i]
		if origin, ok := origins[s.key]; ok {
			f.ok("configuration", "%s: %s (%s)", s.key, s.value(cfg).String(), origin)
		}
	}
}

// running says who runs and what is behind.
func (f *findings) running(ctx context.Context, cfg *Config) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	f.partitions(ctx, cfg)
	nc, err := dialNATS(cfg)
	if err != nil {
		return // was said
	}
	defer nc.Close()
	members, err := askMembers[memberStatus](nc, statusSubject+cfg.Stream, "", memberWait)
	switch {
	case err != nil:
		f.fail("members", err)
	case len(members) == 0:
		f.warn("members", "none answers: start one with lobsink run")
	}
	for _, m := range members {
		state := fmt.Sprintf("%s on %s, version %s, since %s, %s", m.Member, m.Host, m.Version, m.Started, plural(len(m.Partitions), "partition"))
		if m.Ready {
			f.ok("members", "%s", state)
			continue
		}
		f.warn("members", "%s, not ready: %v", state, m.Reasons)
	}
}

// partitions says what the database knows of them.
func (f *findings) partitions(ctx context.Context, cfg *Config) {
	r, err := openReader(ctx, cfg)
	if err != nil {
		return // was said
	}
	defer func() { _ = r.Close() }() // it has only read
	b, err := r.Binding(ctx)
	if errors.Is(err, lobwriter.ErrNotFound) {
		return // was said
	}
	v := &partitionsView{}
	if err == nil {
		v, err = readPartitions(ctx, cfg, r, b.Partitions)
	}
	if err != nil {
		f.fail("partitions", err)
		return
	}
	unowned, lag := 0, uint64(0)
	measured := v.measure(ctx, cfg, b) == nil
	for _, p := range v.Partitions {
		if p.Owner == nil {
			unowned++
		}
		if p.Lag != nil {
			lag += *p.Lag
		}
	}
	text := fmt.Sprintf("%s, %s live", plural(len(v.Partitions), "partition"), plural(len(v.Members), "member"))
	if measured {
		text += fmt.Sprintf(", %s not stored yet", plural(int(lag), "message"))
	}
	if unowned > 0 {
		f.warn("partitions", "%s; nobody owns %d of them", text, unowned)
		return
	}
	f.ok("partitions", "%s", text)
}
