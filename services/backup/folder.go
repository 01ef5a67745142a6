package backup

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Folder is a Store in a folder, which it creates if it is missing. Its files are readable only by the user who runs
// the process, since backups hold users' texts.
type Folder struct{ Dir string }

var _ Store = Folder{}

// Put implements Store. The file is on disk when it returns.
func (f Folder) Put(_ context.Context, name string, from io.Reader) (err error) {
	defer wrap(&err, "keep "+name)
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	to, err := renameio.NewPendingFile(filepath.Join(f.Dir, name), renameio.WithPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = to.Cleanup() }()
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	if err := to.CloseAtomicallyReplace(); err != nil {
		return err
	}
	dir, err := os.Open(f.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return dir.Sync()
}

// wrap adds to an error what the store was doing.
func wrap(err *error, what string) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", what, *err)
	}
}

// Open implements Store.
func (f Folder) Open(_ context.Context, name string) (*os.File, error) {
	return os.Open(filepath.Join(f.Dir, name)) //nolint:gosec // a folder that the operator named, and a name of our own
}
