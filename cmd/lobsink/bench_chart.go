package main

import (
	"encoding/json"
	"os"

	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/internal/bench"
)

// benchChart draws the results of several runs. It made those of the
// documentation.
func (a *app) benchChart() *cobra.Command {
	var x, y, title, file string
	cmd := &cobra.Command{
		Use:   "chart RESULT...",
		Short: "Draw the results of several runs of bench pipeline",
		Long: `Reads results that "bench pipeline -o json" printed, and draws one of their keys
over another, a line for each store.`,
		Example: `  lobsink bench chart --x documents --y fragments_per_second --chart documents.svg *.json`,
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			lines, err := readLines(args, x, y)
			if err != nil {
				return err
			}
			if title == "" {
				title = y + " over " + x
			}
			if err := bench.Lines(file, title, x, y, lines); err != nil {
				return failed("the chart cannot be drawn: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&x, "x", "documents", "`key` of the x axis, which is logarithmic")
	f.StringVar(&y, "y", "fragments_per_second", "`key` of the y axis")
	f.StringVar(&title, "title", "", "`title` of the chart")
	f.StringVar(&file, "chart", "bench.svg", "draw into this `file`, in the format of its ending")
	return cmd
}

// readLines reads results. The points of a line are in the order of the files.
func readLines(files []string, x, y string) ([]bench.Line, error) {
	var lines []bench.Line
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, failed("%w", err)
		}
		var result map[string]any
		if err := json.Unmarshal(text, &result); err != nil {
			return nil, failed("%s is no result of bench pipeline: %w", file, err)
		}
		store, _ := result["store"].(string)
		at, okX := result[x].(float64)
		value, okY := result[y].(float64)
		if !okX || !okY || at <= 0 {
			return nil, failed("%s has no numbers %s and %s", file, x, y)
		}
		i := 0
		for i < len(lines) && lines[i].Name != store {
			i++
		}
		if i == len(lines) {
			lines = append(lines, bench.Line{Name: store})
		}
		lines[i].X, lines[i].Y = append(lines[i].X, at), append(lines[i].Y, value)
	}
	return lines, nil
}
