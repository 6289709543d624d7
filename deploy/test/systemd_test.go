package deploytest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// maxExposure is the score of systemd-analyze security that the unit has to keep,
// from 0 to 10. A service without any hardening has 9.6.
const maxExposure = 1.5

// checkUnit has systemd's own tools read the unit.
func checkUnit(path string) error {
	unit, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "unit")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// verify wants the program to exist, and lobsink is not installed here.
	installed := bytes.Replace(unit, []byte("ExecStart=/usr/bin/lobsink "), []byte("ExecStart=/bin/true "), 1)
	if bytes.Equal(unit, installed) {
		return errors.New("the unit does not start /usr/bin/lobsink")
	}
	copied := filepath.Join(dir, filepath.Base(path))
	if err := os.WriteFile(copied, installed, 0o600); err != nil {
		return err
	}
	// It warns of an unknown key, and then ends with 0.
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", copied).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		return fmt.Errorf("systemd-analyze verify: %w\n%s", err, out)
	}
	out, err = exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", copied).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemd-analyze security: %w\n%s", err, out)
	}
	found := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
	if found == nil {
		return fmt.Errorf("systemd-analyze security gives no score:\n%s", out)
	}
	if score, err := strconv.ParseFloat(string(found[1]), 64); err != nil || score > maxExposure {
		return fmt.Errorf("exposure level %g, want at most %g: %w\n%s", score, maxExposure, err, out)
	}
	return nil
}

// misspellUnit misspells each section and each key.
func misspellUnit(content string) (map[string]string, error) {
	return misspellWords(content, func(line string) string {
		if section, ok := strings.CutPrefix(line, "["); ok {
			name, _, _ := strings.Cut(section, "]")
			return name
		}
		key, _, ok := strings.Cut(line, "=")
		if !ok {
			return ""
		}
		return key
	})
}
