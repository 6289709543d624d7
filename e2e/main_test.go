package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// long runs the long form: 20 kills per store in place of 5.
var long = flag.Bool("long", false, "run the long form of the fault tests")

// lobsink is the path of the binary under test.
var lobsink string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "lobsink-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lobsink = filepath.Join(dir, "lobsink")
	build := exec.Command("go", "build", "-o", lobsink, "../cmd/lobsink")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}
