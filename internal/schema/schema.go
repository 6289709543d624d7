// Package schema makes, checks and removes lobsink's sets of tables.
//
// A set is made by numbered migrations, .sql files in the format of goose. Each
// has a part Up and a part Down. Every object in them has a name that begins
// with Prefix; another prefix gives a second set in the same database.
package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/lobsink/lobsink/lobwriter"
)

// Prefix is what the names of all objects begin with in the migration files.
const Prefix = "lobsink_"

// Dialect is the SQL of a database.
type Dialect string

// The dialects.
const (
	SQLite     Dialect = Dialect(goose.DialectSQLite3)
	PostgreSQL Dialect = Dialect(goose.DialectPostgres)
)

// prefixes are the names that need no quoting in any database, and leave room
// for the longest name of an object within the 63 bytes of PostgreSQL.
var prefixes = regexp.MustCompile(`^[a-z][a-z0-9_]{0,30}_$`)

// Apply brings the set with the given prefix to the newest version in files. It
// returns the version before, 0 where there was no set, and the version after.
// A set that is newer than files is a Fatal error; nothing is changed then.
//
// Several programs may apply at once: one does it, the others find it done.
func Apply(ctx context.Context, db *sql.DB, dialect Dialect, files fs.FS, prefix string) (from, to int64, err error) {
	from, want, err := Version(ctx, db, dialect, files, prefix)
	if err != nil || from == want {
		return from, from, err
	}
	if from > want {
		return from, from, newer(from, want)
	}
	p, err := provider(db, dialect, files, prefix)
	if err != nil {
		return from, from, err
	}
	for have := from; have < want; {
		if _, err = p.Up(ctx); err == nil {
			break
		}
		// Somebody else may be at it: as long as the version rises, it was that.
		now, _, look := Version(ctx, db, dialect, files, prefix)
		if look != nil || now <= have {
			return from, have, fmt.Errorf("set up the tables %s*: %w", prefix, err)
		}
		have = now
	}
	return from, want, nil
}

// Version returns the version that the database has, 0 where there is no set
// with this prefix, and the newest one in files. It changes nothing.
func Version(ctx context.Context, db *sql.DB, dialect Dialect, files fs.FS, prefix string) (have, want int64, err error) {
	p, err := provider(db, dialect, files, prefix)
	if err != nil {
		return 0, 0, err
	}
	for _, s := range p.ListSources() {
		want = max(want, s.Version)
	}
	there, err := exists(ctx, db, dialect, versions(prefix))
	if err != nil || !there {
		return 0, want, err
	}
	store, err := database.NewStore(goose.Dialect(dialect), versions(prefix))
	if err != nil {
		return 0, 0, err
	}
	have, err = store.GetLatestVersion(ctx, db)
	if errors.Is(err, database.ErrVersionNotFound) {
		err = nil
	}
	return have, want, err
}

// Check returns nil if the database has exactly the version that the program
// was made for, and otherwise a Fatal error whose hint is the command that
// helps: setup, such as "lobsink setup --store sqlite:lobsink.db".
func Check(ctx context.Context, db *sql.DB, dialect Dialect, files fs.FS, prefix, setup string) error {
	have, want, err := Version(ctx, db, dialect, files, prefix)
	switch {
	case err != nil:
		return err
	case have > want:
		return newer(have, want)
	case have == 0:
		return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "check the tables", Hint: "run: " + setup,
			Err: fmt.Errorf("there are no tables %s*", prefix)}
	case have < want:
		return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "check the tables", Hint: "run: " + setup,
			Err: fmt.Errorf("the tables %s* have version %d, this program needs %d", prefix, have, want)}
	}
	return nil
}

// Remove drops the set with the given prefix, and all documents in it. A set
// that is not there is no error.
func Remove(ctx context.Context, db *sql.DB, dialect Dialect, files fs.FS, prefix string) error {
	have, want, err := Version(ctx, db, dialect, files, prefix)
	if err != nil {
		return err
	}
	if have > want {
		return newer(have, want)
	}
	if have > 0 {
		p, err := provider(db, dialect, files, prefix)
		if err != nil {
			return err
		}
		if _, err := p.DownTo(ctx, 0); err != nil {
			return fmt.Errorf("remove the tables %s*: %w", prefix, err)
		}
	}
	_, err = db.ExecContext(ctx, "drop table if exists "+versions(prefix))
	return err
}

// versions is the table in which goose keeps which migrations were applied.
func versions(prefix string) string { return prefix + "schema" }

func provider(db *sql.DB, dialect Dialect, files fs.FS, prefix string) (*goose.Provider, error) {
	if !prefixes.MatchString(prefix) {
		return nil, &lobwriter.Error{Kind: lobwriter.Fatal, Op: "name the tables",
			Err:  fmt.Errorf("%q cannot begin the name of a table", prefix),
			Hint: "use up to 32 of a-z, 0-9 and _, a letter first and _ last"}
	}
	options := []goose.ProviderOption{
		goose.WithTableName(versions(prefix)),
		goose.WithLogger(goose.NopLogger()),
		goose.WithDisableGlobalRegistry(true),
	}
	if dialect == PostgreSQL {
		locker, err := lock.NewPostgresSessionLocker()
		if err != nil {
			return nil, err
		}
		options = append(options, goose.WithSessionLocker(locker))
	}
	return goose.NewProvider(goose.Dialect(dialect), db, prefixed{files, prefix}, options...)
}

func exists(ctx context.Context, db *sql.DB, dialect Dialect, table string) (there bool, err error) {
	query := "select count(*) from sqlite_schema where type = 'table' and name = $1"
	if dialect == PostgreSQL {
		query = "select to_regclass($1) is not null"
	}
	err = db.QueryRowContext(ctx, query, table).Scan(&there)
	return there, err
}

func newer(have, want int64) error {
	return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "check the tables",
		Err:  fmt.Errorf("the tables have version %d, this program knows %d", have, want),
		Hint: "a newer lobsink has run `lobsink setup`: use that version of the program"}
}

// prefixed is files whose objects have another prefix.
type prefixed struct {
	fs.FS
	prefix string
}

func (p prefixed) Open(name string) (fs.File, error) {
	f, err := p.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return f, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &renamed{f, strings.NewReader(strings.ReplaceAll(string(text), Prefix, p.prefix))}, nil
}

// renamed is an open file with another content.
type renamed struct {
	fs.File
	content io.Reader
}

func (r *renamed) Read(b []byte) (int, error) { return r.content.Read(b) }
