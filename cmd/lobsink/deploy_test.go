package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/pflag"
)

// What is under deploy starts this program: with arguments that it has, settings
// that it takes, and time enough to end. The formats themselves are checked in
// deploy/test.

const deployed = "../../deploy"

func readDeployed(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(deployed, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// parse reads a command line and its settings, as the command would.
func parse(args, environ []string) (*Config, error) {
	a := &app{env: newEnvironment(environ), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, flags: newSettingFlags()}
	cmd, rest, err := a.rootCommand().Find(args)
	if err != nil {
		return nil, err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return nil, err
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return nil, err
	}
	return a.load()
}

// wayOut is what ends after drain_timeout and one attempt of the database: the
// member row is removed, the last request is answered.
const wayOut = 10 * time.Second

// drains checks that a run is left the time that its settings may take.
func drains(t *testing.T, cfg *Config, grace time.Duration) {
	t.Helper()
	if need := cfg.DrainTimeout + cfg.FlushTimeout + wayOut; grace < need {
		t.Errorf("it is killed after %s, but drain_timeout and flush_timeout may take it %s", grace, need)
	}
}

// manifest is what a pod of a manifest runs.
type manifest struct {
	Kind string
	Data map[string]string
	Spec struct {
		Template struct {
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct{ Args []string }
			}
		}
	}
}

func readManifests(t *testing.T, name string) (out []manifest) {
	t.Helper()
	for doc := range strings.SplitSeq(readDeployed(t, name), "\n---\n") {
		var m manifest
		if err := yaml.Unmarshal([]byte(doc), &m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func TestDeployKubernetes(t *testing.T) {
	var content string
	for _, m := range readManifests(t, "kubernetes/10-configuration.yaml") {
		if m.Kind == "ConfigMap" {
			content = m.Data["lobsink.yaml"]
		}
	}
	file := filepath.Join(t.TempDir(), "lobsink.yaml")
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	environ := []string{"LOBSINK_STORE=postgres://lobsink:CHANGE-ME@postgres.postgres:5432/docs"}
	pods := 0
	for _, name := range []string{"kubernetes/20-setup.yaml", "kubernetes/30-lobsink.yaml"} {
		for _, m := range readManifests(t, name) {
			pod := m.Spec.Template.Spec
			for _, c := range pod.Containers {
				pods++
				args := slices.Clone(c.Args)
				args[slices.Index(args, "--config")+1] = file
				write(content)
				cfg, err := parse(args, environ)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if args[0] == "run" {
					drains(t, cfg, time.Duration(pod.Grace)*time.Second)
				}
				for _, line := range strings.Split(content, "\n") {
					key, _, ok := strings.Cut(line, ":")
					if !ok || strings.HasPrefix(line, "#") {
						continue
					}
					write(strings.Replace(content, key+":", key[:len(key)-1]+":", 1))
					if _, err := parse(args, environ); exitCode(err) != exitConfig {
						t.Errorf("%s: %s is misspelt: %v", name, key, err)
					}
				}
			}
		}
	}
	if pods != 2 {
		t.Errorf("%d pods, want the setup and the run", pods)
	}
}

func TestDeployCompose(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
			Grace       string                  `yaml:"stop_grace_period"`
			Health      struct{ Test []string } `yaml:"healthcheck"`
		}
	}
	if err := yaml.Unmarshal([]byte(readDeployed(t, "compose/compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"setup", "lobsink"} {
		s := file.Services[name]
		var environ []string
		for key, value := range s.Environment {
			if strings.HasPrefix(key, "LOBSINK_") && !slices.ContainsFunc(settings, func(s setting) bool { return s.variable() == key }) {
				t.Errorf("%s: nothing reads %s", name, key)
			}
			environ = append(environ, key+"="+value)
		}
		cfg, err := parse(s.Command, environ)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if cfg.Embedded() || cfg.sqlite() {
			t.Errorf("%s uses the embedded servers: %+v", name, cfg)
		}
		if name == "lobsink" {
			if health := s.Health.Test; len(health) < 3 || health[1] != "/usr/bin/lobsink" {
				t.Errorf("its health is asked for with %q", health)
			} else if _, err := parse(health[2:], environ); err != nil {
				t.Error(err)
			}
			grace, err := time.ParseDuration(s.Grace)
			if err != nil {
				t.Fatal(err)
			}
			drains(t, cfg, grace)
		}
	}
}

func TestDeploySystemd(t *testing.T) {
	unit := readDeployed(t, "systemd/lobsink.service")
	value := func(key string) string {
		found := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindStringSubmatch(unit)
		if found == nil {
			t.Fatalf("the unit has no %s", key)
		}
		return found[1]
	}
	file := filepath.Join(t.TempDir(), "lobsink.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	command := strings.Fields(value("ExecStart"))
	if command[0] != "/usr/bin/lobsink" || command[len(command)-1] != "/etc/lobsink/lobsink.yaml" {
		t.Errorf("it starts %q", command)
	}
	command[len(command)-1] = file
	cfg, err := parse(command[1:], []string{value("Environment")})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.DataDir != "/var/lib/"+value("StateDirectory") {
		t.Errorf("data_dir is %s, which the unit does not make", cfg.DataDir)
	}
	grace, err := time.ParseDuration(value("TimeoutStopSec"))
	if err != nil {
		t.Fatal(err)
	}
	drains(t, cfg, grace)
	if want := fmt.Sprint(exitUsage, exitConfig); value("RestartPreventExitStatus") != want {
		t.Errorf("starting again does not help after %s, not %s", want, value("RestartPreventExitStatus"))
	}
}

// TestDeployNATS has the server read its configuration, and a copy with each key
// misspelt.
func TestDeployNATS(t *testing.T) {
	content := readDeployed(t, "compose/nats.conf")
	file := filepath.Join(t.TempDir(), "nats.conf")
	read := func(content string) (*server.Options, error) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return server.ProcessConfigFile(file)
	}
	o, err := read(content)
	if err != nil {
		t.Fatal(err)
	}
	if !o.JetStream || !o.SyncAlways || int64(o.MaxPayload) < defaultConfig().MaxFragmentBytes {
		t.Errorf("JetStream %v, sync_interval always %v, max_payload %d", o.JetStream, o.SyncAlways, o.MaxPayload)
	}
	keys := regexp.MustCompile(`(?m)^ *([a-z_]+)(:| \{)`).FindAllStringSubmatch(content, -1)
	for _, key := range keys {
		broken := strings.Replace(content, key[0], strings.Replace(key[0], key[1], key[1][:len(key[1])-1], 1), 1)
		if _, err := read(broken); err == nil {
			t.Errorf("%s is misspelt, and the server takes it", key[1])
		}
	}
	if len(keys) < 5 {
		t.Errorf("only %d keys were misspelt", len(keys))
	}
}

// TestDeployRunbooks: every alert has a page, every page an alert, and what a page
// tells an operator to type is there.
func TestDeployRunbooks(t *testing.T) {
	const runbooks = "../../docs/runbook"
	pages := map[string]bool{}
	found, err := filepath.Glob(filepath.Join(runbooks, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		name := strings.TrimSuffix(filepath.Base(path), ".md")
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range regexp.MustCompile(`(?m)^lobsink .*$`).FindAllString(string(content), -1) {
			command, _, _ := strings.Cut(line, " #")
			if _, err := parse(strings.Fields(command)[1:], nil); err != nil && !errors.Is(err, pflag.ErrHelp) {
				t.Errorf("%s: %s: %v", name, command, err)
			}
		}
		if name == "README" {
			continue
		}
		pages[name] = true
		if !strings.HasPrefix(string(content), "# "+name+"\n") {
			t.Errorf("%s does not begin with its name", path)
		}
	}
	index := string(readFile(t, filepath.Join(runbooks, "README.md")))
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(readDeployed(t, "prometheus/alerts.yaml"), -1)
	for _, a := range alerts {
		if !pages[a[1]] {
			t.Errorf("no page docs/runbook/%s.md", a[1])
		}
		if !strings.Contains(readDeployed(t, "prometheus/alerts.yaml"), "/docs/runbook/"+a[1]+".md\n") {
			t.Errorf("no runbook_url for %s", a[1])
		}
		if !strings.Contains(index, "["+a[1]+"]("+a[1]+".md)") {
			t.Errorf("docs/runbook/README.md does not lead to %s", a[1])
		}
		delete(pages, a[1])
	}
	if len(pages) > 0 || len(alerts) == 0 {
		t.Errorf("%d alerts; pages without one: %v", len(alerts), slices.Collect(maps.Keys(pages)))
	}
}
