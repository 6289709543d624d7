// Package arrows guards the direction in which packages may import each other.
package arrows

import (
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/lobsink/lobsink"

// standin is the package of what stands in for Oracle in tests, with its program.
const standin = "lobwriter/oracle/standin"

// allowed lists, for each package that a rule is made for, what it may import
// of this module, and which other modules. A rule covers the packages below it
// unless they have their own.
var allowed = []struct {
	pkg    string
	ours   []string
	others []string // nil: any; {}: the standard library only
}{
	{"batcher", nil, []string{}},
	{"lobwriter", []string{"batcher"}, []string{"github.com/cenkalti/backoff/v4", "github.com/prometheus/client_golang"}},
	{"lobwriter/lobtest", []string{"batcher", "lobwriter"}, nil},
	{"lobwriter/sqlite", []string{"batcher", "lobwriter", "deploy", "internal/schema"}, []string{"modernc.org/sqlite", "golang.org/x/sys"}},
	{"lobwriter/oracle", []string{"batcher", "lobwriter", "deploy", "internal/orascript"},
		[]string{"github.com/cenkalti/backoff/v4", "github.com/godror/godror", "github.com/prometheus/client_golang", "golang.org/x/sync"}},
	{"lobwriter/oracle/standin", []string{"lobwriter", "lobwriter/lobtest", standin}, []string{}},
	{"lobwriter/postgres", []string{"batcher", "lobwriter", "deploy", "internal/schema"}, []string{"github.com/jackc"}},
	{"consumer", []string{"batcher", "lobwriter"}, []string{"github.com/nats-io/nats.go", "github.com/cenkalti/backoff/v4", "github.com/prometheus/client_golang"}},
}

// TestArrows: cmd -> consumer -> lobwriter -> batcher, stores do not know each
// other, and nothing that is shipped imports what is made for tests.
func TestArrows(t *testing.T) {
	out, err := exec.Command("go", "list", "-e", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(strings.TrimPrefix(fields[0], module), "/")
		for _, imp := range fields[1:] {
			if why := forbidden(pkg, imp); why != "" {
				t.Errorf("%s imports %s: %s", pkg, imp, why)
			}
		}
	}
}

func forbidden(pkg, imp string) string {
	ours, isOurs := strings.CutPrefix(imp, module+"/")
	if isOurs && (ours == "lobwriter/lobtest" || ours == "internal/pgtest" || strings.HasPrefix(ours, standin)) && pkg != ours && !strings.HasPrefix(pkg, standin) && !strings.HasPrefix(pkg, "e2e") {
		return "it is made for tests"
	}
	if strings.HasPrefix(ours, "cmd/") && isOurs {
		return "nothing imports a command"
	}
	rule := -1
	for i := range allowed {
		if (pkg == allowed[i].pkg || strings.HasPrefix(pkg, allowed[i].pkg+"/")) && (rule < 0 || len(allowed[i].pkg) > len(allowed[rule].pkg)) {
			rule = i
		}
	}
	if rule < 0 {
		return ""
	}
	r := allowed[rule]
	within := func(list []string, p string) bool {
		for _, a := range list {
			if p == a || strings.HasPrefix(p, a+"/") {
				return true
			}
		}
		return false
	}
	switch isStandard := !strings.Contains(strings.SplitN(imp, "/", 2)[0], "."); {
	case isOurs && ours != pkg && !contains(r.ours, ours):
		return "the arrows point from cmd to consumer to lobwriter to batcher"
	case !isOurs && !isStandard && r.others != nil && !within(r.others, imp):
		return "this package stays free of other modules"
	}
	return ""
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}
