package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// placed is a statement of a function: its text goes up to its body, if it has one.
type placed struct {
	ast.Stmt
	from, to int // offsets in the file
}

// statements returns the statements of a function in their order. The first and the last clause of an if, a for or a
// switch are a part of it.
func statements(fset *token.FileSet, body ast.Node) (out []placed) {
	part := map[ast.Stmt]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		s, ok := n.(ast.Stmt)
		if !ok || part[s] {
			return true
		}
		end := s.End()
		switch s := s.(type) {
		case *ast.BlockStmt, *ast.LabeledStmt, *ast.EmptyStmt, *ast.SelectStmt:
			return true
		case *ast.IfStmt:
			part[s.Init], end = true, s.Body.Lbrace
		case *ast.ForStmt:
			part[s.Init], part[s.Post], end = true, true, s.Body.Lbrace
		case *ast.RangeStmt:
			end = s.Body.Lbrace
		case *ast.SwitchStmt:
			part[s.Init], end = true, s.Body.Lbrace
		case *ast.TypeSwitchStmt:
			part[s.Init], part[s.Assign], end = true, true, s.Body.Lbrace
		case *ast.CaseClause:
			end = s.Colon
		case *ast.CommClause:
			part[s.Comm], end = true, s.Colon
		}
		out = append(out, placed{s, fset.Position(s.Pos()).Offset, fset.Position(end).Offset})
		return true
	})
	return out
}

// nameOf returns the name of a function in a list.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of, star := f.Recv.List[0].Type, ""
	if p, ok := of.(*ast.StarExpr); ok {
		of, star = p.X, "*"
	}
	switch x := of.(type) {
	case *ast.IndexExpr:
		of = x.X
	case *ast.IndexListExpr:
		of = x.X
	}
	return fmt.Sprintf("(%s%s).%s", star, of.(*ast.Ident).Name, f.Name.Name)
}

var (
	errNowhere = errors.New("no function has this statement any more")
	errTwice   = errors.New("the function is gone, and several others have this statement")
)

// found is a mutation in a tree: the file with its new text.
type found struct{ file, text string }

// find looks for the mutation's statement: in its file; else in its folder, and then in the whole tree, in a function
// that has the name of its own, if that is the only one.
func (m *mutation) find(dir string) (found, error) {
	if at, ok := m.in(dir, m.File); ok {
		return at, nil
	}
	for _, root := range []string{filepath.Dir(m.File), "."} {
		var all []found
		err := filepath.WalkDir(filepath.Join(dir, root), func(name string, e fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case e.IsDir() && strings.HasPrefix(e.Name(), ".") && e.Name() != ".":
				return fs.SkipDir
			case e.IsDir(), !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"):
				return nil
			}
			rel, err := filepath.Rel(dir, name)
			if at, ok := m.in(dir, filepath.ToSlash(rel)); ok {
				all = append(all, at)
			}
			return err
		})
		switch {
		case err != nil:
			return found{}, err
		case len(all) == 1:
			return all[0], nil
		case len(all) > 1:
			return found{}, errTwice
		}
	}
	return found{}, errNowhere
}

// in applies the mutation to a file of a tree, if that has its statement.
func (m *mutation) in(dir, file string) (found, bool) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return found{}, false
	}
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return found{}, false
	}
	for _, d := range syntax.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || nameOf(f) != m.Func {
			continue
		}
		nth := 0
		for _, s := range statements(fset, f.Body) {
			if !slices.Equal(lines(strings.TrimSpace(string(text[s.from:s.to]))), m.Before) {
				continue
			}
			if nth++; nth == m.Nth {
				after := strings.Join(m.After, "\n")
				return found{file, string(text[:s.from]) + after + " " + string(text[s.to:])}, true
			}
		}
	}
	return found{}, false
}
