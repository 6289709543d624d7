package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Write, check and show the configuration",
		Long: `The configuration is one YAML file. Each key of it is also a flag, with dashes
(--max-age), and an environment variable (LOBSINK_MAX_AGE). Flags win over the
environment, that over the file, and that over the defaults.

Values may hold ${NAME} and ${NAME:-DEFAULT}, for variables of the environment.`,
		Example: `  lobsink config init --store postgres > lobsink.yaml
  lobsink config check -c lobsink.yaml --connect
  lobsink config show -c lobsink.yaml`,
	}
	asGroup(cmd)
	cmd.AddCommand(a.configInitCommand(), a.configCheckCommand(), a.configShowCommand())
	return cmd
}

func (a *app) configShowCommand() *cobra.Command {
	out := newOutput()
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the settings in effect and where they come from",
		Long: `Prints the settings in effect as a configuration file, each with where it comes
from: a file, a variable, a flag, or the default. Secrets are masked.`,
		Example: `  lobsink config show -c lobsink.yaml
  LOBSINK_MAX_AGE=5s lobsink config show -o json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			cfg, origins, err := a.loadWithOrigins()
			if err != nil {
				return err
			}
			return a.showConfig(cfg, origins, out)
		},
	}
	out.addFlag(cmd)
	a.flags.add(cmd.Flags(), runSettings...)
	return cmd
}

func (a *app) showConfig(cfg *Config, origins map[string]string, out *output) error {
	list := jsonList{w: a.stdout}
	for i := range settings {
		s := &settings[i]
		value, origin := s.value(cfg).String(), origins[s.key]
		if origin == "" {
			origin = "default"
		}
		if out.json() {
			err := list.add(struct {
				Key    string  `json:"key"`
				Value  *string `json:"value"`
				Origin string  `json:"origin"`
			}{s.key, known(value), origin})
			if err != nil {
				return err
			}
			continue
		}
		line := s.key + ": " + yamlText(value)
		if value == "" { // the file takes no empty value
			line = "# " + s.key + ":"
		}
		if _, err := fmt.Fprintf(a.stdout, "%-44s # %s\n", line, origin); err != nil {
			return err
		}
	}
	if out.json() {
		return list.end()
	}
	return nil
}

// yamlText returns text as a value in YAML, quoted where it must be. Numbers need
// no quotes: all values are read as text.
func yamlText(text string) string {
	if _, err := strconv.Atoi(text); err == nil {
		return text
	}
	quoted, err := yaml.Marshal(text)
	if err != nil {
		return fmt.Sprintf("%q", text)
	}
	return strings.TrimSpace(string(quoted))
}

// kinds are the databases for which `config init` writes a file, and what the file
// then names.
var kinds = []struct{ name, url string }{
	{"sqlite", "sqlite:./lobsink-data/lobsink.db"},
	{"postgres", "postgres://lobsink@localhost:5432/lobsink"},
	{"oracle", "oracle:lobsink@//localhost:1521/FREEPDB1"},
}

// smallSettings are those of `config init --small`.
var smallSettings = []string{"nats", "store", "stream", "max_age", "memory", "http"}

func (a *app) configInitCommand() *cobra.Command {
	var store string
	var small bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a configuration file with comments",
		Long: `Prints a configuration file for a database, with a comment above each key. What
has a default is commented out.`,
		Example: `  lobsink config init > lobsink.yaml
  lobsink config init --store postgres --small > lobsink.yaml
  lobsink config init --store postgres://lobsink@db/docs --nats nats://nats:4222 > lobsink.yaml`,
		Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			cfg := defaultConfig()
			cfg.Store = store
			for _, k := range kinds {
				if store == k.name {
					cfg.Store = k.url
				}
			}
			if err := (*storeText)(&cfg.Store).Set(cfg.Store); err != nil {
				return usage("--store: %w; sqlite, postgres or oracle alone will do here", err)
			}
			if !cfg.sqlite() {
				cfg.NATS = "nats://localhost:4222" // others share the database, so they share a server
			}
			if f := a.flags.given["nats"]; f != nil && f.set {
				cfg.NATS = f.text
			}
			_, err := fmt.Fprint(a.stdout, initialFile(cfg, small))
			return err
		},
	}
	cmd.Flags().StringVar(&store, "store", "sqlite", "`database`: sqlite, postgres, oracle, or its URL")
	cmd.Flags().BoolVar(&small, "small", false, "only what most people set")
	return cmd
}

// initialFile returns a configuration file that has the NATS URL and the store of
// cfg and comments for everything else.
func initialFile(cfg Config, small bool) string {
	set := []string{"store"}
	if cfg.NATS != "" {
		set = append(set, "nats")
	}
	raw := map[string]string{"store": cfg.Store, "nats": cfg.NATS} // String would mask
	cfg.complete()
	var out strings.Builder
	out.WriteString("# Configuration of lobsink; see: lobsink config --help\n# Passwords need not stand here: write ${NAME} for a variable of the environment.\n")
	for i := range settings {
		s := &settings[i]
		if small && !slices.Contains(smallSettings, s.key) {
			continue
		}
		help := strings.ReplaceAll(s.help, "`", "")
		if s.initial != "" && !slices.Contains(set, s.key) {
			help += " (" + s.initial + ")"
		}
		value := s.value(&cfg).String()
		comment := "#"
		if slices.Contains(set, s.key) {
			value, comment = raw[s.key], ""
		}
		line := strings.TrimRight(comment+s.key+": "+yamlText(value), " ")
		if value == "" {
			line = comment + s.key + ":"
		}
		fmt.Fprintf(&out, "\n# %s\n%s\n", help, line)
	}
	return out.String()
}
