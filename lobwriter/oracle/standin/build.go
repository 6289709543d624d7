package standin

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
)

//go:embed client/*.c client/*.h
var client embed.FS

// ErrNoCompiler means that there is no C compiler to build the client library.
var ErrNoCompiler = errors.New("there is no C compiler: install gcc and libc6-dev")

// Build builds the client library into a folder, for oracle.Options.ClientDir or
// for LD_LIBRARY_PATH.
func Build(dir string) error {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		return ErrNoCompiler
	}
	src, err := os.MkdirTemp("", "lobsink-standin")
	if err != nil {
		return err
	}
	defer os.RemoveAll(src)
	files, err := fs.ReadDir(client, "client")
	if err != nil {
		return err
	}
	args := []string{"-Wall", "-Wextra", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-o", filepath.Join(dir, "libclntsh.so")}
	for _, f := range files {
		text, err := client.ReadFile(path.Join("client", f.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(src, f.Name()), text, 0o600); err != nil {
			return err
		}
		if filepath.Ext(f.Name()) == ".c" {
			args = append(args, filepath.Join(src, f.Name()))
		}
	}
	if out, err := exec.Command(cc, append(args, "-lpthread")...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cc, err, out)
	}
	return nil
}
