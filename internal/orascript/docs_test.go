package orascript_test

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/orascript"
)

// TestDocumentation: docs/oracle.md has every error that the store knows and every
// one that the package raises, and every storage choice.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/oracle.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	source, err := os.ReadFile("../../lobwriter/oracle/errors.go")
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`(?s)codes: \[\]int\{(.*?)\}`).FindAllStringSubmatch(withoutComments(string(source)), -1)
	n := 0
	for _, m := range known {
		for _, code := range regexp.MustCompile(`\d+`).FindAllString(m[1], -1) {
			n++
			if want := fmt.Sprintf("ORA-%05s", code); !strings.Contains(text, want) {
				t.Errorf("%s is not explained", want)
			}
		}
	}
	for _, m := range regexp.MustCompile(`"(DPI-\d{4})"`).FindAllStringSubmatch(string(source), -1) {
		n++
		if !strings.Contains(text, m[1]) {
			t.Errorf("%s is not explained", m[1])
		}
	}
	if n < 100 {
		t.Errorf("only %d errors were found", n)
	}
	files := deploy.Oracle()
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		script, err := fs.ReadFile(files, name)
		for _, m := range regexp.MustCompile(`RAISE_APPLICATION_ERROR\(-(\d+)`).FindAllStringSubmatch(string(script), -1) {
			if !strings.Contains(text, "ORA-"+m[1]) {
				t.Errorf("%s: ORA-%s is not explained", name, m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	choices, err := orascript.Choices(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range choices {
		if !strings.Contains(text, "`"+c.Name+"`") {
			t.Errorf("storage choice %s is not explained", c.Name)
		}
	}
}

// withoutComments returns Go source without its comments.
func withoutComments(source string) string {
	return regexp.MustCompile(`//[^\n]*`).ReplaceAllString(source, "")
}
