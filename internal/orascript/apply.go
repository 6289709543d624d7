package orascript

import (
	"context"
	"fmt"
)

// Session executes statements on one connection to a database.
type Session interface {
	// Exec executes one statement, and commits.
	Exec(ctx context.Context, statement string) error
	// Version returns the newest migration that was applied; 0: none.
	Version(ctx context.Context) (int64, error)
}

// Newest returns the version that scripts lead to.
func Newest(scripts []Script) (version int64) {
	for _, s := range scripts {
		version = max(version, s.Version)
	}
	return version
}

// Run executes all statements of scripts, up to the first error. A package that
// does not compile is one: the scripts look for that themselves.
func Run(ctx context.Context, db Session, scripts []Script) error {
	for _, s := range scripts {
		for _, statement := range s.Statements() {
			if err := db.Exec(ctx, statement.Text); err != nil {
				return fmt.Errorf("%s, line %d: %w", s.Name, statement.Line, err)
			}
		}
	}
	return nil
}
