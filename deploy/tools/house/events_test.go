package house_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/tools/source"
)

// mostFiles is how many files may name an event, tests and what serves tests apart.
const mostFiles = 16

// TestFilesThatNameAnEvent counts, for each event that there is, the files that name its struct or the
// constant of its type. Whoever adds an event goes through about as many. docs/add.md promises the number.
func TestFilesThatNameAnEvent(t *testing.T) {
	t.Parallel()
	files := productionFiles(t)
	require.NotEmpty(t, facts(files))
	require.Empty(t, namedTooOften(files))
	page, err := os.ReadFile(filepath.Join(root, "docs", "add.md"))
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(string(page)), " "),
		fmt.Sprintf("of files that name one event at %d or fewer", mostFiles))
}

func namedTooOften(files map[string]*ast.File) (findings []string) {
	known := facts(files)
	naming := map[string][]string{}
	for path, file := range files {
		found := map[string]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && known[strings.TrimPrefix(id.Name, "Type")] {
				found[strings.TrimPrefix(id.Name, "Type")] = true
			}
			return true
		})
		for fact := range found {
			naming[fact] = append(naming[fact], path)
		}
	}
	for fact := range known {
		slices.Sort(naming[fact])
		if n := len(naming[fact]); n > mostFiles {
			const many = "%s is named by %d files; let the catalogue answer for it: %v"
			findings = append(findings, fmt.Sprintf(many, fact, n, naming[fact]))
		}
	}
	slices.Sort(findings)
	return findings
}

func TestEventsThatTooManyFilesNameAreFound(t *testing.T) {
	t.Parallel()
	files := map[string]*ast.File{}
	parse := func(path, text string) {
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		files[path] = f
	}
	parse("events/turn.go", "package events\nfunc (*TurnRated) withdraws() {}\nfunc (*Told) withdraws() {}\n")
	for i := range mostFiles {
		require.Empty(t, namedTooOften(files))
		name := []string{"TurnRated", "TypeTurnRated"}[i%2]
		parse(fmt.Sprintf("services/f%02d.go", i), "package services\nvar _ = events."+name+"\n")
	}
	found := namedTooOften(files)
	require.Len(t, found, 1)
	require.Contains(t, found[0], "TurnRated is named by 17 files")
}

// facts returns the names of the events: the structs of package events that have the catalogue's methods.
func facts(files map[string]*ast.File) map[string]bool {
	found := map[string]bool{}
	for path, file := range files {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != "withdraws" || filepath.Dir(path) != "events" {
				continue
			}
			if star, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok {
				found[star.X.(*ast.Ident).Name] = true
			}
		}
	}
	return found
}

// productionFiles returns the Go files of the tree that belong to the program. Test support and examples do not.
func productionFiles(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	for _, f := range repository(t) {
		if f.Syntax != nil && f.Class() == source.Production {
			files[f.Path] = f.Syntax
		}
	}
	return files
}
