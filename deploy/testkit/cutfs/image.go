package cutfs

import (
	"io/fs"
	"slices"
	"strings"
)

// Image is the content of a disk after one cut. No process writes to it. Safe for concurrent use.
type Image struct{ disk *disk }

// ReadFile returns a copy of a surviving file's bytes. name is separated by slashes, and begins at the root of the disk
// without a slash. ReadFile fails with [fs.ErrNotExist] or [fs.ErrInvalid], as a [fs.PathError].
func (img *Image) ReadFile(name string) ([]byte, error) {
	n := img.disk.root
	for part := range strings.SplitSeq(name, "/") {
		if n = n.dir.now[part]; n == nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist}
		}
	}
	if n.isDir() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrInvalid}
	}
	return slices.Clone(n.file.now), nil
}

// Paths returns the surviving paths, sorted; directories end in a slash.
func (img *Image) Paths() []string {
	paths := appendPaths(nil, "", img.disk.root)
	slices.Sort(paths)
	return paths
}

func appendPaths(paths []string, under string, dir *node) []string {
	for name, n := range dir.dir.now {
		path := under + name
		if n.isDir() {
			path += "/"
			paths = appendPaths(paths, path, n)
		}
		paths = append(paths, path)
	}
	return paths
}
