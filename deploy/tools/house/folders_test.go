package house_test

import (
	"fmt"
	"slices"
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
