package deploytest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// checkCompose loads a file as docker compose does: schema, variables, and that
// what services refer to is there.
func checkCompose(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	details := types.ConfigDetails{
		WorkingDir:  filepath.Dir(path),
		ConfigFiles: []types.ConfigFile{{Filename: path, Content: content}},
		// What the files ask an operator for.
		Environment: types.Mapping{"POSTGRES_PASSWORD": "secret", "ORACLE_PASSWORD": "secret"},
	}
	project, err := loader.LoadWithContext(context.Background(), details, func(o *loader.Options) {
		o.SetProjectName("folder", false) // where a file has none, it is the folder's
	})
	if err != nil {
		return err
	}
	for _, c := range project.Configs {
		if c.File != "" {
			if _, err := os.Stat(c.File); err != nil {
				return fmt.Errorf("config %s: %w", c.Name, err)
			}
		}
	}
	return nil
}
