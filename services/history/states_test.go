package history_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestThePictureOfAWriteIsTrue holds the table in the doc comment of writing against the states in the code: each
// transition that the code takes is in the table, and none else.
func TestThePictureOfAWriteIsTrue(t *testing.T) {
	t.Parallel()
	require.Equal(t, takenTransitions(t), drawnTransitions(t))
}

// drawnTransitions reads the table: a row begins with its state, or goes on with the state above, and ends with the
// next state.
func drawnTransitions(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("write.go")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(raw), "next state\n")
	require.True(t, found)
	table, _, found = strings.Cut(table, "\n//\n")
	require.True(t, found)
	out, from := map[string]bool{}, ""
	for row := range strings.Lines(table) {
		cells := strings.TrimPrefix(strings.TrimRight(row, "\n"), "//\t")
		words := strings.Fields(cells)
		if !strings.HasPrefix(cells, " ") {
			from = words[0]
		}
		if last := words[len(words)-1]; strings.HasSuffix(last, "ing") || last == "verdict" {
			out[from+" > "+last] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// takenTransitions reads the methods of states.go that return a state.
func takenTransitions(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "states.go", nil, 0)
	require.NoError(t, err)
	next := map[string]map[string]bool{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Type.Results == nil {
			continue
		}
		if of, ok := f.Type.Results.List[0].Type.(*ast.Ident); ok && of.Name == "state" {
			next[f.Name.Name] = returned(f.Body)
		}
	}
	next["answered"] = nil
	out := map[string]bool{}
	for from, all := range next {
		if strings.HasSuffix(from, "ing") {
			transitions(from, all, next, out)
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// transitions notes where a state leads, through the helpers that choose for it.
func transitions(from string, all map[string]bool, next map[string]map[string]bool, out map[string]bool) {
	for to := range all {
		switch through, isState := next[to]; {
		case to == "answered":
			out[from+" > verdict"] = true
		case isState && strings.HasSuffix(to, "ing"):
			out[from+" > "+to] = true
		case isState:
			transitions(from, through, next, out)
		}
	}
}

// returned are the names that a body's first returned values name: w.name, or w.name(...).
func returned(body *ast.BlockStmt) map[string]bool {
	out := map[string]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		r, ok := n.(*ast.ReturnStmt)
		if !ok || len(r.Results) == 0 {
			return true
		}
		value := r.Results[0]
		if call, ok := value.(*ast.CallExpr); ok {
			value = call.Fun
		}
		if name, ok := value.(*ast.SelectorExpr); ok {
			out[name.Sel.Name] = true
		}
		return true
	})
	return out
}
