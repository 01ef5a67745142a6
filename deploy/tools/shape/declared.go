package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/turnledger/turnledger/deploy/tools/source"
)

const module = "github.com/turnledger/turnledger/"

// typeSpecs calls each for every type that the files declare at the top level.
func typeSpecs(files []source.File, each func(source.File, *ast.TypeSpec)) {
	for _, f := range files {
		for _, decl := range f.Syntax.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range gen.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					each(f, t)
				}
			}
		}
	}
}

// uncommented returns the exported functions, methods of exported types, types, variables and constants that have no
// comment, neither above nor beside them nor above their group. Methods that implement interfaces of the standard
// library need none (told lists them).
func uncommented(files []source.File) []string {
	var found []string
	for _, f := range files {
		note := func(name *ast.Ident) {
			if name.IsExported() {
				found = append(found, fmt.Sprintf("%s:%d %s", f.Path, f.Line(name.Pos()), name.Name))
			}
		}
		for _, decl := range f.Syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Doc == nil && exportedReceiver(d) && (d.Recv == nil || !documentedElsewhere[d.Name.Name]) {
					note(d.Name)
				}
			case *ast.GenDecl:
				for _, name := range bare(d) {
					note(name)
				}
			}
		}
	}
	return found
}

var documentedElsewhere = map[string]bool{
	"Error": true, "String": true, "Unwrap": true, "Read": true, "Write": true, "ServeHTTP": true,
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	t := d.Recv.List[0].Type
	for {
		switch of := t.(type) {
		case *ast.StarExpr:
			t = of.X
		case *ast.IndexExpr:
			t = of.X
		case *ast.IndexListExpr:
			t = of.X
		case *ast.Ident:
			return of.IsExported()
		default:
			return false
		}
	}
}

func bare(d *ast.GenDecl) []*ast.Ident {
	if d.Doc != nil || d.Tok == token.IMPORT {
		return nil
	}
	var names []*ast.Ident
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Doc == nil && s.Comment == nil {
				names = append(names, s.Name)
			}
		case *ast.ValueSpec:
			if s.Doc == nil && s.Comment == nil {
				names = append(names, s.Names...)
			}
		}
	}
	return names
}

// interfaces returns the interfaces with more than seven methods. An embedded interface counts with all its methods if
// it is of this module, and else as one.
func interfaces(files []source.File) []Place {
	declared := map[string]*ast.InterfaceType{}
	in := map[string]source.File{}
	typeSpecs(files, func(f source.File, t *ast.TypeSpec) {
		if i, ok := t.Type.(*ast.InterfaceType); ok {
			declared[f.Dir()+"."+t.Name.Name], in[f.Dir()+"."+t.Name.Name] = i, f
		}
	})
	var methods func(name string) int
	methods = func(name string) int {
		i, ok := declared[name]
		if !ok {
			return 1
		}
		n := 0
		for _, field := range i.Methods.List {
			if len(field.Names) > 0 {
				n += len(field.Names)
			} else if embedded := resolve(in[name], field.Type); embedded != "" {
				n += methods(embedded)
			}
		}
		return n
	}
	var big []Place
	for name := range declared {
		if n := methods(name); n > 7 {
			big = append(big, Place{At: name, Value: n})
		}
	}
	slices.SortFunc(big, func(a, b Place) int { return strings.Compare(a.At, b.At) })
	return big
}

// resolve returns the folder and name of an embedded interface, or "" if expr is no name (a union).
func resolve(f source.File, expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.Ident:
		return f.Dir() + "." + e.Name
	case *ast.SelectorExpr:
		pkg, ok := e.X.(*ast.Ident)
		if !ok {
			return ""
		}
		for _, imported := range f.Syntax.Imports {
			path, _ := strconv.Unquote(imported.Path.Value) // the parser has unquoted it already
			as := imported.Name
			if strings.HasSuffix("/"+path, "/"+pkg.Name) || as != nil && as.Name == pkg.Name {
				return strings.TrimPrefix(path, module) + "." + e.Sel.Name
			}
		}
	}
	return ""
}

// twin is an exported struct with its fields as "name type". The types are without their packages.
type twin struct {
	dir, name string
	fields    map[string]bool
}

var qualifier = regexp.MustCompile(`\b\w+\.`)

// twins returns the pairs of exported structs in two packages that share four or more fields. It leaves out the
// client's structs, and structs with tags (wire forms, settings and stored rows).
func twins(files []source.File) []string {
	var all []twin
	typeSpecs(files, func(f source.File, t *ast.TypeSpec) {
		s, ok := t.Type.(*ast.StructType)
		if !ok || !t.Name.IsExported() || strings.HasPrefix(f.Path, "services/client/") {
			return
		}
		if fields, tagged := fieldsOf(s); !tagged && len(fields) >= 4 {
			all = append(all, twin{dir: f.Dir(), name: t.Name.Name, fields: fields})
		}
	})
	var pairs []string
	for i, a := range all {
		for _, b := range all[i+1:] {
			if n := a.shared(b); a.dir != b.dir && n >= 4 {
				pairs = append(pairs, fmt.Sprintf("%s.%s and %s.%s share %d fields", a.dir, a.name, b.dir, b.name, n))
			}
		}
	}
	return pairs
}

func (a twin) shared(b twin) int {
	n := 0
	for field := range a.fields {
		if b.fields[field] {
			n++
		}
	}
	return n
}

func fieldsOf(s *ast.StructType) (fields map[string]bool, tagged bool) {
	fields = map[string]bool{}
	for _, field := range s.Fields.List {
		tagged = tagged || field.Tag != nil
		for _, name := range field.Names {
			if name.IsExported() {
				fields[name.Name+" "+qualifier.ReplaceAllString(types.ExprString(field.Type), "")] = true
			}
		}
	}
	return fields, tagged
}

// assertions returns the type assertions in cmd and projections that ask what a view can do: assertions to an interface
// literal, or to an interface that package projections declares.
func assertions(files []source.File) []string {
	contracts := map[string]bool{}
	typeSpecs(files, func(f source.File, t *ast.TypeSpec) {
		if _, ok := t.Type.(*ast.InterfaceType); ok && f.Dir() == "projections" {
			contracts[t.Name.Name] = true
		}
	})
	var found []string
	for _, f := range files {
		if !strings.HasPrefix(f.Path, "cmd/") && !strings.HasPrefix(f.Path, "projections/") {
			continue
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			if a, ok := n.(*ast.TypeAssertExpr); ok && a.Type != nil && asksView(f, a.Type, contracts) {
				what, _, _ := strings.Cut(types.ExprString(a), "{")
				found = append(found, fmt.Sprintf("%s:%d %s", f.Path, f.Line(a.Pos()), what))
			}
			return true
		})
	}
	return found
}

func asksView(f source.File, asserted ast.Expr, contracts map[string]bool) bool {
	switch t := asserted.(type) {
	case *ast.InterfaceType:
		return true
	case *ast.Ident:
		return f.Dir() == "projections" && contracts[t.Name]
	case *ast.SelectorExpr:
		pkg, ok := t.X.(*ast.Ident)
		return ok && pkg.Name == "projections" && contracts[t.Sel.Name]
	}
	return false
}
