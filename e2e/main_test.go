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

// lobsink is the path of the binary under test; in the long form it has the race
// detector. plain never has it: it is for tests of memory.
var lobsink, plain string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "lobsink-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	plain = filepath.Join(dir, "lobsink")
	build(plain, "CGO_ENABLED=0")
	if lobsink = plain; *long {
		lobsink = filepath.Join(dir, "lobsink-race")
		build(lobsink, "CGO_ENABLED=1", "-race")
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func build(path, cgo string, flags ...string) {
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", path, "../cmd/lobsink")...)
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
}
