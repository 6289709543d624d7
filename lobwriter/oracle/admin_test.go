//go:build cgo

package oracle_test

import (
	"testing"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/orascript"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/oracle"
	"github.com/lobsink/lobsink/lobwriter/oracle/standin"
)

func TestAdmin(t *testing.T) {
	db, err := standin.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	a, err := oracle.OpenAdmin(t.Context(), options(db))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if v, err := a.Version(t.Context()); v != 0 || err != nil {
		t.Errorf("version %d, %v before there are tables", v, err)
	}
	if err := a.Exec(t.Context(), "CREATE OR REPLACE PACKAGE BODY lobsink_v1 AS\nPROCEDURE x IS BEGIN NULL; END;\nEND;"); err != nil {
		t.Error(err)
	}
	if v, err := a.Version(t.Context()); v == 0 || err != nil {
		t.Errorf("version %d, %v", v, err)
	}
	if found, err := a.CompileErrors(t.Context()); len(found) > 0 || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	db.SetCompileErrors([]string{"LOBSINK_V1", "PACKAGE BODY", "12", "3", "PLS-00201: identifier 'X' must be declared\n"})
	found, err := a.CompileErrors(t.Context())
	if err != nil || len(found) != 1 || found[0].String() != "package body LOBSINK_V1, line 12, column 3: PLS-00201: identifier 'X' must be declared" {
		t.Errorf("%v, %v", found, err)
	}
	if err := a.Exec(t.Context(), "FROB"); err == nil {
		t.Error("nonsense is taken")
	}
	open(t, options(db)) // what was installed can be used
}

// TestSetup: the scripts make what a store needs, and remove it, under any prefix.
func TestSetup(t *testing.T) {
	db, err := standin.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	o := options(db)
	o.Prefix, o.Owner = "lobsink_demo_", "docs"
	a, err := oracle.OpenAdmin(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	scripts, err := orascript.Install(deploy.Oracle(), orascript.Options{Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	newest := orascript.Newest(scripts) // what the store says it needs, or opening would fail
	for _, before := range []int64{0, newest} {
		from, to, err := a.Setup(t.Context())
		if from != before || to != newest || err != nil {
			t.Fatalf("from %d to %d, %v", from, to, err)
		}
		open(t, o)
	}
	if db.Schema("lobsink_") != nil {
		t.Error("it has made the tables of another prefix")
	}
	if err := a.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := oracle.Open(t.Context(), o); lobwriter.KindOf(err) != lobwriter.Fatal {
		t.Errorf("after the removal: %v", err)
	}
}
