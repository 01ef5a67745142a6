package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// listed is a package as go list tells of it.
type listed struct {
	Dir, ImportPath                    string
	Imports, TestImports, XTestImports []string
	TestGoFiles, XTestGoFiles          []string
	Module                             struct{ Dir string }
}

// graph is the packages of a checkout by their import paths, and the checkout's own path.
type graph struct {
	dir      string
	packages map[string]listed
}

// modules are the folders of a checkout that have a module, if they are there.
var modules = []string{".", "deploy/e2e"}

func imports(ctx context.Context, dir string) (g graph, err error) {
	g.packages = map[string]listed{}
	if g.dir, err = filepath.Abs(dir); err != nil {
		return g, err
	}
	for _, module := range modules {
		if _, err := os.Stat(filepath.Join(dir, module, "go.mod")); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := g.list(ctx, filepath.Join(dir, module)); err != nil {
			return g, fmt.Errorf("go list: %w", err)
		}
	}
	return g, nil
}

func (g graph) list(ctx context.Context, dir string) error {
	list := exec.CommandContext(ctx, "go", "list", "-json", "./...")
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		return err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		g.packages[p.ImportPath] = p
	}
}

// closest returns the packages with tests that a change of the package in a folder may reach: its own, then those that
// import it, by the number of imports between them.
func (g graph) closest(folder string) (out []listed) {
	want := filepath.Join(g.dir, folder)
	far := map[string]int{}
	var next []string
	for name, p := range g.packages {
		if p.Dir == want {
			far[name], next = 0, []string{name}
		}
	}
	for steps := 1; len(next) > 0; steps++ {
		var more []string
		for name, p := range g.packages {
			if _, done := far[name]; !done && slices.ContainsFunc(p.Imports, func(i string) bool {
				return slices.Contains(next, i)
			}) {
				more = append(more, name)
			}
		}
		for _, name := range more {
			far[name] = steps
		}
		next = more
	}
	tested := map[string]int{}
	for name, p := range g.packages {
		if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			continue
		}
		if steps, ok := far[name]; ok {
			tested[name] = 2 * steps
		}
		for _, i := range slices.Concat(p.TestImports, p.XTestImports) {
			if steps, ok := far[i]; ok { // a test is farther than the package that it tests
				if had, ok := tested[name]; !ok || had > 2*steps+1 {
					tested[name] = 2*steps + 1
				}
			}
		}
	}
	for name := range tested {
		out = append(out, g.packages[name])
	}
	slices.SortFunc(out, func(a, b listed) int {
		return cmp.Or(cmp.Compare(tested[a.ImportPath], tested[b.ImportPath]), cmp.Compare(a.ImportPath, b.ImportPath))
	})
	return out
}
