package deploytest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// promtool is Prometheus's own check of its files.
func promtool(dir string, args ...string) error {
	cmd := exec.Command("promtool", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("promtool %v: %w\n%s", args, err, out)
	}
	return nil
}

// checkRules checks the rules, and that their tests still pass: a label of an
// alert is nobody's key, but the tests know it.
func checkRules(path string) error {
	dir, file := filepath.Split(path)
	if err := promtool(dir, "check", "rules", "--lint-fatal", file); err != nil {
		return err
	}
	return promtool(dir, "test", "rules", "alerts_test.yaml")
}

// checkRuleTests runs the tests of the rules. It wants every alert to be tested
// both ways.
func checkRuleTests(path string) error {
	dir, file := filepath.Split(path)
	if err := promtool(dir, "test", "rules", file); err != nil {
		return err
	}
	tests, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	rules, err := readRules(filepath.Join(dir, "alerts.yaml"))
	if err != nil {
		return err
	}
	for _, name := range rules {
		if !bytes.Contains(tests, []byte("alertname: "+name+"\n")) || !bytes.Contains(tests, []byte("alertname: "+name+", exp_alerts: []}")) {
			return fmt.Errorf("%s: no test in which %s fires, or none in which it is silent", path, name)
		}
	}
	return nil
}

// checkPrometheus checks the configuration and what it refers to.
func checkPrometheus(path string) error {
	dir, file := filepath.Split(path)
	return promtool(dir, "check", "config", "--lint-fatal", file)
}

// readRules returns the names of the alerts in a file.
func readRules(path string) (names []string, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert string }
		}
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return nil, err
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
		}
	}
	return names, nil
}
