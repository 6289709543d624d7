package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func (a *app) manualCommand() *cobra.Command {
	dir := "."
	cmd := &cobra.Command{
		Use:   "man",
		Short: "Write the manual pages",
		Long:  `Writes one page of the manual for each command, for packages.`,
		Example: `  lobsink man --dir /usr/local/share/man/man1
  man lobsink-run`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return failed("the folder of the pages cannot be made: %w; correct --dir", err)
			}
			built := time.Unix(0, 0) // pages of one version are the same, whenever they are written
			header := &doc.GenManHeader{Title: "LOBSINK", Section: "1", Source: "lobsink " + version(), Date: &built}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, header, dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "write to this `folder`")
	return cmd
}
