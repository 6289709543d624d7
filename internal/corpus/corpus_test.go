package corpus

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFiles: a set takes regular files with its endings, from its folder only.
func TestFiles(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a/x.xml", "a/b/y.xml", "a/b/z.txt", "c/other.xml"} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("x.xml", filepath.Join(root, "a", "link.xml")); err != nil {
		t.Skip(err)
	}
	files, err := Set{Folder: "a", Endings: []string{".xml"}}.Files(root)
	if want := []string{"a/b/y.xml", "a/x.xml"}; err != nil || !slices.Equal(files, want) {
		t.Errorf("%q and %v, want %q", files, err, want)
	}
	if _, err := (Set{Folder: "a", Endings: []string{".svg"}}).Files(root); err == nil {
		t.Error("a set without files is no error")
	}
	if _, err := (Set{Folder: "d"}).Files(root); err == nil {
		t.Error("a set without its folder is no error")
	}
}

// TestFetched: a package that is there is not fetched again.
func TestFetched(t *testing.T) {
	dir := t.TempDir()
	want := filepath.Join(dir, "name-1.0")
	if err := os.Mkdir(want, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := Set{Package: "name@1.0", Client: NPM}.Fetch(t.Context(), dir)
	if root != want || err != nil {
		t.Errorf("%q and %v, want %q", root, err, want)
	}
}
