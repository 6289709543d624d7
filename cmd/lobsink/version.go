package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what the Go toolchain noted about this program. What it did not note
// is nil.
type build struct {
	Version  string  `json:"version"`
	Revision *string `json:"revision"`
	Modified *bool   `json:"modified"`
	Time     *string `json:"time"`
	Go       string  `json:"go"`
	OS       string  `json:"os"`
	Arch     string  `json:"arch"`
}

func readBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = &s.Value
		case "vcs.time":
			b.Time = &s.Value
		case "vcs.modified":
			modified := s.Value == "true"
			b.Modified = &modified
		}
	}
	return b
}

// version is the version of this program.
func version() string { return readBuild().Version }

func (a *app) versionCommand() *cobra.Command {
	out := newOutput()
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which lobsink this is",
		Example: `  lobsink version
  lobsink version -o json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			b := readBuild()
			if out.json() {
				return a.printJSON(b)
			}
			revision := "revision unknown"
			if b.Revision != nil {
				revision = "revision " + *b.Revision
				if b.Modified != nil && *b.Modified {
					revision += ", modified"
				}
			}
			_, err := fmt.Fprintf(a.stdout, "lobsink %s (%s, %s, %s/%s)\n", b.Version, revision, b.Go, b.OS, b.Arch)
			return err
		},
	}
	out.addFlag(cmd)
	return cmd
}
