package lobtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Sabotage leaves a rule out of a copy of the sources, to show that the tests
// notice. The sources themselves know nothing of it.
type Sabotage struct {
	// Rule is what is left out.
	Rule string
	// Edits leave it out. Where a second rule guards the same, they leave out
	// both: what is shown is that somebody would notice.
	Edits []Edit
	// Run selects the tests that have to notice, as -run of go test does.
	Run string
	// Args are further arguments for those tests.
	Args []string
	// Noticed matches what they must say, so that they do not fail for another
	// reason, such as sources that do not compile.
	Noticed string
}

// Edit replaces a piece of a source file. The path is relative to the package
// whose tests run, and the piece is there exactly once.
type Edit struct{ File, Old, New string }

// Check runs the tests of the package that calls it with the edits made, and
// fails unless they fail. An edit that does not fit the sources any more fails
// with its rule: the sabotage has to follow the code.
func (s Sabotage) Check(t *testing.T) {
	t.Helper()
	args := []string{"test", "-overlay=" + s.overlay(t), "-vet=off", "-count=1", "-failfast", "-timeout=10m", "-run=" + s.Run, ".", "-args"}
	cmd := exec.CommandContext(t.Context(), "go", append(args, s.Args...)...)
	// As the program is built, so most of what is needed is built already.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	switch at := regexp.MustCompile(s.Noticed).FindIndex(out); {
	case err == nil:
		t.Fatalf("nobody noticed that this was left out: %s", s.Rule)
	case at == nil:
		t.Fatalf("without %q the tests failed for another reason than %q:\n%s", s.Rule, s.Noticed, out)
	default:
		begin := strings.LastIndexByte(string(out[:at[0]]), '\n') + 1
		line, _, _ := strings.Cut(string(out[begin:]), "\n")
		t.Log(strings.TrimSpace(line))
	}
}

// overlay writes the edited copies and the file that go test takes them from.
func (s Sabotage) overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for _, e := range s.Edits {
		path, err := filepath.Abs(e.File)
		if err != nil {
			t.Fatal(err)
		}
		copied, edited := replace[path]
		if !edited {
			copied = filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(e.File, "../"), "/", "_"))
		}
		from := path
		if edited {
			from = copied
		}
		source, err := os.ReadFile(from)
		if err != nil {
			t.Fatalf("%q: %v", s.Rule, err)
		}
		if n := strings.Count(string(source), e.Old); n != 1 {
			t.Fatalf("%q: %s has this %d times; the sabotage has to follow the code:\n%s", s.Rule, e.File, n, e.Old)
		}
		replace[path] = copied
		if err := os.WriteFile(copied, []byte(strings.Replace(string(source), e.Old, e.New, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// CheckSabotages checks each sabotage in a subtest; without all only those
// named, which is the short form. Of the others it checks at least that their
// edits fit the sources.
func CheckSabotages(t *testing.T, all bool, list []Sabotage, short ...string) {
	t.Helper()
	for _, s := range list {
		t.Run(s.Rule, func(t *testing.T) {
			named := false
			for _, name := range short {
				named = named || name == s.Rule
			}
			if all || named && !testing.Short() {
				s.Check(t)
			} else {
				s.overlay(t)
			}
		})
	}
	for _, name := range short {
		found := false
		for _, s := range list {
			found = found || name == s.Rule
		}
		if !found {
			t.Errorf("no sabotage is called %q", name)
		}
	}
}
