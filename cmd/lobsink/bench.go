package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/internal/bench"
	"github.com/lobsink/lobsink/lobwriter"
)

// A benchmark has a stream and tables of its own, so that it may run where a real
// deployment is.
const (
	benchStream = "LOBSINK_BENCH"
	benchRoot   = "lobsink-bench"
	benchTables = "lobsink_bench_"
)

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this machine, this database and this NATS server",
		Long: `Measures how fast documents are stored, and compares that with other ways to do
it and with what the machine can do at all. Figures of one run belong together;
those of another machine, or of another hour, are others.

It has a stream and tables of its own, ` + benchStream + ` and ` + benchTables + `*, which it
removes at the end.`,
		Example: `  lobsink bench seed --store postgres://lobsink@db/docs
  lobsink bench pipeline -o json`,
	}
	asGroup(cmd)
	cmd.AddCommand(a.benchSeed(), a.benchPipeline(), a.benchChart(), a.benchServe())
	return cmd
}

// prepareBench returns the configuration of a benchmark. Without a store it is a
// file in a temporary folder, which release removes.
func (a *app) prepareBench(ctx context.Context) (cfg *Config, log *slog.Logger, release func() error, err error) {
	if cfg, err = a.load(); err != nil {
		return nil, nil, nil, err
	}
	if !a.given("log_level") {
		cfg.LogLevel = slog.LevelError // the result is what matters
	}
	log = a.logger(cfg)
	dir, err := os.MkdirTemp("", "lobsink-bench-")
	if err != nil {
		return nil, nil, nil, failed("a benchmark needs a folder: %w", err)
	}
	if cfg.defaultStore() {
		cfg.Store = "sqlite:" + filepath.Join(dir, "lobsink.db")
	}
	cfg.DataDir = dir
	cfg.Stream, cfg.Root, cfg.tables = benchStream, benchRoot, benchTables
	unlock, err := lockStore(ctx, cfg, log)
	if err != nil {
		return nil, nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return cfg, log, func() error { return errors.Join(unlock(), os.RemoveAll(dir)) }, nil
}

// tables are those of a benchmark.
type tables struct{ cfg *Config }

var _ bench.Tables = tables{}

func (t tables) Setup(ctx context.Context) error {
	_, _, err := setupStore(ctx, t.cfg)
	return err
}

func (t tables) Remove(ctx context.Context) error                  { return removeStore(ctx, t.cfg) }
func (t tables) Open(ctx context.Context) (lobwriter.Store, error) { return openStore(ctx, t.cfg) }
func (t tables) OpenReader(ctx context.Context) (lobwriter.Reader, error) {
	return openReader(ctx, t.cfg)
}
func (t tables) Prefix() string { return t.cfg.tables }

// rawSQL is what a benchmark does with a database beside the store: a switch like
// those of store.go.
type rawSQL struct {
	statements  bench.Statements
	instruments bench.Instruments
	close       func() error
}

func openRawSQL(cfg *Config) (*rawSQL, error) {
	u, err := cfg.storeURL()
	if err != nil {
		return nil, err
	}
	if u.oracle != (oracleLogon{}) {
		return nil, misconfigured("benchmarks do not work with Oracle yet")
	}
	open := func(driver, source string) func(context.Context) (*sql.DB, error) {
		return func(context.Context) (*sql.DB, error) {
			db, err := sql.Open(driver, source)
			if err != nil {
				return nil, errors.New("the URL of the database cannot be read") // the cause may have a password in it
			}
			db.SetMaxOpenConns(1)
			return db, nil
		}
	}
	if u.path != "" {
		// As the store has it: durable, with the same pages.
		source := "file:" + filepath.ToSlash(u.path) + "?_busy_timeout=10000&_synchronous=FULL&_pragma=page_size(8192)&_journal_mode=WAL"
		return &rawSQL{
			statements:  bench.SQLiteStatements(cfg.tables, open("sqlite", source)),
			instruments: bench.InProcess{}, close: func() error { return nil },
		}, nil
	}
	if u.oracle != (oracleLogon{}) {
		return &rawSQL{
			statements:  bench.OracleStatements(cfg.tables, func(ctx context.Context) (*sql.DB, error) { return openGodror(ctx, cfg, u.oracle) }),
			instruments: bench.Unknown{}, close: func() error { return nil },
		}, nil
	}
	db, err := open("pgx", u.postgres)(context.Background())
	if err != nil {
		return nil, err
	}
	return &rawSQL{
		statements:  bench.PostgreSQLStatements(cfg.tables, open("pgx", u.postgres)),
		instruments: bench.PostgreSQL{DB: db}, close: db.Close,
	}, nil
}

// openGodror opens a session of its own, as OracleStatements need it. Not run on
// Oracle.
func openGodror(ctx context.Context, cfg *Config, logon oracleLogon) (*sql.DB, error) {
	source := fmt.Sprintf("user=%q connectString=%q standaloneConnection=1", logon.user, logon.connect)
	if p := cfg.oracle; p != nil && p.password != nil {
		password, err := p.password(ctx)
		if err != nil {
			return nil, err
		}
		source += fmt.Sprintf(" password=%q", password)
	}
	db, err := sql.Open("godror", source)
	if err != nil {
		return nil, failed("this build has no driver for Oracle: use one that was built with cgo")
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// note tells on a terminal what is being done.
func (a *app) note(format string, args ...any) {
	if isTerminal(a.stderr) {
		fmt.Fprintf(a.stderr, format+"\n", args...)
	}
}
