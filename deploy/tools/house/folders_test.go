package house_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/tools/source"
)

// A folder of more than twenty Go files, tests left out, holds more than one thing: split it.
func TestFoldersHoldAtMostTwentyFiles(t *testing.T) {
	ratchet(t, "files-beyond-twenty-in-a-folder", beyondTwenty(repository(t)))
}

func beyondTwenty(files []source.File) []string {
	counts := map[string]int{}
	var findings []string
	for _, f := range files {
		if f.Syntax == nil || f.Class() == source.Test {
			continue
		}
		if counts[f.Dir()]++; counts[f.Dir()] > 20 {
			findings = append(findings, fmt.Sprintf("%s is file %d of its folder", f.Path, counts[f.Dir()]))
		}
	}
	slices.Sort(findings)
	return findings
}

func TestFullFoldersAreFound(t *testing.T) {
	var files []source.File
	for i := range 22 {
		for _, form := range []string{"a/f%02d.go", "a/f%02d_test.go", "a/f%02d.md"} {
			f, err := source.Parse(nil, fmt.Sprintf(form, i), []byte("package a\n"))
			require.NoError(t, err)
			files = append(files, f)
		}
	}
	want := []string{"a/f20.go is file 21 of its folder", "a/f21.go is file 22 of its folder"}
	require.Equal(t, want, beyondTwenty(files))
}

// longestFile bounds the lines of a Go file, tests included: a longer file holds more than one subject.
const longestFile = 380

func TestFilesAreAtMost380LinesLong(t *testing.T) {
	ratchet(t, "files-beyond-380-lines", tooLong(repository(t)))
}

func tooLong(files []source.File) []string {
	var findings []string
	for _, f := range files {
		if n := bytes.Count(f.Text, []byte("\n")); f.Syntax != nil && n > longestFile {
			findings = append(findings, fmt.Sprintf("%s: %d lines", f.Path, n))
		}
	}
	return findings
}

func TestLongFilesAreFound(t *testing.T) {
	var files []source.File
	for name, lines := range map[string]int{"a.go": 380, "b_test.go": 381, "c.md": 500} {
		f, err := source.Parse(nil, name, []byte("package a\n"+strings.Repeat("\n", lines-1)))
		require.NoError(t, err)
		files = append(files, f)
	}
	require.Equal(t, []string{"b_test.go: 381 lines"}, tooLong(files))
}
