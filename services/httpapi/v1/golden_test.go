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

// The page has a section for each call of the document.
//
//conformance:c5
func TestThePageShowsEachCall(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{})
	page := string(s.do("GET", "/docs", nil).raw)
	for path, item := range s.do("GET", "/openapi.json", nil).body["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			id := op.(map[string]any)["operationId"].(string)
			require.Contains(t, page, `<section id="`+id+`">`, "%s %s", method, path)
		}
	}
}
