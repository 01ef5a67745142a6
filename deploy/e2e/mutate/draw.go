package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mostLines bounds the statements that are changed: the text of a longer one holds much besides.
const mostLines = 6

// candidates are the mutations of a tree by kind, and of each kind by function.
type candidates map[string][][]mutation

// draw prints n mutations: the kind is drawn first, then the function, of which there is one at most, so that a package
// has its part by the number of its functions, and rare kinds come, too. Those that do not compile are drawn anew.
func draw(ctx context.Context, dir string, seed uint64, n int, left map[int]bool, out io.Writer) error {
	all := candidates{}
	if err := all.read(dir); err != nil {
		return err
	}
	kinds := slices.Sorted(maps.Keys(all))
	if _, err := fmt.Fprintf(out, "# mutate draw -seed %d -n %d; draws left out: %v.\n", seed, n,
		slices.Sorted(maps.Keys(left))); err != nil {
		return err
	}
	dice := rand.New(rand.NewPCG(seed, 0))
	used := map[string]bool{}
	for drawn, number := 1, 1; number <= n; drawn++ {
		of := all[kinds[dice.IntN(len(kinds))]]
		some := of[dice.IntN(len(of))]
		m := some[dice.IntN(len(some))]
		where := m.File + " " + m.Func
		if used[where] || left[drawn] {
			continue
		}
		if err := compiles(ctx, dir, &m); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		used[where], m.Number = true, number
		number++
		if _, err := fmt.Fprintf(out, "\n# draw %d\n%s", drawn, m.String()); err != nil {
			return err
		}
	}
	return nil
}

// product are the folders of the product. In them, tests and what they stand on are left out: folders whose name ends
// in "test", which held the support of tests in earlier trees.
var product = []string{"cmd", "events", "projections", "services"}

// goFile is a file of a checkout.
type goFile struct {
	path   string
	text   []byte
	fset   *token.FileSet
	syntax *ast.File
}

// read adds the mutations of a checkout, in the order of its files.
func (c candidates) read(dir string) error {
	for _, root := range product {
		err := filepath.WalkDir(filepath.Join(dir, root), func(name string, e fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case e.IsDir() && (strings.HasSuffix(e.Name(), "test") || e.Name() == "testdata"):
				return fs.SkipDir
			case e.IsDir(), !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"):
				return nil
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(dir, name)
			if err != nil {
				return err
			}
			return c.parse(filepath.ToSlash(rel), text)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// parse adds the mutations of a file.
func (c candidates) parse(name string, text []byte) error {
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err == nil {
		c.add(goFile{name, text, fset, syntax})
	}
	return err
}

func (c candidates) add(f goFile) {
	for _, d := range f.syntax.Decls {
		decl, ok := d.(*ast.FuncDecl)
		if !ok || decl.Body == nil {
			continue
		}
		byKind := map[string][]mutation{}
		seen := map[string]int{}
		for _, s := range statements(f.fset, decl.Body) {
			before := strings.TrimSpace(string(f.text[s.from:s.to]))
			seen[before]++
			if strings.Count(before, "\n") >= mostLines || strings.Contains(before, "`") {
				continue
			}
			results, failing := resultsOf(decl, s)
			for _, ch := range changes(s, f.fset, results, failing) {
				byKind[ch.kind] = append(byKind[ch.kind], mutation{
					Kind: ch.kind, File: f.path, Func: nameOf(decl), Nth: seen[before],
					Before: lines(before), After: changed(f, s, ch),
				})
			}
		}
		for kind, some := range byKind {
			c[kind] = append(c[kind], some)
		}
	}
}

// changed returns a statement with a change.
func changed(f goFile, s placed, ch change) []string {
	start, end := f.fset.Position(ch.start).Offset, f.fset.Position(ch.end).Offset
	text := strings.TrimSpace(string(f.text[s.from:start]) + ch.with + string(f.text[end:s.to]))
	if text == "" {
		return nil
	}
	return lines(text)
}

// resultsOf returns how many results the function has that a statement stands in, and whether the last is an error.
func resultsOf(decl *ast.FuncDecl, s placed) (n int, failing bool) {
	of := decl.Type
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		if l, ok := n.(*ast.FuncLit); ok && l.Pos() <= s.Pos() && s.End() <= l.End() && s.Stmt != nil {
			of = l.Type // the innermost comes last
		}
		return true
	})
	if of.Results == nil {
		return 0, false
	}
	for _, field := range of.Results.List {
		n += max(1, len(field.Names))
	}
	last := of.Results.List[len(of.Results.List)-1]
	return n, nameIn(last.Type) == "error"
}
