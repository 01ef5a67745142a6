package main

import (
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/tools/source"
)

// tree returns the files of a made-up checkout, given as path and text.
func tree(t *testing.T, pathsAndTexts ...string) []source.File {
	t.Helper()
	fset := token.NewFileSet()
	var files []source.File
	for i := 0; i < len(pathsAndTexts); i += 2 {
		f, err := source.Parse(fset, pathsAndTexts[i], []byte(pathsAndTexts[i+1]))
		require.NoError(t, err)
		files = append(files, f)
	}
	return files
}

func TestCodeLinesLeaveOutCommentsAndBlanks(t *testing.T) {
	text := "// Package a.\npackage a\n\n/* two\nlines */\nvar x = `one\ntwo` // beside\n"
	s := measure(tree(t, "a/a.go", text, "a/a_test.go", text, "deploy/testkit/b.go", text, "deploy/tools/c.go", text))
	require.Equal(t, Amounts{Production: 3, Support: 3, Tools: 3, Tests: 3}, s.Code)
	require.Equal(t, 1, s.Packages)
}

func TestFunctionsAreMeasuredFromSignatureToBrace(t *testing.T) {
	s := measure(tree(t, "a/a.go", "package a\nfunc a() {}\nfunc b() {\n}\nfunc c(\n) {\n}\n"))
	require.Equal(t, Spread{Count: 3, Median: 2, P90: 3, Max: 3, At: "a/a.go:5 c"}, s.Functions)
}

func TestStructsDeclaredTwiceAreThoseOfTwoPackages(t *testing.T) {
	fields := "{ A int; B string; C bool; D %s }\n"
	of := func(typ string) string { return strings.Replace(fields, "%s", typ, 1) }
	s := measure(tree(t,
		"a/a.go", "package a\ntype Turn struct "+of("time.Time")+
			"type Twin struct "+of("time.Time")+"type small struct "+of("int"),
		"b/b.go", "package b\ntype Turn struct "+of("other.Time")+"type Small struct "+of("[]int"),
		"c/c.go", "package c\ntype Wire struct { A int; B string; C bool; D Time `json:\"d\"` }\n",
	))
	require.Equal(t, []string{"a.Turn and b.Turn share 4 fields", "a.Twin and b.Turn share 4 fields"}, s.Twice)
}

func TestInterfacesAreCountedWithWhatTheyEmbed(t *testing.T) {
	s := measure(tree(t,
		"a/a.go", "package a\ntype Six interface { A(); B(); C(); D(); E(); F() }\n",
		"b/b.go", "package b\nimport (\"io\"; \""+module+"a\")\n"+
			"type Eight interface { a.Six; io.Closer; G() }\ntype Seven interface { a.Six; G() }\n",
	))
	require.Equal(t, []Place{{At: "b.Eight", Value: 8}}, s.BigInterface)
}

func TestAssertionsOnViews(t *testing.T) {
	s := measure(tree(t,
		"projections/p.go", "package projections\ntype View interface{}\nvar x = y.(View)\n",
		"cmd/turnledger/c.go", "package main\nvar a = v.(interface{ Drop() })\n"+
			"var b = v.(projections.View)\nvar c = v.(error)\n",
		"services/s/s.go", "package s\nvar a = v.(projections.View)\n",
	))
	require.Len(t, s.Assertions, 3, "%s", s.Assertions)
}

func TestExportedNamesWithoutAComment(t *testing.T) {
	s := measure(tree(t, "a/a.go", "package a\n"+
		"// T has one.\ntype T int\nfunc (T) Bare() {}\nfunc (t) Hidden() {}\n"+
		"func (T) Error() string { return \"\" }\n"+
		"// Of a group.\nconst (\nA = 1\n)\nvar (\nB = 1 // beside\nC = 2\n)\n"))
	require.Equal(t, []string{"a/a.go:4 Bare", "a/a.go:13 C"}, s.NoComment)
}

func TestTheTableHasARowForEachMeasure(t *testing.T) {
	table := "\n" + measure(tree(t, "a/a.go", "package a\nfunc A() {}\n")).table()
	for _, row := range []string{"code, production", "packages", "functions", "widest line", "structs declared twice"} {
		require.Contains(t, table, "\n"+row, row)
	}
}
