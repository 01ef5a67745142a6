package stack

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// FormerCommit is the version before this one. This version must open its data and run beside its processes.
const FormerCommit = "bac467c9d1a10444d73fd05d8c0b02d8db710dc9"

var errNoFormerCommit = errors.New("the commit of the version before is not in this clone: fetch it with " +
	"`git fetch --unshallow`, or `git fetch origin " + FormerCommit + "`")

// FormerBinary returns the path of the binary of the version before, built from git. If the clone does not hold that
// commit, a long form fails and a short form is skipped; both say how to fetch it.
func FormerBinary(t testing.TB) string {
	t.Helper()
	path, err := buildFormer()
	if errors.Is(err, errNoFormerCommit) && !Long() {
		t.Skip(err)
	}
	require.NoError(t, err)
	return path
}

var formerDir string // removed at the end of the tests

var buildFormer = sync.OnceValues(func() (string, error) {
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", errors.Join(errNoFormerCommit, err)
	}
	var archive, said bytes.Buffer
	cmd := exec.Command("git", "archive", "--format=tar", FormerCommit)
	cmd.Dir, cmd.Stdout, cmd.Stderr = strings.TrimSpace(string(top)), &archive, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w\n%w: %s", errNoFormerCommit, err, &said)
	}
	if formerDir, err = os.MkdirTemp("", "turnledger-former-"); err != nil {
		return "", err
	}
	if err := Unpack(formerDir, &archive); err != nil {
		return "", err
	}
	binary := filepath.Join(formerDir, "bin", "turnledger")
	// -trimpath keeps the folder's name out of the build, so that Go's build cache serves the next build.
	cmd = exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "./cmd/turnledger")
	cmd.Dir = formerDir
	if printed, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the version before: %w\n%s", err, printed)
	}
	return binary, nil
})

// Unpack writes the files of a tar archive into a folder.
func Unpack(dir string, archive io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		raw, err := io.ReadAll(files)
		if err == nil {
			err = root.MkdirAll(filepath.Dir(header.Name), 0o750)
		}
		if err == nil {
			err = root.WriteFile(header.Name, raw, header.FileInfo().Mode().Perm())
		}
		if err != nil {
			return err
		}
	}
}
