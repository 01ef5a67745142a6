package main

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the last column of docs/conformance.md anew")

const conformancePage = "../../docs/conformance.md"

// TestConformanceIsMadeFromTheTests: a test says in its comment which rows of docs/conformance.md it shows, as
// `//conformance:i12 h3`, and where a subtest shows them, `//conformance:i12 "its name"`. The last column of the page
// is made of these comments, so a test can move or change its name: `go test ./cmd/turnledger -run Conformance
// -update`.
// It fails if the page is not what the tests say, if a test names a row or a subtest that does not exist, and if no
// test shows a row.
func TestConformanceIsMadeFromTheTests(t *testing.T) {
	t.Parallel()
	shown := conformanceShown(t)
	page, err := os.ReadFile(conformancePage)
	require.NoError(t, err)
	var out strings.Builder
	rows := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		id := strings.TrimSpace(cells[min(1, len(cells)-1)])
		if len(cells) != 7 || strings.Contains(id, "---") || id == "id" {
			out.WriteString(line)
			continue
		}
		require.False(t, rows[id], "two rows are %s", id)
		rows[id] = true
		tests := shown[id]
		slices.Sort(tests)
		require.True(t, len(tests) > 0 || strings.Contains(cells[4], "does not apply"), "no test: %s", line)
		cells[5] = strings.Replace(" "+strings.Join(slices.Compact(tests), ", ")+" ", "  ", " ", 1)
		out.WriteString(strings.Join(cells, "|"))
	}
	require.Greater(t, len(rows), 40)
	for id, tests := range shown {
		require.True(t, rows[id], "%s show a row that is not there: %s", tests, id)
	}
	if *update {
		require.NoError(t, os.WriteFile(conformancePage, []byte(out.String()), 0o600))
		return
	}
	require.Equal(t, out.String(), string(page), "run it with -update, or mend the comments of the tests")
}

var (
	conformanceLine    = regexp.MustCompile(`(?m)^//conformance:.*$`)
	conformanceComment = regexp.MustCompile(`^//conformance:([a-z]\d+(?: [a-z]\d+)*)(?: "([^"]+)")?$`)
)

// conformanceShown returns the tests and quoted subtests that show each row, as all test files of the repository say.
func conformanceShown(t *testing.T) map[string][]string {
	t.Helper()
	shown := map[string][]string{}
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		comments := len(conformanceLine.FindAll(text, -1))
		if comments == 0 {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			comments -= conformanceOf(t, decl, string(text), shown)
		}
		require.Zero(t, comments, "%s has comments that belong to no test", path)
		return nil
	}))
	return shown
}

// conformanceOf puts a test's name at each row that its comment names, and returns how many lines of it name rows.
func conformanceOf(t *testing.T, decl ast.Decl, file string, shown map[string][]string) int {
	t.Helper()
	f, isFunc := decl.(*ast.FuncDecl)
	if !isFunc || f.Doc == nil || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
		return 0
	}
	lines := 0
	for _, c := range f.Doc.List {
		m := conformanceComment.FindStringSubmatch(c.Text)
		if m == nil {
			continue
		}
		lines++
		name := f.Name.Name
		if m[2] != "" {
			require.Greater(t, strings.Count(file, `"`+m[2]+`"`), 1, "%s has no %q", name, m[2])
			name += ` "` + m[2] + `"`
		}
		for id := range strings.FieldsSeq(m[1]) {
			shown[id] = append(shown[id], name)
		}
	}
	return lines
}
