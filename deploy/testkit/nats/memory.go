package nats

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Memory returns a folder on a tmpfs, for a server to stage batches in. Nothing of it outlives a power cut, so after
// one a server gets another.
func Memory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "natstest-") //nolint:usetesting // it must be a tmpfs
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
