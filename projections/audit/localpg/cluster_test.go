package localpg

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// made is a data folder with a new cluster, which tests copy: to make one takes more than a second.
var made struct {
	once sync.Once
	dir  string
	err  error
}

// Folder returns a data folder with a cluster that no server has used.
func Folder(t testing.TB) string {
	t.Helper()
	made.once.Do(func() {
		if made.dir, made.err = os.MkdirTemp("", "turnledger-localpg-"); made.err != nil {
			return
		}
		var s *Server
		if s, made.err = Start(t.Context(), Config{DataDir: made.dir, Fast: true}); made.err == nil {
			made.err = s.Stop(t.Context())
		}
	})
	require.NoError(t, made.err)
	dir := t.TempDir()
	require.NoError(t, exec.Command("cp", "-a", filepath.Join(made.dir, "cluster"), dir).Run())
	return dir
}

// RemoveMade removes what Folder copies, when the tests have ended.
func RemoveMade() { _ = os.RemoveAll(made.dir) }
