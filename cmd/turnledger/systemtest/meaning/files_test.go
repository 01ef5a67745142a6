package meaning_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// holdsBytes reports whether a file under a folder holds a text.
func holdsBytes(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // a file may go meanwhile
		}
		raw, err := os.ReadFile(path)
		found = found || err == nil && bytes.Contains(raw, []byte(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
