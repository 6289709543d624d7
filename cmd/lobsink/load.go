package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/spf13/pflag"
)

// settingFlags are the settings that the flags of a command set.
type settingFlags struct {
	config string
	given  map[string]*settingFlag
}

func newSettingFlags() *settingFlags { return &settingFlags{given: map[string]*settingFlag{}} }

// settingFlag is the flag of one setting. It checks its text at once and keeps it
// for load, since flags come last.
type settingFlag struct {
	s    *setting
	text string
	set  bool
}

// Set implements pflag.Value.
func (f *settingFlag) Set(text string) error {
	scratch := defaultConfig()
	f.text, f.set = text, true
	return f.s.value(&scratch).Set(text)
}

// String returns the default, for the help.
func (f *settingFlag) String() string {
	if f.s == nil {
		return "" // pflag asks a zero value
	}
	if f.s.initial != "" {
		return f.s.initial
	}
	c := defaultConfig()
	return f.s.value(&c).String()
}

// Type implements pflag.Value.
func (f *settingFlag) Type() string {
	var c Config
	return f.s.value(&c).Type()
}

// add gives flags to the settings with these keys.
func (f *settingFlags) add(set *pflag.FlagSet, keys ...string) {
	for _, key := range keys {
		s := findSetting(key)
		if f.given[key] == nil {
			f.given[key] = &settingFlag{s: s}
		}
		set.Var(f.given[key], s.flag(), s.help)
	}
}

// load returns the configuration: defaults, then the file, the environment and
// the flags. Every fault is reported. Its exit code is 78; flags are checked
// when they are read, and theirs is 64.
func (a *app) load() (*Config, error) {
	c := defaultConfig()
	var faults []error
	path := a.flags.config
	if path == "" {
		path = a.env["LOBSINK_CONFIG"]
	}
	if path != "" {
		faults = append(faults, loadFile(&c, path)...)
	}
	for i := range settings {
		s := &settings[i]
		if text, ok := a.env[s.variable()]; ok {
			if err := s.value(&c).Set(text); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", s.variable(), err))
			}
		}
		if f := a.flags.given[s.key]; f != nil && f.set {
			if err := s.value(&c).Set(f.text); err != nil {
				faults = append(faults, fmt.Errorf("--%s: %w", s.flag(), err))
			}
		}
	}
	if len(faults) == 0 {
		c.complete()
		if err := c.Validate(); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) > 0 {
		return nil, misconfigured("configuration: %w", errors.Join(faults...))
	}
	return &c, nil
}

// loadFile sets what a YAML file has. Each fault has the position in the file, the
// line and a caret.
func loadFile(c *Config, path string) (faults []error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return []error{err}
	}
	for _, err := range loadYAML(c, content) {
		faults = append(faults, fmt.Errorf("%s: %w", path, err))
	}
	return faults
}

func loadYAML(c *Config, content []byte) (faults []error) {
	file, err := parser.ParseBytes(content, 0)
	if err != nil {
		return []error{err}
	}
	for i, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if i > 0 {
			return append(faults, faultAt(doc.Body.GetToken(), "there is a second document; lobsink reads one"))
		}
		entries, ok := doc.Body.(ast.MapNode)
		if !ok {
			return append(faults, faultAt(doc.Body.GetToken(), "this is not a list of keys and values; write lines such as max_age: 1s"))
		}
		for e := entries.MapRange(); e.Next(); {
			if err := loadEntry(c, e.Key(), e.Value()); err != nil {
				faults = append(faults, err)
			}
		}
	}
	return faults
}

func loadEntry(c *Config, key ast.MapKeyNode, value ast.Node) error {
	name := key.GetToken().Value
	s := findSetting(name)
	if s == nil {
		known := make([]string, len(settings))
		for i := range settings {
			known[i] = settings[i].key
		}
		message := fmt.Sprintf("unknown key %q", name)
		if near := nearest(name, known); near != "" {
			message += fmt.Sprintf("; did you mean %s?", near)
		}
		return faultAt(key.GetToken(), message)
	}
	scalar, ok := value.(ast.ScalarNode)
	if !ok {
		return faultAt(value.GetToken(), fmt.Sprintf("%s takes one value, no list, map or reference", name))
	}
	if _, null := value.(*ast.NullNode); null {
		return faultAt(key.GetToken(), fmt.Sprintf("%s has no value; give it one or leave the line out", name))
	}
	text := scalar.GetToken().Value
	if block, ok := value.(*ast.LiteralNode); ok {
		text = block.Value.Value
	}
	if err := s.value(c).Set(text); err != nil {
		return faultAt(value.GetToken(), fmt.Sprintf("%s: %v", name, err))
	}
	return nil
}

func faultAt(t *token.Token, message string) error {
	return &yaml.SyntaxError{Message: message, Token: t}
}
