package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/orascript"
	"github.com/lobsink/lobsink/lobwriter/oracle"
)

// scriptOptions are those of scripts for the Oracle database of cfg.
func (c *Config) scriptOptions() (o orascript.Options, err error) {
	o = orascript.Options{Prefix: c.tables, Partitions: c.DefaultPartitions()}
	if c.OracleOwner != "" {
		if o.Owner, err = orascript.ParseName(c.OracleOwner); err != nil {
			return o, misconfigured("oracle_owner: %w", err)
		}
	}
	return o, nil
}

// oracleScripts are those that make the tables with the given storage choices.
func (c *Config) oracleScripts(choices []string) ([]orascript.Script, error) {
	o, err := c.scriptOptions()
	if err != nil {
		return nil, err
	}
	o.Choices = choices
	scripts, err := orascript.Install(deploy.Oracle(), o)
	return scripts, withCode(exitUsage, err)
}

func (a *app) printOracle(cfg *Config, choices []string, uninstall bool) error {
	scripts, err := cfg.oracleScripts(choices)
	if uninstall && err == nil {
		var o orascript.Options
		if o, err = cfg.scriptOptions(); err == nil {
			scripts, err = orascript.Uninstall(deploy.Oracle(), o)
		}
	}
	if err != nil {
		return err
	}
	return a.printScripts(scripts)
}

func (a *app) printScripts(scripts []orascript.Script) error {
	for _, s := range scripts {
		if _, err := fmt.Fprintf(a.stdout, "-- %s\n\n%s\n", s.Name, s.Text); err != nil {
			return err
		}
	}
	return nil
}

// withOracleSession runs do with a session for administrators.
func withOracleSession(ctx context.Context, cfg *Config, do func(*oracle.Admin) (int64, error)) (version int64, err error) {
	u, err := cfg.storeURL()
	if err != nil {
		return 0, err
	}
	db, err := oracle.OpenAdmin(ctx, cfg.oracleOptions(u))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}

// installedVersion returns the newest migration of the set that scripts are for,
// after those that lead to its schema.
func installedVersion(ctx context.Context, db orascript.Session, scripts []orascript.Script) (int64, error) {
	if scripts[0].Name == orascript.SessionScript {
		if err := orascript.Run(ctx, db, scripts[:1]); err != nil {
			return 0, err
		}
	}
	return db.Version(ctx)
}

// applyOracle makes the tables and the package unless they are there.
func applyOracle(ctx context.Context, cfg *Config, choices []string) (from, to int64, err error) {
	scripts, err := cfg.oracleScripts(choices)
	if err != nil {
		return 0, 0, err
	}
	newest := orascript.Newest(scripts)
	to, err = withOracleSession(ctx, cfg, func(db *oracle.Admin) (int64, error) {
		if from, err = installedVersion(ctx, db, scripts); err != nil {
			return 0, err
		}
		switch {
		case from > newest:
			return from, misconfigured("the tables have version %d, this program knows %d: use a newer one", from, newest)
		case from == newest && len(choices) > 0:
			return from, misconfigured("the tables are there already, storage choices are for those that are not; print the script with lobsink schema print, and run that of the choice by hand")
		case from == newest:
			return from, nil
		}
		if err := orascript.Run(ctx, db, scripts); err != nil {
			return from, err
		}
		return db.Version(ctx)
	})
	return from, to, err
}

func (a *app) schemaGrants() *cobra.Command {
	var user string
	t := orascript.AttachmentText{KeyType: "VARCHAR2"}
	cmd := &cobra.Command{
		Use:   "grants",
		Short: "Print what a DBA grants for Oracle, without a database",
		Long: `Prints the privileges that the owner of the tables needs, and those of the user
that lobsink runs as: to connect, to execute one package, to read three objects.
The owner is --oracle-owner, the user that of --store or --user.`,
		Example: `  lobsink schema grants --store oracle:lobsink_app@//db/docs --oracle-owner lobsink
  lobsink schema grants --store oracle:lobsink_app@//db/docs --oracle-owner lobsink --table app.docs`,
		Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.loadOffline()
			if err != nil {
				return err
			}
			s, err := cfg.oracleGrants(user, t)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.stdout, s.Text)
			return err
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "`name` of the user that lobsink runs as (that of --store)")
	cmd.Flags().StringVar(&t.Table, "table", "", "also for a `table` that documents are attached to")
	a.flags.add(cmd.Flags(), "oracle_owner")
	return cmd
}

func (c *Config) oracleGrants(user string, t orascript.AttachmentText) (s orascript.Script, err error) {
	u, err := c.storeURL()
	if err != nil {
		return s, err
	}
	if !c.isOracle() {
		return s, usage("lobsink schema grants is for Oracle: the privileges for PostgreSQL stand in what lobsink schema print shows")
	}
	o, err := c.scriptOptions()
	if err != nil {
		return s, err
	}
	if user == "" {
		user = u.oracle.user
	}
	if user == "" {
		return s, usage("the user that lobsink runs as is not known: write --user, or --store oracle:USER@CONNECT")
	}
	name, err := orascript.ParseName(user)
	if err != nil {
		return s, usage("--user: %w", err)
	}
	if o.Owner == "" {
		o.Owner = name
	}
	if t.Table != "" {
		// The columns do not matter for privileges.
		t.Key, t.Body, t.Insert = "k", "b", []string{""}
		if o.Attach, err = t.Parse(); err != nil {
			return s, usage("--%w", err)
		}
	}
	return orascript.Grants(deploy.Oracle(), o, name)
}

func (a *app) schemaOptions() *cobra.Command {
	out := newOutput()
	cmd := &cobra.Command{
		Use:   "options",
		Short: "List the storage choices for Oracle, and the licences that they need",
		Long: `Lists what lobsink schema print and apply take as --option. Without one nothing is
used that is licensed apart.`,
		Example: `  lobsink schema options`,
		Args:    arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			choices, err := orascript.Choices(deploy.Oracle())
			if err != nil {
				return err
			}
			return a.showChoices(choices, out)
		},
	}
	out.addFlag(cmd)
	return cmd
}

// choiceView is a storage choice in JSON.
type choiceView struct {
	Name     string   `json:"name"`
	Licence  string   `json:"licence"`
	Summary  string   `json:"summary"`
	Excludes []string `json:"excludes"`
}

func (a *app) showChoices(choices []orascript.Choice, out *output) error {
	list := jsonList{w: a.stdout}
	t := newTable("OPTION", "LICENCE", "WHAT")
	for _, c := range choices {
		if out.json() {
			if err := list.add(choiceView{c.Name, c.Licence, c.Summary, c.Excludes}); err != nil {
				return err
			}
		}
		t.AppendRow(table.Row{c.Name, c.Licence, c.Summary})
	}
	if out.json() {
		return list.end()
	}
	return a.printTable(t)
}

func (a *app) schemaAttach() *cobra.Command {
	var onlyPrint bool
	t := orascript.AttachmentText{}
	cmd := &cobra.Command{
		Use:   "attach --table SCHEMA.TABLE --key COLUMN --body COLUMN",
		Short: "Store the text of documents in a CLOB column of another table (Oracle)",
		Long: `Makes the package write to a table that is there already: one row for each
document, found by its key. lobsink's own tables keep the marks beside it. The names
become part of the package; no SQL is put together at run time.

It needs the tables of lobsink schema apply, without documents in them, and the
privileges of lobsink schema grants --table. The column must be a CLOB of a real
table, the key column must have a unique index of its own: XMLTYPE, NCLOB, BLOB, JSON,
views and tables with security policies are refused.

A row that is not there is inserted with --insert, which may be repeated and sets
other columns to constants, or is empty; without it such a document is refused. A
column that is NULL is filled. Text that somebody else has changed the length of is
found before the next append, and that document is refused. Row triggers do not fire
when a LOB is written: --touch makes an UPDATE with each flush.`,
		Example: `  lobsink schema attach --store oracle:lobsink@//db/docs --table app.docs --key doc_id --body xml_text
  lobsink schema attach --print --store oracle:lobsink@//db/docs --table app.docs --key doc_id \
    --body xml_text --insert "STATUS='NEW'" --touch updated_at`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			load := a.load
			if onlyPrint {
				load = a.loadOffline
			}
			cfg, err := load()
			if err != nil {
				return err
			}
			scripts, err := cfg.attachScripts(t)
			switch {
			case err != nil:
				return err
			case onlyPrint:
				return a.printScripts(scripts)
			}
			if err := attachOracle(cmd.Context(), cfg, scripts); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "documents of %s: attached to %s\n", redact(cfg.Store), t.Table)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&t.Table, "table", "", "the `table`, with its schema")
	f.StringVar(&t.Key, "key", "", "`column` of the document's key")
	f.StringVar(&t.KeyType, "key-type", "VARCHAR2", "`type` of that column: VARCHAR2, CHAR, NUMBER or RAW")
	f.StringVar(&t.Body, "body", "", "`column` of the text, a CLOB")
	f.StringVar(&t.Touch, "touch", "", "`column` that gets the time with each flush")
	f.StringArrayVar(&t.Insert, "insert", nil, "insert rows that are not there, with `COLUMN=VALUE`; may be repeated, or empty")
	f.BoolVar(&onlyPrint, "print", false, "only print the script, without a database")
	a.flags.add(f, "oracle_owner")
	return cmd
}

func (c *Config) attachScripts(t orascript.AttachmentText) ([]orascript.Script, error) {
	if !c.isOracle() {
		return nil, usage("lobsink schema attach is for Oracle")
	}
	o, err := c.scriptOptions()
	if err != nil {
		return nil, err
	}
	if o.Attach, err = t.Parse(); err != nil {
		return nil, usage("--%w", err)
	}
	return orascript.Layout(deploy.Oracle(), o)
}

// attachOracle changes the layout of tables that are there.
func attachOracle(ctx context.Context, cfg *Config, scripts []orascript.Script) error {
	_, err := withOracleSession(ctx, cfg, func(db *oracle.Admin) (int64, error) {
		have, err := installedVersion(ctx, db, scripts)
		if err != nil {
			return 0, err
		}
		if newest := orascript.Newest(scripts); have != newest {
			return 0, misconfigured("the tables have version %d, this program needs %d: run lobsink schema apply first", have, newest)
		}
		return have, orascript.Run(ctx, db, scripts)
	})
	return err
}
