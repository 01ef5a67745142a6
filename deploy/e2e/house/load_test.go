package house_test

import (
	"encoding/json"
	"errors"
	"fmt"
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
	path    string // below the module
	imports []string
	ignored []string // files that are built on other systems only
	fset    *token.FileSet
	files   []*ast.File
	types   *types.Package
	info    *types.Info
}

// inProgram reports whether a package is part of the program: tools, examples and test support are not.
func (p *pkg) inProgram() bool { return !outside.MatchString(p.path) }

var outside = regexp.MustCompile(`^(deploy|docs)(/|$)|test(/|$)`)

// listed is what the go command reports of a package.
type listed struct {
	ImportPath, Dir, Export          string
	GoFiles, Imports, IgnoredGoFiles []string
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
		p, err := read(fset, imports, l)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
})

// modulePackages returns all packages of the module.
func modulePackages(t *testing.T) []*pkg {
	t.Helper()
	all, err := packages()
	require.NoError(t, err)
	require.Greater(t, len(all), 30)
	return all
}

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

// unread are folders without source of ours: hidden ones, and what make run, make build and make test-clients leave.
var unread = regexp.MustCompile(`^(\..*|data|bin|node_modules)$`)

// list asks the go command for all packages that the module is made of, compiled.
func list() (out []listed, err error) {
	cmd := exec.Command("go", "list", "-export", "-deps",
		"-json=ImportPath,Dir,Export,GoFiles,Imports,IgnoredGoFiles", "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	raw, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(strings.NewReader(string(raw))); ; {
		var l listed
		if err := dec.Decode(&l); err == io.EOF {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
}

// read parses and checks the source of a package.
func read(fset *token.FileSet, imports types.Importer, l listed) (*pkg, error) {
	var files []*ast.File
	for _, name := range l.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(l.Dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	p, err := check(fset, imports, l.ImportPath, files)
	if err == nil {
		p.imports, p.ignored = l.Imports, l.IgnoredGoFiles
	}
	return p, err
}

func check(fset *token.FileSet, imports types.Importer, path string, files []*ast.File) (*pkg, error) {
	p := &pkg{path: strings.TrimPrefix(path, module), fset: fset, files: files, info: &types.Info{
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Types: map[ast.Expr]types.TypeAndValue{},
	}}
	var err error
	p.types, err = (&types.Config{Importer: imports}).Check(path, fset, files, p.info)
	return p, err
}

// fault is one package of a small program that breaks a rule: its path below the module, and its source.
type fault struct{ path, source string }

// planted reads packages that break a rule, so that a test sees the rule's checker report them. Each may import those
// before it, and nothing else.
func planted(t *testing.T, faults ...fault) (out []*pkg) {
	t.Helper()
	fset := token.NewFileSet()
	known := among{}
	for _, f := range faults {
		file, err := parser.ParseFile(fset, f.path+"/a.go", f.source, parser.ParseComments)
		require.NoError(t, err)
		p, err := check(fset, known, module+f.path, []*ast.File{file})
		require.NoError(t, err)
		for _, imported := range p.types.Imports() {
			p.imports = append(p.imports, imported.Path())
		}
		known[module+f.path] = p.types
		out = append(out, p)
	}
	return out
}

// among finds imports in the packages that were read before.
type among map[string]*types.Package

// Import implements types.Importer.
func (a among) Import(path string) (*types.Package, error) {
	if p := a[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s is not planted", path)
}

// declared calls f with each type that a package declares at its top, and its doc comment.
func declared(all []*pkg, f func(p *pkg, spec *ast.TypeSpec, typ types.Type, doc string)) {
	for _, p := range all {
		for _, file := range p.files {
			for _, d := range file.Decls {
				group, ok := d.(*ast.GenDecl)
				if !ok || group.Tok != token.TYPE {
					continue
				}
				for _, s := range group.Specs {
					spec := s.(*ast.TypeSpec)
					f(p, spec, p.info.Defs[spec.Name].Type(), group.Doc.Text()+spec.Doc.Text())
				}
			}
		}
	}
}
