package house_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/tools/source"
)

// Lines are at most 120 columns wide, tabs counted as four. Tables, links, code blocks, recorded data and
// struct tags are exempt.
func TestLinesFit(t *testing.T) {
	var code, pages []string
	for _, f := range repository(t) {
		for _, w := range f.Wider(120) {
			finding := fmt.Sprintf("%s:%d is %d columns wide", f.Path, w.Line, w.Columns)
			if f.Syntax != nil {
				code = append(code, finding)
			} else {
				pages = append(pages, finding)
			}
		}
	}
	ratchet(t, "wide-lines-go", code)
	ratchet(t, "wide-lines-other", pages)
}

func TestWideLinesAreFound(t *testing.T) {
	long := strings.Repeat("x", 118)
	require.Equal(t, 121, source.Columns("\té"+strings.Repeat("x", 116)))
	lines := func(path, text string) (found []int) {
		f, err := source.Parse(nil, path, []byte(text))
		require.NoError(t, err)
		for _, w := range f.Wider(120) {
			found = append(found, w.Line)
		}
		return found
	}
	require.Equal(t, []int{3, 5}, lines("a.md", "ok\n\n"+long+" yz\n\n- "+long+"y\n"))
	require.Empty(t, lines("a.md", "```\n"+long+" yz\n```\n| "+long+" |\n[a](https://a.example/"+long+")\n"))
	require.Equal(t, []int{2, 3}, lines("a.go", "package a\n// "+long+"\nvar _ = \""+long+"\"\n"))
	require.Equal(t, []int{3}, lines("a.go", "package a\nvar _ = `select\n"+long+" yz\n`\n"), "it can be wrapped")
	require.Empty(t, lines("a.go", "package a\nvar _ = `{\n{"+long+" yz\n}`\n"), "recorded JSON")
	require.Equal(t, []int{1}, lines("deploy/a.yml", "a: "+long+"\n"))
	require.Empty(t, lines("a.go", "package a\nvar _ = `{"+long+"}`\n"))
	require.Empty(t, lines("a.go", "package a\ntype T struct {\n\tA int `json:\""+long+"\"`\n}\n"))
}
