package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/lobsink/lobsink/lobwriter"
)

// codes says what the result codes of SQLite mean for the caller. It lists the
// primary codes, the low byte; https://sqlite.org/rescode.html explains them.
// A code that is not here is Transient.
var codes = map[int]struct {
	name string
	kind lobwriter.Kind
	hint string
}{
	sqlite3.SQLITE_PERM:      {"SQLITE_PERM", lobwriter.Fatal, hintAccess},
	sqlite3.SQLITE_BUSY:      {"SQLITE_BUSY", lobwriter.Transient, "another program keeps the database locked"},
	sqlite3.SQLITE_LOCKED:    {"SQLITE_LOCKED", lobwriter.Transient, ""},
	sqlite3.SQLITE_NOMEM:     {"SQLITE_NOMEM", lobwriter.Transient, "the process has no more memory"},
	sqlite3.SQLITE_READONLY:  {"SQLITE_READONLY", lobwriter.Fatal, hintAccess},
	sqlite3.SQLITE_INTERRUPT: {"SQLITE_INTERRUPT", lobwriter.Transient, ""},
	sqlite3.SQLITE_IOERR:     {"SQLITE_IOERR", lobwriter.Transient, "the system log may say what is wrong with the disk"},
	sqlite3.SQLITE_CORRUPT:   {"SQLITE_CORRUPT", lobwriter.Fatal, "the file is damaged: restore it from a backup; lobsink then heals it from the stream"},
	sqlite3.SQLITE_FULL:      {"SQLITE_FULL", lobwriter.Space, "make room on the disk of the database"},
	sqlite3.SQLITE_CANTOPEN:  {"SQLITE_CANTOPEN", lobwriter.Fatal, hintAccess},
	sqlite3.SQLITE_PROTOCOL:  {"SQLITE_PROTOCOL", lobwriter.Transient, ""},
	sqlite3.SQLITE_SCHEMA:    {"SQLITE_SCHEMA", lobwriter.Fatal, hintSchema},
	sqlite3.SQLITE_TOOBIG:    {"SQLITE_TOOBIG", lobwriter.Invalid, ""},
	sqlite3.SQLITE_CONSTRAINT: {"SQLITE_CONSTRAINT", lobwriter.Invalid,
		"another program wrote to the tables"},
	sqlite3.SQLITE_MISMATCH: {"SQLITE_MISMATCH", lobwriter.Invalid, ""},
	sqlite3.SQLITE_MISUSE:   {"SQLITE_MISUSE", lobwriter.Transient, ""},
	sqlite3.SQLITE_NOLFS:    {"SQLITE_NOLFS", lobwriter.Fatal, "the file system takes no large files: move the database"},
	sqlite3.SQLITE_AUTH:     {"SQLITE_AUTH", lobwriter.Fatal, hintAccess},
	sqlite3.SQLITE_FORMAT:   {"SQLITE_FORMAT", lobwriter.Fatal, hintForeign},
	sqlite3.SQLITE_NOTADB:   {"SQLITE_NOTADB", lobwriter.Fatal, hintForeign},
}

const (
	hintAccess  = "the database, the files next to it and their folder must be writable by the user that lobsink runs as"
	hintForeign = "the file is no SQLite database: name another one"
	hintSchema  = "the tables are not those of lobsink: run `lobsink setup`"
)

// classify gives an error its kind. What has one already stays as it is.
func classify(op string, err error) error {
	var fenced *lobwriter.FencedError
	var known *lobwriter.Error
	if err == nil || errors.Is(err, lobwriter.ErrNotFound) || errors.As(err, &fenced) || errors.As(err, &known) {
		return err
	}
	e := &lobwriter.Error{Op: op, Err: err}
	var sqlite *driver.Error
	switch {
	case errors.As(err, &sqlite):
		describe(e, sqlite.Code())
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Kind, e.Hint = lobwriter.Space, codes[sqlite3.SQLITE_FULL].hint
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EROFS):
		e.Kind, e.Hint = lobwriter.Fatal, hintAccess
	case errors.Is(err, syscall.ENOTDIR):
		e.Kind, e.Hint = lobwriter.Fatal, "name a file in a folder"
	}
	return e
}

func describe(e *lobwriter.Error, code int) {
	primary := code & 0xff
	e.Code = fmt.Sprintf("SQLITE_%d", code)
	if c, ok := codes[primary]; ok {
		e.Kind, e.Code, e.Hint = c.kind, c.name, c.hint
	}
	// SQLITE_ERROR is everything else; only the text tells a statement that
	// does not fit the tables.
	text := e.Err.Error()
	if primary == sqlite3.SQLITE_ERROR && (strings.Contains(text, "no such ") || strings.Contains(text, "has no column")) {
		e.Kind, e.Hint = lobwriter.Fatal, hintSchema
	}
}

// unknown is classify for a commit: whatever the error is, the transaction may
// have been committed. Space stays Space, which is repeated as well.
func unknown(op string, err error) error {
	err = classify(op, err)
	var e *lobwriter.Error
	if errors.As(err, &e) && e.Kind != lobwriter.Space {
		e.Kind = lobwriter.Transient
	}
	return err
}

// late names the end of the context as the reason where it is: what fails then
// may only say that its transaction is over.
func late(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}
