package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConformanceNamesTestsThatExist holds docs/conformance.md against the repository:
// each row names a test, each name is one, and each quoted subtest is in its file.
func TestConformanceNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	tests := map[string]string{} // the text of the file that has it
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			tests[m[1]] = string(text)
		}
		return err
	}))
	page, err := os.ReadFile("../../docs/conformance.md")
	require.NoError(t, err)
	named := regexp.MustCompile(`\b((?:Test|Fuzz)[A-Z]\w+)(?: "([^"]+)")?`)
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || strings.Contains(cells[1], "---") || strings.TrimSpace(cells[3]) == "built in" {
			continue
		}
		rows++
		found := named.FindAllStringSubmatch(cells[4], -1)
		require.True(t, len(found) > 0 || strings.Contains(cells[3], "does not apply"), "no test: %s", line)
		for _, m := range found {
			require.Contains(t, tests, m[1], line)
			require.True(t, m[2] == "" || strings.Contains(tests[m[1]], `"`+m[2]+`"`), "%s has no %q", m[1], m[2])
		}
	}
	require.Greater(t, rows, 40)
}
