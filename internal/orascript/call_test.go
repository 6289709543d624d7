package orascript_test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/deploy"
)

// TestSpecificationAndBody: what is declared is what is written out, with the same
// parameters, and these are numbers, text and RAW only (O17: no locator, cursor or
// temporary LOB reaches the client). A parser does not see that.
func TestSpecificationAndBody(t *testing.T) {
	t.Parallel()
	specified := procedures(t, "00002_lobsink_v1.sql", ");")
	written := procedures(t, "00003_lobsink_v1_body.sql", ") IS\n")
	if len(specified) < 15 {
		t.Fatalf("only %d procedures were found", len(specified))
	}
	for name, parameters := range specified {
		if !slices.Equal(parameters, written[name]) {
			t.Errorf("procedure %s has %v in the specification and %v in the body", name, parameters, written[name])
		}
		for _, p := range parameters {
			if !parameter.MatchString(p) {
				t.Errorf("procedure %s: parameter %s is no number, text or RAW", name, p)
			}
		}
	}
	for name := range written {
		if _, there := specified[name]; !there {
			t.Errorf("procedure %s is not in the specification", name)
		}
	}
}

var parameter = regexp.MustCompile(`^p_\w+ (IN|OUT) (NUMBER|VARCHAR2|t_key|t_text|t_num|t_raw)$`)

// procedures returns the parameters of the procedures in a file whose parameters
// stand on lines of their own; end is what follows them. Those for use within the
// package have them on one line.
func procedures(t *testing.T, file, end string) map[string][]string {
	t.Helper()
	text, err := fs.ReadFile(deploy.Oracle(), file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, part := range strings.Split(lineComment.ReplaceAllString(string(text), ""), "\n  PROCEDURE ")[1:] {
		name, rest, _ := strings.Cut(part, "(")
		head, _, found := strings.Cut(rest, end)
		if !found || !strings.HasPrefix(rest, "\n") {
			continue
		}
		for _, p := range strings.Split(head, ",") {
			all[name] = append(all[name], strings.Join(strings.Fields(p), " "))
		}
	}
	return all
}
