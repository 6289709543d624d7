package orascript_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/orascript"
)

// The folder with the parsers, and what skips the tests that need them.
const (
	checkFolder = "../../deploy/oracle/check"
	skipSyntax  = "LOBSINK_SKIP_ORACLE_SYNTAX"
)

// sentence is one statement for a parser.
type sentence struct {
	name   string
	Parser string `json:"parser"`
	Text   string `json:"text"`
	Broken string `json:"broken"`
}

// finding is what a parser says of a sentence, "" for nothing.
type finding struct{ Text, Broken string }

// exceptions are statements that the parsers refuse although they are right, with
// the reason. A parser that takes one makes the test fail, so that the list stays
// short.
var exceptions = map[string]string{
	"ALTER SESSION SET PLSQL_WARNINGS = 'ENABLE:ALL';":                          "the grammar has no literals as values of parameters",
	`ALTER SESSION SET CURRENT_SCHEMA = "APP";`:                                 "the grammar has no quoted names as values of parameters",
	"ALTER SESSION SET COMMIT_WAIT=FORCE_WAIT NLS_COMP=BINARY NLS_SORT=BINARY;": "the grammar has one parameter in a statement; Oracle's documentation has several",
}

// TestSyntax has every script and every statement of the store parsed, and a broken
// copy of each refused. Grammar is all that this shows.
func TestSyntax(t *testing.T) {
	t.Parallel()
	all := append(scriptSentences(t), storeSentences(t)...)
	if len(all) < 60 {
		t.Fatalf("only %d statements were found", len(all))
	}
	for i, f := range parse(t, all) {
		s := all[i]
		why, excepted := exceptions[s.Text]
		switch {
		case f.Text != "" && !excepted:
			t.Errorf("%s (%s): %s\n%s", s.name, s.Parser, f.Text, s.Text)
		case f.Text == "" && excepted:
			t.Errorf("%s is no exception any more (%s)", s.name, why)
		}
		if f.Broken == "" {
			t.Errorf("%s (%s): a broken copy was not refused:\n%s", s.name, s.Parser, s.Broken)
		}
	}
	t.Logf("%d statements", len(all))
}

// parse returns what the parsers say.
func parse(t *testing.T, all []sentence) []finding {
	t.Helper()
	if os.Getenv(skipSyntax) != "" {
		t.Skip(skipSyntax + " is set: Oracle's syntax is not checked")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("Node.js is missing: run `make tools-test`, or set %s=1 to leave this check out", skipSyntax)
	}
	if _, err := os.Stat(filepath.Join(checkFolder, "node_modules", "antlr4ts-sql")); err != nil {
		t.Fatalf("the SQL parsers are missing: run `make tools-test` (npm ci in deploy/oracle/check needs an npm registry), or set %s=1 to leave this check out", skipSyntax)
	}
	input, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, "check.mjs")
	cmd.Dir = checkFolder
	cmd.Stdin = bytes.NewReader(input)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("check.mjs: %v\n%s", err, complaint.String())
	}
	var found []finding
	if err := json.Unmarshal(output, &found); err != nil || len(found) != len(all) {
		t.Fatalf("check.mjs: %d answers for %d statements: %v", len(found), len(all), err)
	}
	return found
}

var dml = regexp.MustCompile(`(?i)^(SELECT|INSERT|UPDATE|DELETE|MERGE)\b`)

// newSentence chooses the parser.
func newSentence(name, text string, procedural bool) sentence {
	switch {
	case procedural:
		return sentence{name, "plsql", text, spoil(text)}
	case dml.MatchString(text):
		return sentence{name, "dml", text, spoil(text)}
	}
	return sentence{name, "plsql", text + ";", spoil(text) + ";"} // the grammar wants one at the end of DDL
}

// scriptSentences returns the statements of all scripts, each in all its forms.
func scriptSentences(t *testing.T) (all []sentence) {
	seen := map[string]bool{}
	for _, s := range everyScript(t) {
		for _, statement := range s.Statements() {
			for i, part := range append([]orascript.Statement{statement}, statement.Embedded()...) {
				if seen[part.Text] {
					continue
				}
				seen[part.Text] = true
				all = append(all, newSentence(fmt.Sprintf("%s:%d", s.Name, part.Line), part.Text, i == 0 && part.IsPLSQL()))
			}
		}
	}
	return all
}

// everyScript returns all scripts that can be made, in short forms.
func everyScript(t *testing.T) (all []orascript.Script) {
	files := deploy.Oracle()
	add := func(scripts []orascript.Script, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, scripts...)
	}
	add(orascript.Install(files, orascript.Options{Owner: "APP", Partitions: 1}))
	choices, err := orascript.Choices(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range choices {
		scripts, err := orascript.Install(files, orascript.Options{Partitions: 2, Choices: []string{c.Name}})
		add(short(scripts), err)
	}
	for _, text := range attachments() {
		a, err := text.Parse()
		if err != nil {
			t.Fatal(err)
		}
		scripts, err := orascript.Layout(files, orascript.Options{Partitions: 1, Attach: a})
		add(short(scripts), err)
		g, err := orascript.Grants(files, orascript.Options{Partitions: 1, Owner: "LOBSINK", Attach: a}, "LOBSINK_APP")
		add([]orascript.Script{g}, err)
	}
	add(orascript.Uninstall(files, orascript.Options{Partitions: 1}))
	return all
}

// short leaves out of a package body what all layouts share: parsing it takes
// seconds.
func short(scripts []orascript.Script) []orascript.Script {
	for i := range scripts {
		s := &scripts[i]
		head, rest, _ := strings.Cut(s.Text, "AS\n\n")
		_, rest, found := strings.Cut(rest, "-- lobsink:body begin\n")
		body, _, _ := strings.Cut(rest, "-- lobsink:body end\n")
		if found {
			s.Text = head + "AS\n\n" + body + "END lobsink_v1;\n/\n"
		}
	}
	return scripts
}

// storeSentences returns what the store, and its tests with a real database, say to
// the database: the string constants in their Go files that are SQL.
func storeSentences(t *testing.T) (all []sentence) {
	names, err := filepath.Glob("../../lobwriter/oracle/*.go")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := filepath.Glob("../../lobwriter/oracle/realtest/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue // these speak to the stand-in
		}
		all = append(all, sentencesIn(t, name)...)
	}
	for _, name := range tests {
		all = append(all, sentencesIn(t, name)...)
	}
	return all
}

// placeholders stand for what a program puts in: a prefix of names, a name, a number.
var placeholders = strings.NewReplacer("{}", "x_", "%s", "x_", "%d", "1")

var sqlBegins = regexp.MustCompile(`^\s*(BEGIN|DECLARE|SELECT|INSERT|UPDATE|DELETE|MERGE|ALTER|CREATE|DROP|GRANT) `)

func sentencesIn(t *testing.T, name string) (all []sentence) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := constant(e)
		text = placeholders.Replace(text)
		if !ok || !sqlBegins.MatchString(text) {
			return true
		}
		all = append(all, newSentence(fmt.Sprintf("%s:%d", filepath.Base(name), files.Position(e.Pos()).Line), text, procedural.MatchString(text)))
		return false
	})
	return all
}

var procedural = regexp.MustCompile(`^\s*(BEGIN|DECLARE|CREATE (OR REPLACE )?(PACKAGE|PROCEDURE|FUNCTION)) `)

// constant returns the value of a string literal, or of a sum with one: what is not
// known in it stands as a name.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		left, known := constant(e.X)
		right, alsoKnown := constant(e.Y)
		if e.Op != token.ADD || !known && !alsoKnown {
			return "", false
		}
		if !known {
			left = "x_"
		}
		if !alsoKnown {
			right = "x_"
		}
		return left + right, true
	}
	return "", false
}

var lineComment = regexp.MustCompile(`--[^\n]*`)

// spoil puts a bracket that nothing has opened near the middle of a statement,
// outside of literals and comments.
func spoil(text string) string {
	text = lineComment.ReplaceAllString(text, "")
	inLiteral := false
	last := -1
	for i, r := range text {
		switch {
		case r == '\'':
			inLiteral = !inLiteral
		case r == ' ' && !inLiteral && (last < 0 || i <= len(text)/2):
			last = i
		}
	}
	if last < 0 {
		return text + ")"
	}
	return text[:last] + " )" + text[last:]
}
