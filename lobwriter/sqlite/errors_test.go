package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/lobsink/lobsink/lobwriter"
)

// TestCodes: what each result code of SQLite means for the caller.
func TestCodes(t *testing.T) {
	for _, tt := range []struct {
		code int
		text string
		name string
		kind lobwriter.Kind
		hint bool
	}{
		{sqlite3.SQLITE_BUSY, "database is locked", "SQLITE_BUSY", lobwriter.Transient, true},
		{sqlite3.SQLITE_BUSY_SNAPSHOT, "database is locked", "SQLITE_BUSY", lobwriter.Transient, true},
		{sqlite3.SQLITE_LOCKED, "database table is locked", "SQLITE_LOCKED", lobwriter.Transient, false},
		{sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error", "SQLITE_IOERR", lobwriter.Transient, true},
		{sqlite3.SQLITE_INTERRUPT, "interrupted", "SQLITE_INTERRUPT", lobwriter.Transient, false},
		{sqlite3.SQLITE_NOMEM, "out of memory", "SQLITE_NOMEM", lobwriter.Transient, true},
		{sqlite3.SQLITE_PROTOCOL, "locking protocol", "SQLITE_PROTOCOL", lobwriter.Transient, false},
		{sqlite3.SQLITE_FULL, "database or disk is full", "SQLITE_FULL", lobwriter.Space, true},
		{sqlite3.SQLITE_CANTOPEN, "unable to open database file", "SQLITE_CANTOPEN", lobwriter.Fatal, true},
		{sqlite3.SQLITE_NOTADB, "file is not a database", "SQLITE_NOTADB", lobwriter.Fatal, true},
		{sqlite3.SQLITE_CORRUPT, "database disk image is malformed", "SQLITE_CORRUPT", lobwriter.Fatal, true},
		{sqlite3.SQLITE_READONLY_DIRECTORY, "attempt to write a readonly database", "SQLITE_READONLY", lobwriter.Fatal, true},
		{sqlite3.SQLITE_PERM, "access permission denied", "SQLITE_PERM", lobwriter.Fatal, true},
		{sqlite3.SQLITE_SCHEMA, "database schema has changed", "SQLITE_SCHEMA", lobwriter.Fatal, true},
		{sqlite3.SQLITE_ERROR, "no such table: lobsink_fences", "SQLITE_1", lobwriter.Fatal, true},
		{sqlite3.SQLITE_ERROR, "table lobsink_chunks has no column named body", "SQLITE_1", lobwriter.Fatal, true},
		{sqlite3.SQLITE_ERROR, "cannot rollback - no transaction is active", "SQLITE_1", lobwriter.Transient, false},
		{sqlite3.SQLITE_CONSTRAINT_UNIQUE, "UNIQUE constraint failed", "SQLITE_CONSTRAINT", lobwriter.Invalid, true},
		{sqlite3.SQLITE_TOOBIG, "string or blob too big", "SQLITE_TOOBIG", lobwriter.Invalid, false},
		{sqlite3.SQLITE_MISMATCH, "datatype mismatch", "SQLITE_MISMATCH", lobwriter.Invalid, false},
		{99, "a code of the future", "SQLITE_99", lobwriter.Transient, false},
	} {
		e := &lobwriter.Error{Op: "flush", Err: errors.New(tt.text)}
		describe(e, tt.code)
		if e.Kind != tt.kind || e.Code != tt.name || (e.Hint != "") != tt.hint {
			t.Errorf("%d %s: kind %v, code %s, hint %q", tt.code, tt.text, e.Kind, e.Code, e.Hint)
		}
	}
}

func TestClassify(t *testing.T) {
	held := &lobwriter.Error{Kind: lobwriter.Held, Op: "claim", Err: errors.New("held")}
	for _, tt := range []struct {
		err             error
		kind, committed lobwriter.Kind // the latter after a commit
	}{
		{&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, lobwriter.Space, lobwriter.Space},
		{&os.PathError{Op: "write", Path: "x", Err: syscall.EDQUOT}, lobwriter.Space, lobwriter.Space},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, lobwriter.Fatal, lobwriter.Transient},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, lobwriter.Fatal, lobwriter.Transient},
		{&os.PathError{Op: "mkdir", Path: "x/y", Err: syscall.ENOTDIR}, lobwriter.Fatal, lobwriter.Transient},
		{&os.PathError{Op: "stat", Path: "x", Err: syscall.ENOENT}, lobwriter.Transient, lobwriter.Transient},
		{context.DeadlineExceeded, lobwriter.Transient, lobwriter.Transient},
		{&lobwriter.FencedError{}, lobwriter.Fenced, lobwriter.Fenced},
		{fmt.Errorf("so: %w", held), lobwriter.Held, lobwriter.Held},
		{errors.New("what nobody knows"), lobwriter.Transient, lobwriter.Transient},
	} {
		err := classify("flush", tt.err)
		if lobwriter.KindOf(err) != tt.kind || !errors.Is(err, tt.err) {
			t.Errorf("%v: kind %v, want %v", err, lobwriter.KindOf(err), tt.kind)
		}
		if tt.kind == lobwriter.Fenced || tt.kind == lobwriter.Held {
			continue // no answers of a commit
		}
		if err := unknown("flush", tt.err); lobwriter.KindOf(err) != tt.committed {
			t.Errorf("%v after a commit: kind %v, want %v", err, lobwriter.KindOf(err), tt.committed)
		}
	}
	if classify("flush", nil) != nil {
		t.Error("no error became one")
	}
}
