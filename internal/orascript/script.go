// Package orascript prepares the SQL*Plus scripts of deploy/oracle: it chooses and
// renders what a database shall get, and takes scripts apart into the statements
// that a driver executes one by one.
//
// A script is what SQL*Plus and SQLcl run as it is. Every statement in it ends with
// a line that is a slash; plain SQL has no semicolon.
package orascript

import (
	"regexp"
	"strings"
)

// Script is one SQL*Plus script.
type Script struct {
	// Name is its file, or what it is for.
	Name string
	// Version is the number of a migration; 0: it is none.
	Version int64
	Text    string
}

// Statement is one statement of a script.
type Statement struct {
	// Line is where it begins in the script, from 1.
	Line int
	// Text is what a driver executes.
	Text string
}

// directives are the SQL*Plus commands that scripts use. Their effect, apart from
// the format of input, is that a script ends at the first error.
var directives = regexp.MustCompile(`^(SET (DEFINE OFF|SQLBLANKLINES ON)|WHENEVER SQLERROR EXIT FAILURE ROLLBACK)$`)

// Statements takes a script apart. Comments before a statement, and commands of
// SQL*Plus, are left out.
func (s Script) Statements() []Statement {
	var all []Statement
	var lines []string
	begin := 0
	n := 0
	for line := range strings.Lines(s.Text) {
		n++
		line = strings.TrimRight(line, "\r\n\t ")
		switch {
		case line == "/":
			if len(lines) > 0 {
				all = append(all, Statement{begin, strings.Join(lines, "\n")})
			}
			lines = nil
			continue
		case len(lines) == 0 && (line == "" || strings.HasPrefix(line, "--") || directives.MatchString(line)):
			continue
		case len(lines) == 0:
			begin = n
		}
		lines = append(lines, line)
	}
	if len(lines) > 0 { // without its slash SQL*Plus would not run it either
		all = append(all, Statement{begin, strings.Join(lines, "\n")})
	}
	return all
}

var procedural = regexp.MustCompile(`(?i)^(DECLARE|BEGIN|CREATE (OR REPLACE )?(PACKAGE|FUNCTION|PROCEDURE|TRIGGER|TYPE))\b`)

// IsPLSQL reports whether the statement is a block or a unit of PL/SQL. Those keep
// their semicolons.
func (s Statement) IsPLSQL() bool { return procedural.MatchString(s.Text) }

// quoted is text between q'[ and ]'. Scripts use it for statements only.
var quoted = regexp.MustCompile(`(?s)q'\[(.*?)\]'`)

// Embedded returns the statements that a block executes from q'[...]' literals.
func (s Statement) Embedded() []Statement {
	var all []Statement
	for _, m := range quoted.FindAllStringSubmatchIndex(s.Text, -1) {
		text := s.Text[m[2]:m[3]]
		before := s.Text[:m[2]] + text[:len(text)-len(strings.TrimLeft(text, "\n "))]
		all = append(all, Statement{s.Line + strings.Count(before, "\n"), strings.TrimSpace(text)})
	}
	return all
}
