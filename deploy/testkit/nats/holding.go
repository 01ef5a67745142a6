package nats

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Holding returns the files below some folders, and below those that links lead to, that contain a text. Files that
// vanish meanwhile don't count, and folders named in except are left out.
func Holding(t testing.TB, text string, dirs []string, except ...string) (out []string) {
	t.Helper()
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil //nolint:nilerr // gone meanwhile
			case e.IsDir():
				for _, name := range except {
					if e.Name() == name {
						return fs.SkipDir
					}
				}
				return nil
			case e.Type() == fs.ModeSymlink:
				if to, err := filepath.EvalSymlinks(path); err == nil {
					out = append(out, Holding(t, text, []string{to}, except...)...)
				}
				return nil
			}
			if raw, err := os.ReadFile(path); err == nil && bytes.Contains(raw, []byte(text)) {
				out = append(out, path)
			}
			return nil
		})
	}
	return out
}
