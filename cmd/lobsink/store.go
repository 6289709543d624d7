package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/oracle"
	"github.com/lobsink/lobsink/lobwriter/postgres"
	"github.com/lobsink/lobsink/lobwriter/sqlite"
)

// The switch from a store URL to a store: one function for each thing that a
// command does with a database.

// lockStore makes this process the only one that runs on the database, where that
// is how the database is shared; it waits for another one to end. A database that
// many share is not locked.
func lockStore(ctx context.Context, cfg *Config, log *slog.Logger) (release func() error, err error) {
	u, err := cfg.storeURL()
	if err != nil || u.path == "" {
		return func() error { return nil }, err
	}
	// The lock lies next to the file, which may be made only then.
	if err := os.MkdirAll(filepath.Dir(u.path), 0o750); err != nil {
		return nil, misconfigured("the folder of the database cannot be made: %w; correct --store or --data-dir", err)
	}
	return sqlite.Lock(ctx, u.path, func(holder string) {
		log.Warn("another lobsink runs on this database, waiting for its end", "path", u.path, "holder", holder)
	})
}

// openStore opens the store of an owner, which has called lockStore.
func openStore(ctx context.Context, cfg *Config) (lobwriter.Store, error) {
	u, err := cfg.storeURL()
	if err != nil {
		return nil, err
	}
	switch {
	case u.oracle != oracleLogon{}:
		return opened(oracle.Open(ctx, cfg.oracleOptions(u)))
	case u.path == "":
		return opened(postgres.Open(ctx, cfg.postgres(u)))
	}
	o := cfg.sqliteFile(u)
	o.Exclusive = true
	return opened(sqlite.Open(ctx, o))
}

// opened keeps a nil pointer from becoming an interface that is not nil.
func opened[S lobwriter.Store](s S, err error) (lobwriter.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// openReader opens a reader, which works while owners write.
func openReader(ctx context.Context, cfg *Config) (lobwriter.Reader, error) {
	u, err := cfg.storeURL()
	if err != nil {
		return nil, err
	}
	if u.oracle != (oracleLogon{}) {
		r, err := oracle.OpenReader(ctx, cfg.oracleOptions(u))
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	if u.path == "" {
		r, err := postgres.OpenReader(ctx, cfg.postgres(u))
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	r, err := sqlite.OpenReader(ctx, cfg.sqliteFile(u))
	if err != nil {
		return nil, fileError(err)
	}
	return r, nil
}

// setupStore makes the tables, or brings them to this program's version. It
// returns the versions before, 0 for none, and after.
func setupStore(ctx context.Context, cfg *Config) (from, to int64, err error) {
	u, err := cfg.storeURL()
	if err != nil {
		return 0, 0, err
	}
	switch {
	case u.oracle != oracleLogon{}:
		return setupOracle(ctx, cfg.oracleOptions(u))
	case u.path == "":
		return postgres.Setup(ctx, cfg.postgres(u))
	}
	from, to, err = sqlite.Setup(ctx, cfg.sqliteFile(u))
	return from, to, fileError(err)
}

// removeStore drops the tables, and with them all documents.
func removeStore(ctx context.Context, cfg *Config) error {
	u, err := cfg.storeURL()
	if err != nil {
		return err
	}
	switch {
	case u.oracle != oracleLogon{}:
		return removeOracle(ctx, cfg.oracleOptions(u))
	case u.path == "":
		return postgres.Remove(ctx, cfg.postgres(u))
	}
	return sqlite.Remove(ctx, cfg.sqliteFile(u))
}

func (c *Config) postgres(u storeURL) postgres.Options {
	return postgres.Options{URL: u.postgres, Prefix: c.tables, ChunkBytes: int(c.ChunkBytes), Lease: c.Lease, FlushTimeout: c.FlushTimeout,
		Flushes: c.DefaultPartitions()}
}

func (c *Config) sqliteFile(u storeURL) sqlite.Options {
	return sqlite.Options{Path: u.path, Prefix: c.tables, ChunkBytes: int(c.ChunkBytes)}
}

func (c *Config) storeURL() (storeURL, error) {
	u, err := parseStore(c.Store)
	if err != nil {
		return u, misconfigured("store: %w", err)
	}
	return u, nil
}

// fileError has what is transient of a file fail: there is no other machine that
// could be unreachable.
func fileError(err error) error {
	if lobwriter.KindOf(err) == lobwriter.Transient {
		return withCode(exitFailed, err)
	}
	return err
}
