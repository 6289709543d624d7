package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/schema"
)

// Setup makes the file, its folder and the tables where they are missing, and
// brings older tables to this program's version. It returns the versions before
// and after: 0 is none. It may run while a store is open.
func Setup(ctx context.Context, o Options) (from, to int64, err error) {
	o = o.withDefaults()
	// What is stored is for the owner and the group, as other databases have it.
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o750); err != nil {
		return 0, 0, classify("set up "+o.Path, err)
	}
	if _, err := stat(o.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, 0, classify("set up "+o.Path, err)
	}
	err = withWriter(o.Path, "rwc", func(db *sql.DB) (err error) {
		from, to, err = schema.Apply(ctx, db, schema.SQLite, deploy.SQLite(), o.Prefix)
		return err
	})
	return from, to, classify("set up "+o.Path, err)
}

// Remove drops the tables, and with them all documents. The file stays. A file
// that is not there is no error.
func Remove(ctx context.Context, o Options) error {
	o = o.withDefaults()
	if _, err := os.Stat(o.Path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	err := withWriter(o.Path, "rw", func(db *sql.DB) error {
		return schema.Remove(ctx, db, schema.SQLite, deploy.SQLite(), o.Prefix)
	})
	return classify("remove the tables from "+o.Path, err)
}

func withWriter(path, mode string, do func(*sql.DB) error) error {
	db, err := openWriter(path, mode)
	if err != nil {
		return err
	}
	return errors.Join(do(db), db.Close())
}
