package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/lobwriter"
)

// TestHelp: every command says what it does and has examples, and the examples
// are commands that exist with flags that exist.
func TestHelp(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		if !cmd.Hidden && (cmd.Short == "" || cmd.Example == "") {
			t.Errorf("%s: no description or no example", cmd.CommandPath())
		}
		for line := range strings.Lines(strings.ReplaceAll(cmd.Example, "\\\n", " ")) {
			if err := parses(line); err != nil {
				t.Errorf("%s: example %q: %v", cmd.CommandPath(), strings.TrimSpace(line), err)
			}
		}
	}
	visit(newTestApp().rootCommand())
}

func newTestApp() *app {
	return &app{env: environment{}, stdout: new(bytes.Buffer), stderr: new(bytes.Buffer), flags: newSettingFlags()}
}

// parses checks a line of an example up to its first pipe, redirection or comment.
func parses(line string) error {
	line = strings.TrimSpace(line)
	if i := strings.IndexAny(line, "|>#&"); i >= 0 {
		line = line[:i]
	}
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "lobsink" {
		return nil
	}
	cmd, rest, err := newTestApp().rootCommand().Find(words[1:])
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("anything"), 1},
		{failed("x"), 1},
		{usage("x"), 64},
		{misconfigured("x"), 78},
		{fmt.Errorf("outer: %w", misconfigured("x")), 78},
		{&lobwriter.Error{Kind: lobwriter.Fatal, Err: errors.New("x")}, 78},
		{&lobwriter.Error{Kind: lobwriter.Credentials, Err: errors.New("x")}, 78},
		{&lobwriter.Error{Kind: lobwriter.Transient, Err: errors.New("x")}, 69},
		{&lobwriter.Error{Kind: lobwriter.Space, Err: errors.New("x")}, 1},
		{fmt.Errorf("x: %w", nats.ErrNoServers), 69},
		{fmt.Errorf("%w for good: %w", nats.ErrConnectionClosed, nats.ErrAuthorization), 78},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), 69},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%v: exit %d, want %d", test.err, got, test.want)
		}
	}
	if withCode(exitFailed, nil) != nil {
		t.Error("no error became one")
	}
}

func TestVersion(t *testing.T) {
	var out, errs bytes.Buffer
	// Nothing is read for it, so that it works whatever the settings are.
	code := run(t.Context(), []string{"version", "-o", "json"}, []string{"LOBSINK_LEASE=soon", "LOBSINK_CONFIG=none.yaml"}, &out, &errs)
	var b map[string]any
	if err := json.Unmarshal(out.Bytes(), &b); err != nil || code != exitOK || errs.Len() > 0 {
		t.Fatalf("exit %d, %v, %s%s", code, err, out.String(), errs.String())
	}
	for _, name := range []string{"version", "revision", "modified", "time", "go", "os", "arch"} {
		if _, ok := b[name]; !ok {
			t.Errorf("no %s in %s", name, out.String())
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"lease", "memory", "max_age", "store", "stream"}
	for typed, want := range map[string]string{"leese": "lease", "maxage": "max_age", "memroy": "memory", "stor": "store", "xyz": "", "": ""} {
		if got := nearest(typed, words); got != want {
			t.Errorf("%s: %q, want %q", typed, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"ORDER 1/ä": "ORDER 1/ä", "": `""`, "a\nb": `"a\nb"`, "\x1b[31mred": `"\x1b[31mred"`, "\u202eevil": `"\u202eevil"`,
	} {
		if got := printable(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestStoreURLs(t *testing.T) {
	for text, want := range map[string]storeURL{
		"sqlite:x.db":               {path: "x.db"},
		"sqlite:./d/x y.db":         {path: "./d/x y.db"},
		"sqlite:/var/x.db":          {path: "/var/x.db"},
		"sqlite:///var/x.db":        {path: "/var/x.db"},
		"postgres://bob:pw@db/docs": {postgres: "postgres://bob:pw@db/docs"},
		"postgresql:///docs":        {postgres: "postgresql:///docs"},
	} {
		if got, err := parseStore(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x.db", "sqlite:", "sqlite://x.db", "sqlite::memory:", "sqlite:/var/", "postgres:docs", "postgres://db:x/", "oracle://db", "http://x"} {
		if _, err := parseStore(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
