package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/cobra/doc"
)

// TestReference: docs/cli has a page for each command, as --help has it. With
// -args -rewrite they are written.
func TestReference(t *testing.T) {
	root := newTestApp().rootCommand()
	root.DisableAutoGenTag = true
	dir := t.TempDir()
	if err := doc.GenMarkdownTree(root, dir); err != nil {
		t.Fatal(err)
	}
	want, committed := pages(t, dir), filepath.Join("..", "..", "docs", "cli")
	if *rewrite {
		if err := os.RemoveAll(committed); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(committed, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	got := pages(t, committed)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("docs/cli/%s is not what the command says; write it with: go test ./cmd/lobsink -run TestReference -args -rewrite", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("docs/cli/%s is of no command", name)
		}
	}
}

// pages returns the files of a folder.
func pages(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[f.Name()] = string(text)
	}
	return out
}
