package house_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What status an error has is said in the tables of the surfaces (services/httpapi/{v1,openai,console}), by the error's
// class: no function that has an error in hand names the status of a failure, but to compare one. The package wire,
// which knows no error of ours, answers for itself. What calls the servers of others has their statuses.
func TestStatusesOfErrorsAreInTables(t *testing.T) {
	t.Parallel()
	require.Empty(t, chosenStatuses(modulePackages(t)))
}

// answers matches the packages that answer calls by HTTP, or say what an answer is.
var answers = regexp.MustCompile(`^(services/(httpapi|problems)|cmd)(/|$)`)

func chosenStatuses(all []*pkg) (findings []string) {
	for _, p := range all {
		if !answers.MatchString(p.path) || p.path == wire || !p.inProgram() {
			continue
		}
		for _, file := range p.files {
			for _, d := range file.Decls {
				if f, is := d.(*ast.FuncDecl); is && f.Body != nil && p.hasError(f) {
					for _, at := range p.statuses(f.Body) {
						where := p.fset.Position(at)
						findings = append(findings, fmt.Sprintf("%s: %s chooses a status", where, f.Name.Name))
					}
				}
			}
		}
	}
	return findings
}

// hasError reports whether a function has a value of type error in hand, or one that is an error. To return one it
// only passes on is nothing to choose by.
func (p *pkg) hasError(f *ast.FuncDecl) (has bool) {
	failure := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
	ast.Inspect(f, func(n ast.Node) bool {
		if id, is := n.(*ast.Ident); is {
			v, variable := p.info.ObjectOf(id).(*types.Var)
			has = has || variable && types.Implements(v.Type(), failure)
		}
		return !has
	})
	return has
}

// statuses returns where a body names the status of a failure, but for comparisons.
func (p *pkg) statuses(body *ast.BlockStmt) (found []token.Pos) {
	var look func(n ast.Node) bool
	look = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op != token.EQL && n.Op != token.NEQ && n.Op != token.LSS && n.Op != token.GEQ &&
				n.Op != token.LEQ && n.Op != token.GTR {
				return true
			}
			return false
		case *ast.CaseClause:
			for _, s := range n.Body {
				ast.Inspect(s, look)
			}
			return false
		case *ast.Ident:
			if c, is := p.info.ObjectOf(n).(*types.Const); is && p.isFailure(c) {
				found = append(found, n.Pos())
			}
		}
		return true
	}
	ast.Inspect(body, look)
	return found
}

// isFailure reports whether a constant is the status of a failure: one of net/http, or another name for it.
func (p *pkg) isFailure(c *types.Const) bool {
	n, exact := constant.Int64Val(constant.ToInt(c.Val()))
	return exact && n >= 400 && n < 600 && (ofHTTP(c) || p.aliases()[c])
}

func ofHTTP(o types.Object) bool {
	return o.Pkg() != nil && strings.HasSuffix(o.Pkg().Path(), "net/http")
}

// aliases returns the constants of a package that are constants of net/http.
func (p *pkg) aliases() map[types.Object]bool {
	found := map[types.Object]bool{}
	for _, file := range p.files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, is := n.(*ast.ValueSpec)
			for i := 0; is && i < len(spec.Values); i++ {
				if of, is := spec.Values[i].(*ast.SelectorExpr); is && ofHTTP(p.info.ObjectOf(of.Sel)) {
					found[p.info.ObjectOf(spec.Names[i])] = true
				}
			}
			return true
		})
	}
	return found
}

func TestChosenStatusesAreFound(t *testing.T) {
	t.Parallel()
	const decls = "import \"" + module + "net/http\"\nconst notFound = http.StatusNotFound\nfunc write(int) {}\n"
	found := chosenStatuses(planted(t,
		fault{"net/http", "package http\nconst StatusNotFound = 404\n"},
		fault{"services/httpapi/a", "package a\n" + decls +
			"func f(err error) { if err != nil {\nwrite(http.StatusNotFound) } }\n"},
		fault{"services/httpapi/b", "package b\n" + decls +
			"func f(err error) int { switch {\ncase err != nil:\nreturn notFound }\nreturn 200 }\n"},
		fault{"cmd/c", "package c\n" + decls + "var table = map[string]int{\"gone\": notFound}\n" +
			"func f() { write(notFound) }\nfunc g(err error, s int) bool { return err != nil && s == notFound }\n" +
			"const most = 500\nfunc h(err error) int { return most }\n"},
		fault{wire, "package wire\n" + decls + "func f(err error) { if err != nil { write(notFound) } }\n"},
	))
	require.Equal(t, []string{
		"services/httpapi/a/a.go:6:12: f chooses a status", "services/httpapi/b/a.go:7:8: f chooses a status",
	}, found)
}
