// Package deploytest holds what is under deploy against the formats that it is
// written in, through the libraries and tools that own them. It is a module of its
// own, so that none of them comes near the program.
//
// A check that passes everything is worth nothing. So every key that a file uses
// is misspelt once, in a copy, and each copy has to fail.
package deploytest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the folder of everything that is checked.
const root = ".."

// format is one kind of file.
type format struct {
	// files are patterns below root. Every file belongs to one format.
	files []string
	// check returns what is wrong with a file. Its neighbours are beside it.
	check func(path string) error
	// misspell returns copies of the file's content that are wrong, by what was
	// misspelt.
	misspell func(content string) (map[string]string, error)
	// free are the names that the format leaves to the writer, so that
	// misspelling them breaks nothing by itself: paths of keys, or with "..."
	// their ends. A * is any key.
	free []string
}

var formats = []format{
	{files: []string{"container/Dockerfile"}, check: checkDockerfile, misspell: misspellDockerfile},
	{files: []string{"container/Dockerfile.dockerignore"}, check: checkDockerignore, misspell: misspellLines},
	{files: []string{"compose/*.yaml", "oracle/compose.yaml"}, check: checkCompose, misspell: misspellKeys, free: []string{
		"x-lobsink", "services > *", "... > environment > *",
	}},
	{files: []string{"kubernetes/*.yaml"}, check: checkKubernetes, misspell: misspellKeys, free: []string{
		"metadata > labels > *", "spec > template > metadata > labels > *",
	}},
	{files: []string{"systemd/lobsink.service"}, check: checkUnit, misspell: misspellUnit},
	{files: []string{"prometheus/alerts.yaml"}, check: checkRules, misspell: misspellKeys},
	{files: []string{"prometheus/alerts_test.yaml"}, check: checkRuleTests, misspell: misspellKeys},
	{files: []string{"prometheus/prometheus.yaml"}, check: checkPrometheus, misspell: misspellKeys},
	{files: []string{"grafana/*.json"}, check: checkDashboard, misspell: misspellKeys},
}

// elsewhere is what other tests hold: the migrations are run by the tests of the
// stores, what is Oracle's has its own, and nats.conf is read by the server's own
// code in the tests of cmd/lobsink.
var elsewhere = []string{"*.go", "*/*.sql", "*/*.md", "oracle", "test", "compose/nats.conf"}

// paths returns the files of a format.
func (f *format) paths(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range f.files {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}

// each calls do for every file of every format.
func each(t *testing.T, do func(t *testing.T, f *format, path string)) {
	for i := range formats {
		for _, path := range formats[i].paths(t) {
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(filepath.ToSlash(name), func(t *testing.T) {
				t.Parallel()
				do(t, &formats[i], path)
			})
		}
	}
}

func TestFiles(t *testing.T) {
	each(t, func(t *testing.T, f *format, path string) {
		if err := f.check(path); err != nil {
			t.Error(err)
		}
	})
}

// TestMisspelt misspells every key of every file in turn. A copy that passes means
// that the real file's keys are not checked either.
func TestMisspelt(t *testing.T) {
	each(t, func(t *testing.T, f *format, path string) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		copies, err := f.misspell(string(content))
		if err != nil {
			t.Fatal(err)
		}
		failed := 0
		for what, broken := range copies {
			if isFree(f.free, what) {
				continue
			}
			if f.check(copyWith(t, path, broken)) == nil {
				t.Errorf("%s is misspelt, and nobody notices", what)
			}
			failed++
		}
		if failed == 0 {
			t.Error("nothing was misspelt")
		}
		t.Logf("%d copies with one key misspelt", failed)
	})
}

// isFree reports whether one of the patterns describes the path of a key.
func isFree(patterns []string, key string) bool {
	for _, pattern := range patterns {
		parts, want := strings.Split(key, below), strings.Split(pattern, below)
		if want[0] == "..." && len(parts) >= len(want)-1 {
			want = want[1:]
			parts = parts[len(parts)-len(want):]
		}
		if slices.EqualFunc(parts, want, func(part, want string) bool { return want == "*" || part == want }) {
			return true
		}
	}
	return false
}

// TestEveryFileIsChecked: a new file below deploy has a format.
func TestEveryFileIsChecked(t *testing.T) {
	known := map[string]bool{}
	for i := range formats {
		for _, path := range formats[i].paths(t) {
			known[path] = true
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || known[path] {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, pattern := range elsewhere {
			switch ok, err := filepath.Match(pattern, filepath.ToSlash(name)); {
			case err != nil:
				return err
			case ok && d.IsDir():
				return filepath.SkipDir
			case ok:
				return nil
			}
		}
		if d.IsDir() {
			return nil
		}
		return fmt.Errorf("deploy/%s has no check", name)
	})
	if err != nil {
		t.Error(err)
	}
}
