package house_test

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
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// textFile is one text file of a checkout. Go files are parsed.
type textFile struct {
	Path   string // relative to the checkout, with slashes
	Text   []byte
	Fset   *token.FileSet // nil unless it is a Go file
	Syntax *ast.File
}

// texts are the suffixes, or whole names, of the other files that readTree returns.
var texts = []string{".md", ".sh", "Makefile", "Dockerfile", ".yml", ".yaml"}

// readTree returns the text files below root in the order of their paths. It leaves out folders that Git ignores in
// this repository, hidden folders and recorded data (testdata).
func readTree(root string) ([]textFile, error) {
	var files []textFile
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
		file, err := readFile(fset, name, rel)
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

func readFile(fset *token.FileSet, name, rel string) (textFile, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return textFile{}, err
	}
	return parse(fset, rel, text)
}

// parse returns the file rel with the given text. fset may be nil.
func parse(fset *token.FileSet, rel string, text []byte) (textFile, error) {
	file := textFile{Path: rel, Text: text}
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
func (f textFile) Dir() string { return path.Dir(f.Path) }

// Line returns the number of the line at pos.
func (f textFile) Line(pos token.Pos) int { return f.Fset.Position(pos).Line }

// tree returns the text files of the repository, read once for all rules.
var tree = sync.OnceValues(func() ([]textFile, error) { return readTree(root) })

func repository(t *testing.T) []textFile {
	t.Helper()
	files, err := tree()
	require.NoError(t, err)
	return files
}
