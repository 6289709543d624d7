// Package demo makes the documents of `lobsink demo`, and says whether what is
// read back is what was published.
package demo

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"

	"github.com/lobsink/lobsink/consumer"
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
	// Files are paths of real XML to add. Each is in memory as a whole.
	Files []string
	// Room is the most bytes of a fragment.
	Room int
}

// MinSize is the smallest generated fragment: a row without text.
const MinSize = 64

// Validate reports what is wrong with the options.
func (o *Options) Validate() error {
	switch {
	case o.Documents < 0 || o.Fragments < 0:
		return errors.New("documents and fragments must not be negative")
	case o.Fragments < o.Documents, o.Fragments > 0 && o.Documents == 0:
		return fmt.Errorf("%d fragments cannot be spread over %d documents: give at least one to each", o.Fragments, o.Documents)
	case o.Documents == 0 && !o.Bundle && len(o.Files) == 0:
		return errors.New("there are no documents: ask for generated ones or for XML")
	case o.Size < MinSize || o.Size > o.Room:
		return fmt.Errorf("size is %d bytes, must be %d to %d", o.Size, MinSize, o.Room)
	}
	return nil
}

// Workload is a set of documents, the same for the same options.
type Workload struct {
	// LeftOut are the files that cannot be documents, each with the reason.
	LeftOut []string

	o     Options
	files []file
}

// file is a real document: what it must be read back as, and where it is cut.
type file struct {
	key    string
	data   []byte
	pieces [][]byte
}

// depth cuts real XML into small elements: in the annotations of the bundle, one
// each.
const depth = 2

// New makes a workload. It reads the files of Options.Files.
func New(o Options) (*Workload, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &Workload{o: o}
	taken := map[string]bool{}
	for d := range o.Documents {
		taken[rowKey(d)] = true
	}
	add := func(key string, data []byte) error {
		reason := w.refusal(key, data)
		if taken[key] {
			reason = "there is another document with this key"
		}
		if reason != "" {
			w.LeftOut = append(w.LeftOut, key+": "+reason)
			return nil
		}
		taken[key] = true
		pieces, err := cut(data, o.Room)
		w.files = append(w.files, file{key, data, pieces})
		return err
	}
	if o.Bundle {
		if err := eachBundled(add); err != nil {
			return nil, err
		}
	}
	for _, path := range o.Files {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := add(filepath.ToSlash(filepath.Clean(path)), data); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return w, nil
}

// refusal says why a file would not become a complete document; "": it will.
func (w *Workload) refusal(key string, data []byte) string {
	if _, err := consumer.Token(key); err != nil {
		return err.Error()
	}
	if reason := consumer.CheckText(data, math.MaxInt); reason != nil {
		return reason.Text
	}
	return ""
}

// eachBundled calls do for each file of the bundle but the notices.
func eachBundled(do func(key string, data []byte) error) error {
	return fs.WalkDir(bundle, "bundle", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Base(p) == "NOTICE.txt" {
			return err
		}
		data, err := bundle.ReadFile(p)
		if err != nil {
			return err
		}
		return do(p, data)
	})
}

// cut returns the pieces of data, which are parts of it. An empty file is one
// empty piece.
func cut(data []byte, limit int) (pieces [][]byte, err error) {
	rest := data
	for piece, err := range xmlsplit.Split(bytes.NewReader(data), xmlsplit.Options{Depth: depth, Limit: limit}) {
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, rest[:len(piece)])
		rest = rest[len(piece):]
	}
	if len(pieces) == 0 {
		pieces = [][]byte{nil}
	}
	return pieces, nil
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

// Each calls do for every fragment, interleaved over all documents.
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
		f := publish.Fragment{Key: s.key, Data: s.data(s.at)}
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
