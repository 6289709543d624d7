//go:build cgo

package main

import (
	"errors"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lobsink/lobsink/lobwriter/oracle/standin"
)

// TestOracleScripts runs testdata/oracle as TestScripts runs its own. Each script has
// at $STORE a stand-in for Oracle, without tables: it takes any DDL and shows nothing
// about Oracle.
func TestOracleScripts(t *testing.T) {
	library := t.TempDir()
	if err := standin.Build(library); errors.Is(err, standin.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/oracle",
		UpdateScripts:       *rewrite,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			db, err := standin.Start("127.0.0.1:0")
			if err != nil {
				return err
			}
			env.Defer(db.Close)
			env.Setenv("STORE", "oracle:lobsink@"+db.Connect("DOCS"))
			env.Setenv("LD_LIBRARY_PATH", library)
			env.Setenv("LOBSINK_ORACLE_PASSWORD", "secret")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"code": exitCodeOf, "mask": mask},
	})
}
