package house_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A bare true, false or -1 as an argument of a function of ours says nothing where it is read: a type of its own or a
// second function says what is meant. A constant bool says no more than its name, and nothing checks that it is in the
// right place.
func TestArgumentsSayWhatTheyMean(t *testing.T) {
	t.Parallel()
	require.Empty(t, bareArguments(modulePackages(t)))
}

func bareArguments(all []*pkg) (findings []string) {
	for _, p := range all {
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !p.inProgram() {
					return true
				}
				called := callee(p, call)
				for i, arg := range call.Args {
					if called != nil && bare(p, arg, called, i) {
						const says = "%s %s is called with a bare %s"
						findings = append(findings,
							fmt.Sprintf(says, p.at(arg), types.ExprString(call.Fun), types.ExprString(arg)))
					}
				}
				return true
			})
		}
	}
	return findings
}

// callee returns the function of this module that is called, nil for any other.
func callee(p *pkg, call *ast.CallExpr) *types.Func {
	name := ast.Unparen(call.Fun)
	if generic, ok := name.(*ast.IndexExpr); ok {
		name = generic.X
	}
	if s, ok := name.(*ast.SelectorExpr); ok {
		name = s.Sel
	}
	id, ok := name.(*ast.Ident)
	if !ok {
		return nil
	}
	f, ok := p.info.Uses[id].(*types.Func)
	if !ok || f.Pkg() == nil || !strings.HasPrefix(f.Pkg().Path(), module) {
		return nil
	}
	return f
}

// bare reports whether an argument is -1 or a constant bool: a literal, or a name for one. A parameter of any type
// takes values, and a rows.Buffer writes numbers.
func bare(p *pkg, arg ast.Expr, called *types.Func, i int) bool {
	params := called.Signature().Params()
	if types.ExprString(arg) == "-1" {
		return called.Pkg().Path() != module+"projections/audit/rows"
	}
	value := p.info.Types[arg].Value
	return value != nil && value.Kind() == constant.Bool && i < params.Len() &&
		types.Identical(params.At(i).Type(), types.Typ[types.Bool])
}

func TestBareArgumentsAreFound(t *testing.T) {
	t.Parallel()
	found := bareArguments(planted(t, fault{"services/a", `package a
type reader struct{}
func (reader) read(brief bool, total int) {}
func note(v any) {}
func table[T any](header bool) (t T) { return t }
const unknown = -1
const briefly = true
func calls(r reader, brief bool) {
	r.read(true, 3)
	r.read(brief, unknown)
	r.read(brief, -1)
	note(true)
	table[int](false)
	r.read(briefly, 3)
}
`}))
	require.Equal(t, []string{
		"services/a/a.go:9 r.read is called with a bare true",
		"services/a/a.go:11 r.read is called with a bare -1",
		"services/a/a.go:13 table[int] is called with a bare false",
		"services/a/a.go:14 r.read is called with a bare briefly",
	}, found)
}
