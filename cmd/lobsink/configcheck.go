package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
)

func (a *app) configCheckCommand() *cobra.Command {
	out := newOutput()
	var connect, strict bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration before it is used",
		Long: `Checks the file, the environment and the flags: that they can be read, that the
settings fit together, and that they fit this machine. With --connect it also
asks NATS and the database whether they are as the configuration says. Nothing
is changed.`,
		Example: `  lobsink config check -c lobsink.yaml
  lobsink config check -c lobsink.yaml --connect --strict`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, origins, err := a.loadWithOrigins()
			if err != nil {
				return err
			}
			f := &findings{}
			f.ok("configuration", "%s", configText(origins))
			f.settings(cfg, origins)
			f.machine(cfg)
			if connect {
				f.connect(cmd.Context(), cfg)
			}
			return errors.Join(a.printFindings(f, out), f.err(strict))
		},
	}
	cmd.Flags().BoolVar(&connect, "connect", false, "ask NATS and the database too")
	cmd.Flags().BoolVar(&strict, "strict", false, "take warnings for errors")
	out.addFlag(cmd)
	a.flags.add(cmd.Flags(), runSettings...)
	return cmd
}

// configText says how many settings come from where.
func configText(origins map[string]string) string {
	if len(origins) == 0 {
		return "all settings have their defaults"
	}
	return plural(len(origins), "setting") + " given, the others have their defaults"
}

// settings looks for what is allowed and seldom meant.
func (f *findings) settings(cfg *Config, origins map[string]string) {
	if cfg.DrainTimeout < cfg.FlushTimeout {
		f.warn("drain_timeout", "%s is less than one attempt to flush may take (flush_timeout %s): a stop during an outage of the database ends before its outcome is known, and the next start waits for the lease; raise drain_timeout", cfg.DrainTimeout, cfg.FlushTimeout)
	}
	if cfg.MaxAge > time.Hour {
		f.warn("max_age", "%s: a fragment waits so long in memory before its document is written, and is read again after each restart", cfg.MaxAge)
	}
	if open(cfg.HTTP) && cfg.HTTPConfig == "" {
		f.warn("http", "%s is reachable from other machines, without a password: metrics tell the names of streams and errors of the database; listen on 127.0.0.1, or let only the monitoring reach the port", cfg.HTTP)
	}
	if cfg.Embedded() && open(cfg.NATSListen) {
		f.warn("nats_listen", "%s is reachable from other machines, and the embedded server asks nobody for a password: whoever reaches it may publish and delete; listen on 127.0.0.1, or use a NATS server of your own", cfg.NATSListen)
	}
	for _, key := range []string{"nats", "store"} {
		text := map[string]string{"nats": cfg.NATS, "store": cfg.Store}[key]
		if strings.HasPrefix(origins[key], "--") && redact(text) != text {
			f.warn(key, "the password on the command line can be seen by every user of this machine: use the environment, a file, or what the database has for it (PGPASSFILE)")
		}
	}
	if cfg.Embedded() && !cfg.sqlite() {
		f.warn("nats", "the embedded NATS server serves this process only, but the database can serve several: name a NATS server for more than one")
	}
}

// open reports whether other machines may reach an address to listen on.
func open(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// machine compares the settings with this machine.
func (f *findings) machine(cfg *Config) {
	need := uint64(cfg.Memory) + memoryBeside
	limit, err := memlimit.FromCgroup()
	switch {
	case err != nil || limit > 1<<50: // none, or none that counts
		f.ok("memory", "%s for what is held; no limit of a container", bytesText(cfg.Memory))
	case need > limit:
		f.warn("memory", "the process may take %s (memory %s and about %s beside it), but its container is limited to %s: lower memory, or raise the limit",
			bytesText(int64(need)), bytesText(cfg.Memory), bytesText(memoryBeside), bytesText(int64(limit)))
	default:
		f.ok("memory", "%s for what is held, in a container of %s", bytesText(cfg.Memory), bytesText(int64(limit)))
	}
	if cfg.Embedded() || cfg.sqlite() {
		f.folder(cfg)
	}
}

// memoryBeside is what a process takes at most beside its budget: measured, and
// held by the end-to-end test of memory.
const memoryBeside = 100 << 20

// folder looks whether the data folder, or the one that it would be made in, is
// there and can be written to.
func (f *findings) folder(cfg *Config) {
	dir := cfg.DataDir
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			f.fail("data_dir", misconfigured("%s is a file: choose another data_dir", dir))
			return
		case err == nil:
			trial, err := os.CreateTemp(dir, ".lobsink-check-*")
			if err != nil {
				f.fail("data_dir", misconfigured("nothing can be written there: %w; let this user write to %s, or choose another data_dir", err, dir))
				return
			}
			_ = trial.Close()
			_ = os.Remove(trial.Name())
			f.ok("data_dir", "%s can be written to", dir)
			return
		case !errors.Is(err, os.ErrNotExist) || filepath.Dir(dir) == dir:
			f.fail("data_dir", misconfigured("%w; choose another data_dir", err))
			return
		}
		dir = filepath.Dir(dir)
	}
}
