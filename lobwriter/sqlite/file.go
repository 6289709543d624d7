package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/schema"
	"github.com/lobsink/lobsink/lobwriter"
)

// maxReaders is the most connections that read at the same time.
const maxReaders = 4

// file is a database file by its name.
type file struct {
	o     Options
	write bool

	mu   sync.Mutex
	open *handle
}

// handle is an open database file: one connection that writes and some that
// read, which in WAL mode do not wait for each other.
type handle struct {
	path    string
	info    os.FileInfo
	readers *sql.DB
	writer  *sql.DB // nil for a Reader
	q       queries // of writer
}

// uri is the name of a file for the driver. The _pragma values are applied
// first, then the others: page_size is ignored once the file is in WAL mode.
func uri(path string, settings ...string) string {
	slashed := filepath.ToSlash(path)
	if filepath.VolumeName(path) != "" {
		slashed = "/" + slashed // C:/x is file:///C:/x
	}
	u := url.URL{Path: slashed}
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
	db, err := sql.Open("sqlite", uri(path, "mode="+mode, "_txlock=immediate", "_synchronous=FULL",
		// 8 KiB pages: a chunk fits into a few, and none is much too large.
		"_pragma=page_size(8192)", "_journal_mode=WAL",
		// A WAL that grew behind a slow reader is cut down again, in bytes.
		"_pragma=journal_size_limit(67108864)"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
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

// openFile opens an existing file with tables of this program's version.
func openFile(ctx context.Context, o Options, write bool) (*file, error) {
	h, err := openHandle(ctx, o, write)
	if err != nil {
		return nil, classify("open "+o.Path, err)
	}
	return &file{o: o, write: write, open: h}, nil
}

// current returns the file that has the name now. If it was replaced, by a backup
// say, that is another one than before; its fence tells how far it is.
func (f *file) current(ctx context.Context) (*handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open.replaced() == nil {
		return f.open, nil
	}
	if _, err := os.Stat(f.o.Path); err != nil {
		return nil, err // it may come back
	}
	h, err := openHandle(ctx, f.o, f.write)
	if err != nil {
		return nil, err
	}
	f.open.close() // for what is under way, when it ends
	f.open = h
	return h, nil
}

func (f *file) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open.close()
}

// openHandle checks the tables before anything can write, so that the file of
// another program stays as it is.
func openHandle(ctx context.Context, o Options, write bool) (_ *handle, err error) {
	setup := "lobsink setup --store sqlite:" + o.Path
	h := &handle{path: o.Path}
	if h.info, err = os.Stat(o.Path); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = &lobwriter.Error{Kind: lobwriter.Fatal, Op: "open the database", Hint: "run: " + setup, Err: err}
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if h.readers, err = openReaders(o.Path); err != nil {
		return nil, err
	}
	if err = schema.Check(ctx, h.readers, schema.SQLite, deploy.SQLite(), o.Prefix, setup); err != nil {
		return nil, err
	}
	if write {
		if h.writer, err = openWriter(o.Path, "rw"); err != nil {
			return nil, err
		}
		if h.q, err = prepare(ctx, h.writer, o.Prefix); err != nil {
			return nil, err
		}
	}
	return h, h.replaced()
}

// replaced returns an error if another file, or none, has the name now. What is
// committed to this one then is lost with the process.
func (h *handle) replaced() error {
	now, err := os.Stat(h.path)
	if err == nil && !os.SameFile(h.info, now) {
		err = fmt.Errorf("%s was replaced by another file", h.path)
	}
	return err
}

func (h *handle) close() (err error) {
	for _, db := range []*sql.DB{h.writer, h.readers} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	return err
}
