package sqlite

import (
	"context"
	"errors"
	"os"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/schema"
)

// Version returns the version that the tables have, 0 where there are none, and
// the one that this program needs. It changes nothing; a file that is not there is
// an error.
func Version(ctx context.Context, o Options) (have, want int64, err error) {
	o = o.withDefaults()
	if _, err := stat(o.Path); errors.Is(err, os.ErrNotExist) {
		return 0, 0, missing(o.Path, err)
	} else if err != nil {
		return 0, 0, classify("open "+o.Path, err)
	}
	db, err := openReaders(o.Path)
	if err != nil {
		return 0, 0, classify("open "+o.Path, err)
	}
	have, want, err = schema.Version(ctx, db, schema.SQLite, deploy.SQLite(), o.Prefix)
	return have, want, classify("read the version of "+o.Path, errors.Join(err, db.Close()))
}
