package house_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a view can do stands in its contract, or in its fleet.Entry: nobody finds it out by a type assertion.
func TestNobodyAsksAViewForItsType(t *testing.T) {
	t.Parallel()
	require.Empty(t, viewAssertions(modulePackages(t)))
}

// viewAssertions returns the type assertions and type switches whose operand is a view, and those to a view or to an
// interface of package projections or below it.
func viewAssertions(all []*pkg) (findings []string) {
	for _, p := range all {
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				if x := asked(p, n); x != nil && p.inProgram() {
					findings = append(findings, p.at(x)+" "+types.ExprString(x)+" is asked for its type")
				}
				return true
			})
		}
	}
	return findings
}

// asked returns the operand of a type assertion that concerns a view, or the type that a case of a type switch names.
func asked(p *pkg, n ast.Node) ast.Expr {
	concerns := func(x ast.Expr) bool {
		typ := p.info.TypeOf(x)
		return typ != nil && p.info.Types[x].IsType() && (isContract(typ) || isView(typ))
	}
	switch n := n.(type) {
	case *ast.TypeAssertExpr:
		if isView(operand(p, n.X)) || n.Type != nil && concerns(n.Type) {
			return n.X
		}
	case *ast.CaseClause:
		if i := slices.IndexFunc(n.List, concerns); i >= 0 {
			return n.List[i]
		}
	}
	return nil
}

// operand returns the type of what is asserted, before a conversion such as any(view).
func operand(p *pkg, x ast.Expr) types.Type {
	if call, ok := ast.Unparen(x).(*ast.CallExpr); ok && len(call.Args) == 1 && p.info.Types[call.Fun].IsType() {
		x = call.Args[0]
	}
	return p.info.TypeOf(x)
}

// isView reports whether a type is a view, an effect or a task, or a view's side for readers, by the methods that all
// of them have.
func isView(typ types.Type) bool {
	if _, pointer := typ.(*types.Pointer); !pointer && !types.IsInterface(typ) {
		typ = types.NewPointer(typ)
	}
	methods := types.NewMethodSet(typ)
	has := func(name string) bool { return methods.Lookup(nil, name) != nil }
	return has("Name") && (has("Claim") && has("Apply") || has("Resume") && has("Take")) || has("Load") && has("Wait")
}

// isContract reports whether a type is an interface of package projections, or of a package below it.
func isContract(typ types.Type) bool {
	named, ok := types.Unalias(typ).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return false
	}
	_, ok = named.Underlying().(*types.Interface)
	return ok && strings.HasPrefix(named.Obj().Pkg().Path()+"/", module+"projections/")
}

const contract = `package projections
type View interface { Name() string; Claim(int) int; Apply(int) error }
type Rebuildable interface { Fill() }
type Task interface { Name() string; Resume(int) int; Take(int) error }
`

func TestQuestionsForTheTypeOfAViewAreFound(t *testing.T) {
	t.Parallel()
	found := viewAssertions(planted(t, fault{"projections", contract},
		fault{"projections/recent", "package recent\ntype Reader interface { Load(int) int; Wait(int) error }\n"},
		fault{"projections/fleet", `package fleet
import "github.com/turnledger/turnledger/projections"
import "github.com/turnledger/turnledger/projections/recent"
type entry struct { view projections.View }
func one(v projections.View) { _, _ = v.(interface{ Fill() }) }
func two(e entry) { _ = e.view.(projections.Rebuildable) }
func three(v projections.View) { switch any(v).(type) { case projections.Rebuildable: } }
func four(v any) { _ = v.(projections.Rebuildable) }
func five(v projections.Task) { _, _ = v.(interface{ Flush() }) }
func six(v recent.Reader) { _, _ = v.(interface{ Flush() }) }
func seven(v any) { _ = v.(recent.Reader) }
func good(v any) { _, _ = v.(interface{ Flush() }) }
type kept struct{}
func (*kept) Name() string { return "" }
func (*kept) Claim(int) int { return 0 }
func (*kept) Apply(int) error { return nil }
func eight(v any) { _ = v.(*kept) }
func nine(v any) { switch v.(type) { case int, projections.Rebuildable: } }
`}))
	require.Equal(t, []string{
		"projections/fleet/a.go:5 v is asked for its type",
		"projections/fleet/a.go:6 e.view is asked for its type",
		"projections/fleet/a.go:7 any(v) is asked for its type",
		"projections/fleet/a.go:7 projections.Rebuildable is asked for its type",
		"projections/fleet/a.go:8 v is asked for its type",
		"projections/fleet/a.go:9 v is asked for its type",
		"projections/fleet/a.go:10 v is asked for its type",
		"projections/fleet/a.go:11 v is asked for its type",
		"projections/fleet/a.go:17 v is asked for its type",
		"projections/fleet/a.go:18 projections.Rebuildable is asked for its type",
	}, found)
}

// notViews are constants that have the name of a view and mean something else, each with the reason.
var notViews = map[string]string{
	"cmd/turnledger.roleRecent":      "a role of a process, as --roles names it",
	"cmd/turnledger.roleAudit":       "a role of a process, as --roles names it",
	"cmd/turnledger.roleEraser":      "a role of a process, as --roles names it",
	"cmd/turnledger.roleIndex":       "a role of a process, as --roles names it",
	"services/httpapi/v1.roleEraser": "a role of a process, as --roles names it",
}

// A view's name is a string in the view's own package, and in those below it. Others use its constant, or treat all
// views alike.
func TestAViewIsNamedInItsPackageOnly(t *testing.T) {
	t.Parallel()
	all := modulePackages(t)
	require.NotEmpty(t, viewTypes(all))
	require.Empty(t, namelessViews(all))
	require.Empty(t, strayNames(all))
}

// viewTypes returns the types that are views, each with its package: they declare NewReference, which a view has of its
// own.
func viewTypes(all []*pkg) map[types.Type]*pkg {
	found := map[types.Type]*pkg{}
	for _, p := range all {
		for _, file := range p.files {
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Recv == nil || f.Name.Name != "NewReference" || !p.inProgram() {
					continue
				}
				if typ := p.info.TypeOf(f.Recv.List[0].Type); isView(typ) {
					found[typ] = p
				}
			}
		}
	}
	return found
}

// namelessViews returns the views whose names the rules can't know: their Name is no method of their own that returns a
// constant.
func namelessViews(all []*pkg) (findings []string) {
	for typ, p := range viewTypes(all) {
		known := false
		for _, file := range p.files {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "Name" &&
					types.Identical(p.info.TypeOf(f.Recv.List[0].Type), typ) {
					known = returnedName(p, f) != nil
				}
			}
		}
		if !known {
			findings = append(findings, fmt.Sprintf("%s: Name of %s does not return a constant", p.path, typ))
		}
	}
	return findings
}

// returnedName returns what a method's only statement returns, if that is a constant.
func returnedName(p *pkg, f *ast.FuncDecl) ast.Expr {
	if len(f.Body.List) == 1 {
		back, ok := f.Body.List[0].(*ast.ReturnStmt)
		if ok && len(back.Results) == 1 && p.info.Types[back.Results[0]].Value != nil {
			return back.Results[0]
		}
	}
	return nil
}

// viewNames returns the names of all views, each with the package that declares it.
func viewNames(all []*pkg) map[string]string {
	names := map[string]string{}
	for _, p := range all {
		for _, file := range p.files {
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Recv == nil || f.Name.Name != "Name" || !p.inProgram() ||
					!isView(p.info.TypeOf(f.Recv.List[0].Type)) {
					continue
				}
				if said := returnedName(p, f); said != nil {
					names[constant.StringVal(p.info.Types[said].Value)] = declaring(p, said)
				}
			}
		}
	}
	return names
}

// declaring returns the package of a constant.
func declaring(p *pkg, x ast.Expr) string {
	id, ok := x.(*ast.Ident)
	if s, selector := x.(*ast.SelectorExpr); selector {
		id, ok = s.Sel, true
	}
	if !ok {
		return p.path
	}
	return strings.TrimPrefix(p.info.Uses[id].Pkg().Path(), module)
}

func strayNames(all []*pkg) (findings []string) {
	names := viewNames(all)
	for _, p := range all {
		meant := map[ast.Expr]bool{}
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				if v, ok := n.(*ast.ValueSpec); ok && notViews[p.path+"."+v.Names[0].Name] != "" {
					for _, value := range v.Values {
						meant[value] = true
					}
				}
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING || meant[lit] || !p.inProgram() || p.info.Types[lit].Value == nil {
					return true
				}
				own, isName := names[constant.StringVal(p.info.Types[lit].Value)]
				if isName && p.path != own && !strings.HasPrefix(p.path, own+"/") {
					const stray = "%s %s is the name of the view in %s"
					findings = append(findings, fmt.Sprintf(stray, p.at(lit), lit.Value, own))
				}
				return true
			})
		}
	}
	return findings
}

// view is the source of a view, after its package clause and its imports.
const view = `
const Name = "audit"
type View struct{}
func (*View) Name() string { return Name }
func (*View) Claim(int) int { return 0 }
func (*View) Apply(int) error { return nil }
func (*View) NewReference() int { return 0 }
`

func TestViewsWithoutAConstantNameAreFound(t *testing.T) {
	t.Parallel()
	other := strings.NewReplacer("struct{}", "struct{ name string }", "(*View) Name", "(v *View) Name",
		"return Name", "return v.name").Replace(view)
	views := planted(t, fault{"projections/audit", "package audit" + view},
		fault{"projections/other", "package other" + other})
	require.Len(t, viewTypes(views), 2)
	require.Equal(t, []string{
		"projections/other: Name of *" + module + "projections/other.View does not return a constant",
	}, namelessViews(views))
}

func TestNamesOfViewsElsewhereAreFound(t *testing.T) {
	t.Parallel()
	found := strayNames(planted(t,
		fault{"projections/audit", "package audit" + view},
		fault{"projections/audit/rows", "package rows\nvar table = \"audit\"\n"},
		fault{"cmd/turnledger", `package main
const roleAudit = "audit"
func wire(name string) int {
	switch name {
	case "audit":
		return 1
	}
	return 2
}
`}))
	require.Equal(t, []string{`cmd/turnledger/a.go:5 "audit" is the name of the view in projections/audit`}, found)
}
