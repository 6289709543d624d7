// Package deploy holds what is needed to run lobsink. The program itself takes
// from here the migrations that make its tables.
package deploy

import (
	"embed"
	"io/fs"
)

//go:embed sqlite/*.sql postgres/*.sql oracle/*.sql oracle/options oracle/layouts
var files embed.FS

// SQLite returns the migrations of the SQLite store.
func SQLite() fs.FS { return sub("sqlite") }

// PostgreSQL returns the migrations of the PostgreSQL store.
func PostgreSQL() fs.FS { return sub("postgres") }

// Oracle returns the scripts of the Oracle store: the numbered migrations, those
// that an operator runs at will, storage choices in options and the layouts of text.
func Oracle() fs.FS { return sub("oracle") }

func sub(folder string) fs.FS {
	f, _ := fs.Sub(files, folder) // fails for an invalid name only
	return f
}
