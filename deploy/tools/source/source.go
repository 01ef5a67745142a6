// Package source reads a checkout of this repository for the tools that measure it (shape) and for the rules of the
// house (house). It only reads files: it builds nothing and checks no types.
package source

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Class is the purpose of a Go file.
type Class int

// The classes of Go files.
const (
	Production Class = iota // part of the program or of a library that others may import
	Support                 // harnesses and suites that tests of several packages share
	Tool                    // examples, and the tools of this folder
	Test                    // _test.go
)

// File is one text file of a checkout. Go files are parsed.
type File struct {
	Path   string // relative to the checkout, with slashes
	Text   []byte
	Fset   *token.FileSet // nil unless it is a Go file
	Syntax *ast.File
}

// texts are the suffixes, or whole names, of the other files that Read returns.
var texts = []string{".md", ".sh", "Makefile", "Dockerfile", ".yml", ".yaml"}

// Read returns the text files below root in the order of their paths. It leaves out folders that Git ignores in this
// repository, hidden folders and recorded data (testdata).
func Read(root string) ([]File, error) {
	var files []File
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			if rel != "." && left(rel) {
				return fs.SkipDir
			}
			return nil
		}
		if !wanted(rel) {
			return nil
		}
		file, err := read(fset, name, rel)
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		files = append(files, file)
		return nil
	})
	return files, err
}

func left(dir string) bool {
	base := path.Base(dir)
	return strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules" ||
		dir == "bin" || dir == "data" || dir == "secrets"
}

func wanted(rel string) bool {
	if strings.HasSuffix(rel, ".go") {
		return true
	}
	return slices.ContainsFunc(texts, func(end string) bool { return strings.HasSuffix(rel, end) })
}

func read(fset *token.FileSet, name, rel string) (File, error) {
	text, err := os.ReadFile(name) //nolint:gosec // the tools read whatever checkout they are pointed at
	if err != nil {
		return File{}, err
	}
	return Parse(fset, rel, text)
}

// Parse returns the file rel with the given text. fset may be nil.
func Parse(fset *token.FileSet, rel string, text []byte) (File, error) {
	file := File{Path: rel, Text: text}
	if !strings.HasSuffix(rel, ".go") {
		return file, nil
	}
	if fset == nil {
		fset = token.NewFileSet()
	}
	file.Fset = fset
	var err error
	file.Syntax, err = parser.ParseFile(fset, rel, text, parser.ParseComments|parser.SkipObjectResolution)
	return file, err
}

// Dir is the folder of the file, relative to the checkout.
func (f File) Dir() string { return path.Dir(f.Path) }

// Class returns the purpose of a Go file. Test support lies in one folder.
func (f File) Class() Class {
	if strings.HasSuffix(f.Path, "_test.go") {
		return Test
	}
	if strings.HasPrefix(f.Path, "deploy/tools/") || strings.HasPrefix(f.Path, "docs/") {
		return Tool
	}
	if strings.HasPrefix(f.Path, "deploy/testkit/") {
		return Support
	}
	return Production
}

// Line returns the number of the line at pos.
func (f File) Line(pos token.Pos) int { return f.Fset.Position(pos).Line }
