package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/schema"
	"github.com/lobsink/lobsink/lobwriter"
)

// maxReaders is the most connections that read at the same time.
const maxReaders = 4

// file is an open database file: one connection that writes and some that read,
// which in WAL mode do not wait for each other.
type file struct {
	path    string
	prefix  string
	info    os.FileInfo
	readers *sql.DB
	writer  *sql.DB // nil for a Reader
	q       queries // of writer
}

// uri is the name of a file for the driver. The _pragma values are applied
// first, then the others: page_size is ignored once the file is in WAL mode.
func uri(path string, settings ...string) string {
	name := filepath.ToSlash(path)
	switch {
	case filepath.VolumeName(path) != "":
		name = "///" + name // C:/x is file:///C:/x
	case filepath.IsAbs(path):
		name = "//" + name
	default:
		name = "./" + name // :memory: is a file as well
	}
	u := url.URL{Path: name}
	settings = append(settings,
		// How long a statement waits for a lock of another process if its
		// context does not end earlier, in milliseconds.
		"_busy_timeout=10000",
		// "x" is a column, never a string.
		"_dqs=0",
		// An error that belongs to its code, not to an earlier call.
		"_error_rc=1")
	return "file:" + u.EscapedPath() + "?" + strings.Join(settings, "&")
}

// openWriter opens the connection that writes. Transactions take the write lock
// at once, since a transaction that reads first cannot wait for it later.
// Commits are on the disk when they return.
func openWriter(path, mode string) (*sql.DB, error) {
	c, err := sqlite.NewConnector(uri(path, "mode="+mode, "_txlock=immediate", "_synchronous=FULL",
		// 8 KiB pages: a chunk fits into a few, and none is much too large.
		"_pragma=page_size(8192)", "_journal_mode=WAL",
		// Room for the pages of one flush, in KiB, and for undoing one group of it.
		"_pragma=cache_size(-16384)", "_pragma=temp_store(MEMORY)",
		// A WAL that grew behind a slow reader is cut down again, in bytes.
		"_pragma=journal_size_limit(67108864)"))
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(keepWAL{c})
	db.SetMaxOpenConns(1)
	return db, nil
}

// keepWAL opens connections that empty the write-ahead log when they end, but
// leave its file, so that reading needs no right to make one.
type keepWAL struct{ driver.Connector }

func (c keepWAL) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.(sqlite.FileControl).FileControlPersistWAL("main", 1); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// openReaders opens connections that cannot write and never create the file.
func openReaders(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", uri(path, "mode=ro", "_query_only=1"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxReaders)
	db.SetMaxIdleConns(maxReaders)
	return db, nil
}

// openFile opens an existing file with tables of this program's version. They are
// checked before anything can write, so that the file of another program stays as
// it is.
func openFile(ctx context.Context, o Options, write bool) (*file, error) {
	f := &file{path: o.Path, prefix: o.Prefix}
	if err := f.open(ctx, write); err != nil {
		f.close()
		return nil, classify("open "+o.Path, err)
	}
	return f, nil
}

func (f *file) open(ctx context.Context, write bool) (err error) {
	f.info, err = stat(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return missing(f.path, err)
	}
	if err != nil {
		return err
	}
	if f.readers, err = openReaders(f.path); err != nil {
		return err
	}
	if err := schema.Check(ctx, f.readers, schema.SQLite, deploy.SQLite(), f.prefix, setup(f.path)); err != nil {
		return err
	}
	if !write {
		return f.check()
	}
	if f.writer, err = openWriter(f.path, "rw"); err != nil {
		return err
	}
	if f.q, err = prepare(ctx, f.writer, f.prefix); err != nil {
		return err
	}
	// SQLite opens what it may not write without a word, and even begins.
	if _, err := f.writer.ExecContext(ctx, withPrefix("delete from lobsink_leases where false", f.prefix)); err != nil {
		return err
	}
	return f.check()
}

// setup is the command that makes a database.
func setup(path string) string { return "lobsink setup --store sqlite:" + path }

func missing(path string, err error) error {
	return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "open the database", Hint: "run: " + setup(path), Err: err}
}

// stat is os.Stat for what can be a database.
func stat(path string) (os.FileInfo, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, &lobwriter.Error{Kind: lobwriter.Fatal, Op: "open the database",
			Err: fmt.Errorf("%s is no file", path), Hint: "name another one"}
	}
	return info, err
}

// check returns an error if the file that is open has lost its name. What is
// committed to it then is not in the database that people see, and ends with this
// process. A name that is gone may come back; a new owner of it will not go.
func (f *file) check() error {
	now, err := os.Stat(f.path)
	if err == nil && !os.SameFile(f.info, now) {
		return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "look at the database",
			Err: fmt.Errorf("another file has taken the place of %s", f.path),
			Hint: "stop lobsink before a backup is put back, and remove " +
				filepath.Base(f.path) + "-wal and -shm with the old file; then start it again"}
	}
	return err
}

// close closes the writer last: only then is the whole write-ahead log merged into
// the file.
func (f *file) close() (err error) {
	for _, db := range []*sql.DB{f.readers, f.writer} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	return err
}
