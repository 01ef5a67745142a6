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

// TestThePictureOfAWriteIsTrue holds the picture and the table in the doc comment of writing against the states in the
// code: each transition that the code takes is in both, and none else.
func TestThePictureOfAWriteIsTrue(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("write.go")
	require.NoError(t, err)
	_, doc, found := strings.Cut(string(raw), "in the picture is the same state.\n//\n")
	require.True(t, found)
	picture, rest, found := strings.Cut(doc, "\n//\n")
	require.True(t, found)
	table, _, found := strings.Cut(rest, "\n//\n")
	require.True(t, found)

	taken := takenTransitions(t)
	require.Equal(t, taken, drawnTransitions(t, picture))
	require.Equal(t, taken, listedTransitions(table))
}

// drawnTransitions reads the picture. An arrow begins at the state on its left. Where it begins at a branch, it begins
// at the state on the left of the fork above that branch.
func drawnTransitions(t *testing.T, picture string) []string {
	t.Helper()
	out := map[string]bool{}
	var above [][]rune
	for line := range strings.Lines(picture) {
		row := []rune(strings.TrimPrefix(strings.TrimRight(line, "\n"), "//\t"))
		above = append(above, row)
		for i, r := range row {
			if r != '▶' {
				continue
			}
			start := i - 1
			for row[start] == '─' {
				start--
			}
			from := above[len(above)-1][:start+1]
			for n := len(above) - 1; strings.ContainsRune("├└│", row[start]) && n >= 0; n-- {
				if from = above[n][:start+1]; from[start] == '┬' {
					break
				}
			}
			words := strings.Fields(strings.Trim(string(from), "─┬ "))
			to := strings.Fields(string(row[i+1:]))[0]
			if state := words[len(words)-1]; strings.HasSuffix(state, "ing") {
				out[state+" > "+to] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// listedTransitions reads the table: a row begins with its state, or goes on with the state above, and ends with the
// next state.
func listedTransitions(table string) []string {
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
