package nats

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Holding returns the files below some folders, and below those that links lead to, that contain a text. Files that
// vanish meanwhile don't count, and folders named in except are left out.
func Holding(t testing.TB, text string, dirs []string, except ...string) []string {
	t.Helper()
	return HoldingEach([]string{text}, dirs, except...)[text]
}

// HoldingEach does so for several texts, and reads each file once.
func HoldingEach(texts, dirs []string, except ...string) map[string][]string {
	out := map[string][]string{}
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil //nolint:nilerr // gone meanwhile
			case e.IsDir():
				if slices.Contains(except, e.Name()) {
					return fs.SkipDir
				}
				return nil
			case e.Type() == fs.ModeSymlink:
				if to, err := filepath.EvalSymlinks(path); err == nil {
					for text, files := range HoldingEach(texts, []string{to}, except...) {
						out[text] = append(out[text], files...)
					}
				}
				return nil
			}
			raw, err := os.ReadFile(path)
			for _, text := range texts {
				if err == nil && bytes.Contains(raw, []byte(text)) {
					out[text] = append(out[text], path)
				}
			}
			return nil
		})
	}
	return out
}
