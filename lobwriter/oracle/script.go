package oracle

import (
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/lobwriter"
)

// directive is a line of a script that SQL*Plus keeps for itself.
var directive = regexp.MustCompile(`(?i)^(SET|WHENEVER)\s`)

// Statements takes a script of deploy/oracle apart: each statement ends with a line
// that is a slash. Lines for SQL*Plus itself, and comments before a statement, are
// left out.
func Statements(script string) (all []string) {
	var lines []string
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, " \r\n")
		switch {
		case line == "/":
			if len(lines) > 0 {
				all = append(all, strings.Join(lines, "\n"))
			}
			lines = nil
		case len(lines) == 0 && (line == "" || strings.HasPrefix(line, "--") || directive.MatchString(line)):
		default:
			lines = append(lines, line)
		}
	}
	return all
}

// Setup makes the tables and the package, unless they are there and work. It
// returns the versions before, 0 for none, and after.
func (a *Admin) Setup(ctx context.Context) (from, to int64, err error) {
	if from, err = a.Version(ctx); err != nil {
		return 0, 0, err
	}
	if from == schemaVersion {
		if s, err := Open(ctx, a.o); err == nil {
			return from, from, s.Close()
		}
	}
	names, err := fs.Glob(deploy.Oracle(), "[0-9]*.sql")
	if err != nil {
		return from, from, err
	}
	for _, name := range names {
		if err := a.run(ctx, name); err != nil {
			return from, from, err
		}
	}
	wrong, err := a.CompileErrors(ctx)
	if err != nil {
		return from, from, err
	}
	if len(wrong) > 0 {
		return from, from, &lobwriter.Error{Kind: lobwriter.Fatal, Op: "schema",
			Err: fmt.Errorf("%d errors of compilation, the first: %s", len(wrong), wrong[0]), Hint: hintGrants}
	}
	to, err = a.Version(ctx)
	return from, to, err
}

// Remove drops the tables and the package, and with them all documents. What is
// not there is no error.
func (a *Admin) Remove(ctx context.Context) error { return a.run(ctx, "uninstall.sql") }

// run runs a script of deploy/oracle, with the names of this set of objects.
func (a *Admin) run(ctx context.Context, name string) error {
	text, err := fs.ReadFile(deploy.Oracle(), name)
	if err != nil {
		return err
	}
	script := strings.NewReplacer(prefix, a.o.Prefix, strings.ToUpper(prefix), strings.ToUpper(a.o.Prefix)).Replace(string(text))
	for i, statement := range Statements(script) {
		if err := a.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s, statement %d: %w", name, i+1, err)
		}
	}
	return nil
}
