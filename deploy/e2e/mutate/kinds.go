package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// The kinds of mutations.
const (
	turned    = "a condition turned"
	offByOne  = "a comparison off by one"
	andOr     = "an and that is an or"
	amount    = "an amount that is wrong"
	truth     = "a truth turned"
	jump      = "a jump turned"
	noError   = "an error dropped"
	noCall    = "a call dropped"
	noWait    = "a wait removed"
	noSetting = "an assignment dropped"
)

// change replaces a part of a statement.
type change struct {
	kind       string
	start, end token.Pos
	with       string
}

// swapped are operators, and what stands for them in a mutation.
var swapped = map[token.Token]struct {
	by   token.Token
	kind string
}{
	token.LSS: {token.LEQ, offByOne}, token.LEQ: {token.LSS, offByOne},
	token.GTR: {token.GEQ, offByOne}, token.GEQ: {token.GTR, offByOne},
	token.EQL: {token.NEQ, turned}, token.NEQ: {token.EQL, turned},
	token.LAND: {token.LOR, andOr}, token.LOR: {token.LAND, andOr},
	token.ADD: {token.SUB, amount}, token.SUB: {token.ADD, amount},
}

// waits are names of calls that wait, or that have a disk keep what was written.
var waits = regexp.MustCompile(`^([Ww]ait|[Aa]wait)|^(For|Sync|sync|Flush|flush|Drain)$`)

// left are names of calls that no mutation drops: locks, whose lack ends a program at once or never, and what is said.
var left = regexp.MustCompile(`^(R?Lock|R?Unlock|Log|LogAttrs|(Debug|Info|Warn|Error)(Context)?|panic)$`)

// changes returns what can be changed in a statement; failing says that its function's last result is an error.
func changes(s placed, fset *token.FileSet, results int, failing bool) (out []change) {
	add := func(kind string, start, end token.Pos, with string) {
		out = append(out, change{kind, start, end, with})
	}
	whole(s.Stmt, results, failing, add)
	ast.Inspect(s.Stmt, func(n ast.Node) bool {
		if n == nil || fset.Position(n.Pos()).Offset >= s.to {
			return false
		}
		if _, body := n.(*ast.BlockStmt); body {
			return false
		}
		within(n, add)
		return true
	})
	return out
}

// whole adds the changes of a statement as such.
func whole(s ast.Stmt, results int, failing bool, add func(string, token.Pos, token.Pos, string)) {
	switch s := s.(type) {
	case *ast.IfStmt:
		switch s.Cond.(type) {
		case *ast.CallExpr, *ast.Ident, *ast.SelectorExpr:
			add(turned, s.Cond.Pos(), s.Cond.Pos(), "!")
		}
		if isFailure(s.Cond) {
			add(noError, s.Cond.Pos(), s.Cond.Pos(), "false && ")
		}
	case *ast.ReturnStmt:
		if n := len(s.Results); failing && n == results && nameIn(s.Results[n-1]) != "nil" {
			add(noError, s.Results[n-1].Pos(), s.Results[n-1].End(), "nil")
		}
	case *ast.ExprStmt:
		switch name := nameIn(s.X); {
		case waits.MatchString(name), isReceive(s.X):
			add(noWait, s.Pos(), s.End(), "")
		case !left.MatchString(name):
			add(noCall, s.Pos(), s.End(), "")
		}
	case *ast.AssignStmt:
		if s.Tok != token.DEFINE && nameIn(s.Lhs[0]) != "_" {
			add(noSetting, s.Pos(), s.End(), "")
		}
	case *ast.IncDecStmt:
		add(noSetting, s.Pos(), s.End(), "")
	case *ast.BranchStmt:
		if s.Label == nil && s.Tok != token.FALLTHROUGH {
			add(jump, s.Pos(), s.End(), map[token.Token]string{token.BREAK: "continue", token.CONTINUE: "break"}[s.Tok])
		}
	}
}

// within adds the changes of an expression.
func within(n ast.Node, add func(string, token.Pos, token.Pos, string)) {
	switch x := n.(type) {
	case *ast.BinaryExpr:
		if by, ok := swapped[x.Op]; ok && !isFailure(x) {
			add(by.kind, x.OpPos, x.OpPos+token.Pos(len(x.Op.String())), by.by.String())
		}
	case *ast.UnaryExpr:
		if x.Op == token.NOT {
			add(turned, x.OpPos, x.OpPos+1, "")
		}
	case *ast.BasicLit:
		if n, err := strconv.Atoi(x.Value); err == nil && x.Kind == token.INT {
			add(amount, x.Pos(), x.End(), strconv.Itoa(n+1))
		}
	case *ast.Ident:
		if not := map[string]string{"true": "false", "false": "true"}[x.Name]; not != "" {
			add(truth, x.Pos(), x.End(), not)
		}
	case *ast.CallExpr:
		name := nameIn(x)
		if other := map[string]string{"min": "max", "max": "min"}[name]; other != "" {
			add(amount, x.Fun.Pos(), x.Fun.End(), other)
		}
		if waits.MatchString(name) {
			add(noWait, x.Pos(), x.End(), "error(nil)")
		}
	}
}

// isFailure reports whether an expression is err != nil, for any name of an error.
func isFailure(x ast.Expr) bool {
	b, ok := x.(*ast.BinaryExpr)
	return ok && b.Op == token.NEQ && nameIn(b.Y) == "nil" &&
		strings.HasSuffix(strings.ToLower(nameIn(b.X)), "err")
}

func isReceive(x ast.Expr) bool {
	u, ok := x.(*ast.UnaryExpr)
	return ok && u.Op == token.ARROW
}

// nameIn returns the last name of an expression, of a call that of its function.
func nameIn(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.CallExpr:
		return nameIn(x.Fun)
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	default:
		return ""
	}
}
