package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/orascript"
	"github.com/lobsink/lobsink/lobwriter/oracle"
	"github.com/lobsink/lobsink/lobwriter/postgres"
	"github.com/lobsink/lobsink/lobwriter/sqlite"
)

func (a *app) schemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print, check and apply the tables of a database; for DBAs",
		Long: `The tables, as a DBA wants them: as text to review and to run by hand, with the
privileges that they need. Only status, apply and attach connect to a database.

For Oracle the text is SQL*Plus scripts; see docs/oracle.md. Nothing of them was
run on Oracle yet.`,
		Example: `  lobsink schema print --store oracle:lobsink@//db/docs > lobsink.sql
  lobsink schema grants --store oracle:lobsink_app@//db/docs --oracle-owner lobsink
  lobsink schema status`,
	}
	asGroup(cmd)
	cmd.AddCommand(a.schemaPrint(), a.schemaStatus(), a.schemaApply(), a.schemaGrants(), a.schemaSize(), a.schemaOptions(), a.schemaAttach())
	return cmd
}

func (a *app) schemaPrint() *cobra.Command {
	var options []string
	var uninstall bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the statements that make the tables, without a database",
		Long: `Prints what makes the tables in the database that --store names. It connects to
nothing.

For Oracle that is a script for SQL*Plus or SQLcl, which may be run twice and ends
at the first error; with --option also a storage choice, see lobsink schema
options. For SQLite and PostgreSQL it is for review: lobsink schema apply runs it,
and records what was run.`,
		Example: `  lobsink schema print --store oracle:lobsink@//db/docs > lobsink.sql
  lobsink schema print --store oracle:lobsink@//db/docs --option partitioning --partitions 16
  lobsink schema print --store oracle:lobsink@//db/docs --uninstall
  lobsink schema print --store postgres://db/docs`,
		Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.loadOffline()
			if err != nil {
				return err
			}
			if cfg.isOracle() {
				return a.printOracle(cfg, options, uninstall)
			}
			if len(options) > 0 || uninstall {
				return usage("--option and --uninstall are for Oracle")
			}
			files := deploy.PostgreSQL()
			if cfg.sqlite() {
				files = deploy.SQLite()
			}
			return a.printMigrations(files)
		},
	}
	cmd.Flags().StringArrayVar(&options, "option", nil, "`name` of a storage choice for Oracle; may be repeated")
	cmd.Flags().BoolVar(&uninstall, "uninstall", false, "print what removes everything, with all documents")
	a.flags.add(cmd.Flags(), "oracle_owner", "partitions")
	return cmd
}

// loadOffline is load for commands that connect to nothing: they need no password.
func (a *app) loadOffline() (*Config, error) {
	offline := *a
	offline.env = maps.Clone(a.env)
	offline.env["LOBSINK_ORACLE_PASSWORD"] = "not used"
	return offline.load()
}

// printMigrations prints the way up of migrations in the format of goose.
func (a *app) printMigrations(files fs.FS) error {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		up, _, _ := strings.Cut(string(text), "\n-- +goose Down")
		var kept []string
		for _, line := range strings.Split(up, "\n") {
			if !strings.HasPrefix(line, "-- +goose ") {
				kept = append(kept, line)
			}
		}
		if _, err := fmt.Fprintf(a.stdout, "-- %s\n\n%s\n\n", name, strings.TrimSpace(strings.Join(kept, "\n"))); err != nil {
			return err
		}
	}
	return nil
}

// schemaState is the result of schema status.
type schemaState struct {
	Store string `json:"store"`
	// Version is what the tables have, 0: there are none; Newest what this program
	// needs.
	Version int64 `json:"version"`
	Newest  int64 `json:"newest"`
	// State is current, missing, older or newer.
	State string `json:"state"`
}

func (a *app) schemaStatus() *cobra.Command {
	out := newOutput()
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the version of the tables, and the one that this program needs",
		Long: `Shows the version of the tables. The exit code is 0 if they are those that this
program needs, and otherwise 78.`,
		Example: `  lobsink schema status
  lobsink schema status --store oracle:lobsink@//db/docs -o json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			s := schemaState{Store: redact(cfg.Store)}
			if s.Version, s.Newest, err = schemaVersion(cmd.Context(), cfg); err != nil {
				return err
			}
			return a.showSchemaState(s, out)
		},
	}
	a.flags.add(cmd.Flags(), "oracle_owner")
	out.addFlag(cmd)
	return cmd
}

func (a *app) showSchemaState(s schemaState, out *output) error {
	var advice error
	switch {
	case s.Version == s.Newest:
		s.State = "current"
	case s.Version == 0:
		s.State, advice = "missing", misconfigured("there are no tables: run lobsink schema apply, or lobsink schema print and run that")
	case s.Version < s.Newest:
		s.State, advice = "older", misconfigured("the tables are older than this program: run lobsink schema apply, or lobsink schema print and run that")
	default:
		s.State, advice = "newer", misconfigured("the tables are newer than this program: use a newer one")
	}
	if out.json() {
		return errors.Join(a.printJSON(s), advice)
	}
	t := newTable("STORE", "VERSION", "NEWEST", "STATE")
	t.AppendRow(table.Row{s.Store, s.Version, s.Newest, s.State})
	return errors.Join(a.printTable(t), advice)
}

// schemaVersion returns the version of the tables, 0: there are none, and the one
// that this program needs.
func schemaVersion(ctx context.Context, cfg *Config) (have, newest int64, err error) {
	u, err := cfg.storeURL()
	if err != nil {
		return 0, 0, err
	}
	switch {
	case cfg.isOracle():
		scripts, err := cfg.oracleScripts(nil)
		if err != nil {
			return 0, 0, err
		}
		have, err = withOracleSession(ctx, cfg, func(db *oracle.Admin) (int64, error) { return installedVersion(ctx, db, scripts) })
		return have, orascript.Newest(scripts), err
	case u.path == "":
		return postgres.Version(ctx, cfg.postgres(u))
	}
	have, newest, err = sqlite.Version(ctx, cfg.sqliteFile(u))
	return have, newest, fileError(err)
}

func (a *app) schemaApply() *cobra.Command {
	var options []string
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Make the tables, or bring them to this program's version",
		Long: `Makes the tables, as lobsink setup does, and nothing else. It may be repeated.

For Oracle: as the owner of the tables, or as a DBA with --oracle-owner; a package
that does not compile is an error. Storage choices are for tables that are not
there yet; run the script of a choice by hand later, where it allows that.`,
		Example: `  lobsink schema apply --store postgres://lobsink@db/docs
  lobsink schema apply --store oracle:lobsink@//db/docs --option in-row`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			apply := setupStore
			if cfg.isOracle() {
				apply = func(ctx context.Context, cfg *Config) (from, to int64, err error) {
					return applyOracle(ctx, cfg, options)
				}
			} else if len(options) > 0 {
				return usage("--option is for Oracle")
			}
			from, to, err := apply(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "tables %s: %s (version %d)\n", redact(cfg.Store), tablesOutcome(from, to), to)
			return err
		},
	}
	cmd.Flags().StringArrayVar(&options, "option", nil, "`name` of a storage choice for Oracle; may be repeated")
	a.flags.add(cmd.Flags(), "oracle_owner", "partitions")
	return cmd
}

func tablesOutcome(from, to int64) string {
	switch from {
	case 0:
		return created
	case to:
		return wasThere
	}
	return updated
}
