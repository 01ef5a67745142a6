// Package house_test holds the rules of this house that no linter has. It reads the source of all packages of the
// module, and nothing of it is part of the program.
package house_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/turnledger/turnledger/"
	root   = "../../.."
)

// pkg is one package of the module without its tests.
type pkg struct {
	path  string // below the module
	files []*ast.File
	types *types.Package
	info  *types.Info
}

// listed is what the go command tells of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// packages are those of the module, read once for all rules.
var packages = sync.OnceValues(func() ([]*pkg, error) {
	all, err := list()
	if err = errors.Join(err, looked()); err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	exports := map[string]string{}
	for _, l := range all {
		exports[l.ImportPath] = l.Export
	}
	imports := importer.ForCompiler(
		fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) },
	)
	var out []*pkg
	for _, l := range all {
		if !strings.HasPrefix(l.ImportPath, module) {
			continue
		}
		p, err := check(fset, imports, l)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
})

// looked reads all folders of source. The go command takes a cached result of a test for good while the files and
// folders that the test opened are the same; without looked, it would not notice a new file.
func looked() error {
	return filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root && unread.MatchString(d.Name()) {
			err = filepath.SkipDir
		}
		return err
	})
}

// unread are folders without source: hidden ones, and what make run and make build leave.
var unread = regexp.MustCompile(`^(\..*|data|bin)$`)

// list asks the go command for all packages that the module is made of, compiled.
func list() (out []listed, err error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	raw, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(strings.NewReader(string(raw))); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
}

// check reads the source of a package.
func check(fset *token.FileSet, imports types.Importer, l listed) (*pkg, error) {
	p := &pkg{path: strings.TrimPrefix(l.ImportPath, module), info: &types.Info{Defs: map[*ast.Ident]types.Object{}}}
	for _, name := range l.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(l.Dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, f)
	}
	var err error
	p.types, err = (&types.Config{Importer: imports}).Check(l.ImportPath, fset, p.files, p.info)
	return p, err
}

// declared calls f with each type that a package declares at its top, and its doc comment.
func declared(t *testing.T, f func(p *pkg, name string, typ types.Type, doc string)) {
	t.Helper()
	all, err := packages()
	require.NoError(t, err)
	require.Greater(t, len(all), 30)
	for _, p := range all {
		for _, file := range p.files {
			for _, d := range file.Decls {
				group, ok := d.(*ast.GenDecl)
				if !ok || group.Tok != token.TYPE {
					continue
				}
				for _, s := range group.Specs {
					spec := s.(*ast.TypeSpec)
					f(p, spec.Name.Name, p.info.Defs[spec.Name].Type(), group.Doc.Text()+spec.Doc.Text())
				}
			}
		}
	}
}
