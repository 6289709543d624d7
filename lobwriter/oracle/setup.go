package oracle

import (
	"context"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/orascript"
)

// Setup makes the tables and the package where there are none. Others are left as
// they are: their layout was somebody's choice, and a package is not replaced while
// it is in use. It returns the versions before, 0 for none, and after.
func (a *Admin) Setup(ctx context.Context) (from, to int64, err error) {
	if from, err = a.Version(ctx); err != nil {
		return 0, 0, err
	}
	if from > 0 {
		s, err := Open(ctx, a.o)
		if err != nil {
			return from, from, err
		}
		return from, from, s.Close()
	}
	scripts, err := orascript.Install(deploy.Oracle(), a.scripts())
	if err != nil {
		return 0, 0, err
	}
	if err := orascript.Run(ctx, a, scripts); err != nil {
		return 0, 0, err
	}
	to, err = a.Version(ctx)
	return 0, to, err
}

// Remove drops the tables and the package, and with them all documents. What is
// not there is no error.
func (a *Admin) Remove(ctx context.Context) error {
	scripts, err := orascript.Uninstall(deploy.Oracle(), a.scripts())
	if err != nil {
		return err
	}
	return orascript.Run(ctx, a, scripts)
}

func (a *Admin) scripts() orascript.Options {
	return orascript.Options{Prefix: a.o.Prefix, Owner: a.o.owner(), Partitions: 1}
}
