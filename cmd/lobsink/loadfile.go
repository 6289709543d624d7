package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// loadFile sets what a YAML file has, and returns its keys. Every fault is
// returned, with its position in the file, the line, and a caret.
func loadFile(c *Config, path string, env map[string]string) (keys []string, faults []error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, []error{err}
	}
	keys, faults = loadYAML(c, content, env)
	lines := strings.Split(string(content), "\n")
	for i, err := range faults {
		faults[i] = fmt.Errorf("%s: %s", path, inContext(err, lines))
	}
	return keys, faults
}

func loadYAML(c *Config, content []byte, env map[string]string) (keys []string, faults []error) {
	file, err := parser.ParseBytes(content, 0)
	if err != nil {
		return nil, []error{err}
	}
	for i, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if i > 0 {
			return keys, append(faults, faultAt(doc.Start, "there is a second document; lobsink reads one"))
		}
		entries, ok := doc.Body.(ast.MapNode)
		if !ok {
			return nil, []error{faultAt(doc.Body.GetToken(), "this is no list of keys and values; write lines such as max_age: 1s")}
		}
		for e := entries.MapRange(); e.Next(); {
			if err := loadEntry(c, e.Key(), e.Value(), env); err != nil {
				faults = append(faults, err)
			}
			keys = append(keys, e.Key().GetToken().Value)
		}
	}
	return keys, faults
}

func loadEntry(c *Config, key ast.MapKeyNode, value ast.Node, env map[string]string) error {
	name := key.GetToken().Value
	s := findSetting(name)
	if s == nil {
		return faultAt(key.GetToken(), unknownKey(name))
	}
	if _, null := value.(*ast.NullNode); null {
		return faultAt(key.GetToken(), name+" has no value; give it one or leave the line out")
	}
	text, ok := scalarText(value)
	if !ok {
		return faultAt(value.GetToken(), name+" takes one plain value: no list, map, tag or reference")
	}
	text, err := expand(text, env)
	if err == nil {
		err = s.value(c).Set(text)
	}
	if err != nil {
		return faultAt(value.GetToken(), fmt.Sprintf("%s: %v", name, err))
	}
	return nil
}

// scalarText returns a plain value as it is written, without its quotes.
func scalarText(value ast.Node) (text string, ok bool) {
	switch v := value.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return v.GetToken().Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	}
	return "", false
}

func unknownKey(name string) string {
	known := make([]string, len(settings))
	for i := range settings {
		known[i] = settings[i].key
	}
	message := fmt.Sprintf("unknown key %q", name)
	if near := nearest(name, known); near != "" {
		return message + "; did you mean " + near + "?"
	}
	return message + "; the keys are " + strings.Join(known, ", ")
}

func faultAt(t *token.Token, message string) error {
	return &yaml.SyntaxError{Message: message, Token: t}
}

// inContext returns an error of the file as text: [line:column], the message, the
// line, and a caret below the column. Only that line: others may hold passwords
// in forms that nobody knows.
func inContext(err error, lines []string) string {
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil {
		return err.Error()
	}
	p := at.GetToken().Position
	text := fmt.Sprintf("[%d:%d] %s", p.Line, p.Column, at.GetMessage())
	if p.Line < 1 || p.Line > len(lines) {
		return text
	}
	line := []rune(strings.TrimRight(lines[p.Line-1], "\r"))
	before := line[:min(max(p.Column-1, 0), len(line))]
	// Tabs stay, so that the caret stands where the terminal puts the column.
	indent := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, redact(string(before)))
	return fmt.Sprintf("%s\n  %4d | %s\n       | %s^", text, p.Line, redact(string(line)), indent)
}
