package house_test

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A page or a comment that names a test, a benchmark or a fuzz test names one that exists. An ellipsis stands for any
// letters (TestWritesGoOn…). After -run, -bench or -fuzz parts of names are enough, with | between several; a word in
// capitals stands for any name. In the page of merged tests the last column alone names tests that exist.
func TestNamedTestsExist(t *testing.T) {
	files := repository(t)
	names := testNames(files)
	require.NotEmpty(t, names)
	var findings []string
	for _, f := range files {
		findings = append(findings, unknownTests(f, names)...)
	}
	require.Empty(t, findings)
}

// testNames returns the names of all tests, one a line.
func testNames(files []textFile) string {
	var names strings.Builder
	for _, f := range files {
		if f.Syntax == nil || !strings.HasSuffix(f.Path, "_test.go") {
			continue
		}
		for _, d := range f.Syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names.WriteString(fn.Name.Name + "\n")
			}
		}
	}
	return names.String()
}

var (
	// mentioned finds what has the name of a test, and whether it is declared (in an example) or follows a flag.
	mentioned = regexp.MustCompile(`(func |-(?:run|bench|fuzz)[ =]'?)?\b((?:Test|Benchmark|Fuzz)[A-Z][\w…]*)`)
	// flagged finds the parts of names after a flag.
	flagged     = regexp.MustCompile(`-(?:run|bench|fuzz)[ =]'?((?:[A-Z]\w*(?:\\?\|)?)+)`)
	placeholder = regexp.MustCompile(`^[A-Z]+$`)
)

// merged is the page that says of each test that is gone which one holds its assertion.
const merged = "deploy/e2e/merged-tests.md"

func unknownTests(f textFile, names string) (findings []string) {
	look := func(text string, line int) {
		for n, row := range strings.Split(text, "\n") {
			if cells := strings.Split(row, "|"); f.Path == merged && len(cells) > 3 {
				row = cells[3]
			}
			for _, m := range mentioned.FindAllStringSubmatch(row, -1) {
				pattern := "^" + strings.ReplaceAll(m[2], "…", `\w*`) + "$"
				if m[1] == "" && !regexp.MustCompile("(?m)"+pattern).MatchString(names) {
					findings = append(findings, fmt.Sprintf("%s:%d %s: no such test", f.Path, line+n, m[2]))
				}
			}
			for _, m := range flagged.FindAllStringSubmatch(row, -1) {
				for part := range strings.SplitSeq(strings.ReplaceAll(m[1], `\|`, "|"), "|") {
					if !placeholder.MatchString(part) && !strings.Contains(names, part) {
						findings = append(findings, fmt.Sprintf("%s:%d %s: no such test", f.Path, line+n, part))
					}
				}
			}
		}
	}
	switch {
	case strings.HasSuffix(f.Path, ".md"):
		look(string(f.Text), 1)
	case f.Syntax != nil:
		for _, group := range f.Syntax.Comments {
			for _, c := range group.List {
				look(c.Text, f.Line(c.Pos()))
			}
		}
	}
	return findings
}

func TestNamesOfTestsThatAreGoneAreFound(t *testing.T) {
	read := func(name, text string) textFile {
		f, err := parse(nil, name, []byte(text))
		require.NoError(t, err)
		return f
	}
	names := testNames([]textFile{read("a/a_test.go", "package a\n"+
		"func TestOne() {}\nfunc TestOneMore() {}\nfunc BenchmarkTwo() {}\nfunc (x) TestOfAType() {}\n")})
	require.Empty(t, unknownTests(read("a.go", "package a\n// TestOne, TestOne… and -bench Two; Testing.\n"+
		"//\tfunc TestExample(t *testing.T) {\nvar TestData = 1\n"), names))
	require.Empty(t, unknownTests(read("docs/a.md", "`TestOne` `go test -run TestOneM -bench 'BenchmarkT'`\n"), names))
	require.Equal(t, []string{merged + ":2 TestThree: no such test"},
		unknownTests(read(merged, "| a | TestGone | TestOne |\n| a | TestGone | TestThree |\n"), names))
	require.Equal(t, []string{
		"a.go:1 TestGone: no such test",
		"a.go:3 FuzzGone: no such test",
		"a.go:4 TestOfAType: no such test",
	}, unknownTests(read("a.go", "package a // TestGone\n/*\nFuzzGone */\n// TestOfAType\n"), names))
	require.Equal(t, []string{
		"docs/a.md:2 TestOneM: no such test",
		"docs/a.md:2 TestMore…: no such test",
		"docs/a.md:2 TestThree: no such test",
		"docs/a.md:3 Four: no such test",
	}, unknownTests(read("docs/a.md", "\n`TestOneM` `TestMore…` -run TestThree\n"+
		"-bench 'Two\\|Four' -fuzz NAME\n"), names))
}
