// Package demo makes the documents of `lobsink demo`, and says whether what is
// read back is what was published.
package demo

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/lobsink/lobsink/internal/publish"
	"github.com/lobsink/lobsink/internal/xmlsplit"
)

// Real XML: annotations of the Unicode CLDR (many scripts, emoji) and documents
// of the W3C conformance suite (CDATA, carriage returns, byte order marks,
// document types). Each folder has its notice.
//
//go:embed bundle
var bundle embed.FS

// Options say what the documents are.
type Options struct {
	// Documents and Fragments are the totals of generated rows.
	Documents, Fragments int
	// Size is the bytes of one generated fragment; at least MinSize.
	Size int
	Seed uint64
	// Bundle adds the real XML that comes with lobsink.
	Bundle bool
	// Paths are files and folders of real XML to add.
	Paths []string
	// Room is the most bytes of a fragment.
	Room int
}

// MinSize is the smallest generated fragment: a row without text.
const MinSize = 64

// Validate reports what is wrong with the options.
func (o *Options) Validate() error {
	switch {
	case o.Documents < 0 || o.Fragments < 0:
		return fmt.Errorf("documents and fragments must not be negative")
	case o.Fragments > 0 && o.Documents == 0, o.Fragments < o.Documents:
		return fmt.Errorf("%d fragments cannot be spread over %d documents: give at least one to each", o.Fragments, o.Documents)
	case o.Size < MinSize || o.Size > o.Room:
		return fmt.Errorf("size is %d bytes, must be %d to %d", o.Size, MinSize, o.Room)
	}
	return nil
}

// Workload is a set of documents, the same for the same options.
type Workload struct {
	o     Options
	files []file
}

// file is a real document: what it must be read back as, and its pieces.
type file struct {
	key    string
	data   []byte
	pieces [][]byte
}

// depth cuts real XML into its smallest elements that are not text: in the
// bundle, one annotation each.
const depth = 2

// New makes a workload. It reads the files of Options.Paths.
func New(o Options) (*Workload, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &Workload{o: o}
	if o.Bundle {
		if err := w.walk(bundle, "bundle", "bundle"); err != nil {
			return nil, err
		}
	}
	for _, p := range o.Paths {
		if err := w.walk(os.DirFS(filepath.Dir(p)), filepath.Base(p), filepath.ToSlash(filepath.Dir(filepath.Clean(p)))); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	return w, nil
}

// walk adds the files below a name; keys begin with base.
func (w *Workload) walk(fsys fs.FS, name, base string) error {
	return fs.WalkDir(fsys, name, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(p, ".txt") {
			return err
		}
		data, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		key := p
		if base != "bundle" {
			key = path.Join(base, p)
		}
		f := file{key: key, data: data}
		for piece, err := range xmlsplit.Split(bytes.NewReader(data), xmlsplit.Options{Depth: depth, Limit: w.o.Room}) {
			if err != nil {
				return err
			}
			f.pieces = append(f.pieces, piece)
		}
		if len(f.pieces) == 0 {
			f.pieces = [][]byte{nil}
		}
		w.files = append(w.files, f)
		return nil
	})
}

// Documents is how many documents there are.
func (w *Workload) Documents() int { return w.o.Documents + len(w.files) }

// Fragments is how many fragments there are.
func (w *Workload) Fragments() int {
	n := w.o.Fragments
	for _, f := range w.files {
		n += len(f.pieces)
	}
	return n
}

// rows is how many rows a generated document has.
func (w *Workload) rows(document int) int {
	n := w.o.Fragments / w.o.Documents
	if document < w.o.Fragments%w.o.Documents {
		n++
	}
	return n
}

func rowKey(document int) string { return fmt.Sprintf("report-%d", document) }

// row is the text of a generated fragment. It names its document and its number,
// from 0, so that what is read back can be counted.
func (w *Workload) row(document, number int) []byte {
	b := make([]byte, 0, w.o.Size)
	b = fmt.Appendf(b, `<row d="%d" n="%d">`, document, number)
	rng := rand.New(rand.NewPCG(w.o.Seed, uint64(document)<<32|uint64(number)))
	for len(b) < w.o.Size-len(rowEnd) {
		b = append(b, byte('a'+rng.IntN(26)))
	}
	return append(b, rowEnd...)
}

const rowEnd = "</row>\n"

// Each calls publish for every fragment, interleaved over all documents.
func (w *Workload) Each(do func(publish.Fragment) error) error {
	type source struct {
		key   string
		count int
		at    int
		data  func(i int) []byte
	}
	var open []*source
	for d := range w.o.Documents {
		open = append(open, &source{key: rowKey(d), count: w.rows(d), data: func(i int) []byte { return w.row(d, i) }})
	}
	for _, f := range w.files {
		open = append(open, &source{key: f.key, count: len(f.pieces), data: func(i int) []byte { return f.pieces[i] }})
	}
	rng := rand.New(rand.NewPCG(w.o.Seed, 0))
	for len(open) > 0 {
		i := rng.IntN(len(open))
		s := open[i]
		f := publish.Fragment{Key: s.key, Data: s.data(s.at), Index: uint64(s.at + 1)}
		if s.at++; s.at == s.count {
			f.Final = true
			open[i] = open[len(open)-1]
			open = open[:len(open)-1]
		}
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}
