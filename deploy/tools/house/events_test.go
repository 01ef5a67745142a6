package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mostFiles is how many files may name an event, tests and what serves tests apart.
const mostFiles = 16

// TestFilesThatNameAnEvent counts, for each event that there is, the files that name its struct or the
// constant of its type. Whoever adds an event goes through about as many.
func TestFilesThatNameAnEvent(t *testing.T) {
	t.Parallel()
	facts := factsOf(t)
	require.NotEmpty(t, facts)
	naming := map[string][]string{}
	production(t, func(path string, file *ast.File) {
		found := map[string]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && facts[strings.TrimPrefix(id.Name, "Type")] {
				found[strings.TrimPrefix(id.Name, "Type")] = true
			}
			return true
		})
		for fact := range found {
			naming[fact] = append(naming[fact], path)
		}
	})
	for fact := range facts {
		require.NotEmpty(t, naming[fact], fact)
		require.LessOrEqual(t, len(naming[fact]), mostFiles,
			"%s is named by %d files; let the catalogue answer for it: %v",
			fact, len(naming[fact]), naming[fact])
		t.Logf("%s is named by %d files", fact, len(naming[fact]))
	}
}

// factsOf returns the names of the events: the structs of package events that have the catalogue's methods.
func factsOf(t *testing.T) map[string]bool {
	t.Helper()
	facts := map[string]bool{}
	production(t, func(path string, file *ast.File) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != "withdraws" || filepath.Dir(path) != "events" {
				continue
			}
			if star, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok {
				facts[star.X.(*ast.Ident).Name] = true
			}
		}
	})
	return facts
}

// production hands on each Go file of the tree that belongs to the program. Test support and examples do not.
func production(t *testing.T, each func(path string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			apart := name == "docs" || name == "data" || name == "testdata" || strings.HasSuffix(name, "test")
			if path != root && (apart || strings.HasPrefix(name, ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		short, err := filepath.Rel(root, path)
		if err == nil {
			each(short, file)
		}
		return err
	})
	require.NoError(t, err)
}
