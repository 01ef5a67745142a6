package v1_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// What the server says of itself is part of the contract: a difference here is one that every client sees.
func TestTheDocumentAndItsPageAreGolden(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{})
	for path, golden := range map[string]string{"/openapi.json": "openapi.json", "/docs": "docs.html"} {
		got, name := s.do("GET", path, nil).raw, filepath.Join("testdata", golden)
		if *update {
			require.NoError(t, os.WriteFile(name, got, 0o600))
		}
		want, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "go test -run Golden -update writes %s anew", name)
	}
}
