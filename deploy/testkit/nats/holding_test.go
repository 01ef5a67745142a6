package nats_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
)

func TestHoldingLooksBehindLinks(t *testing.T) {
	t.Parallel()
	dir, aside := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(aside, filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(filepath.Join(aside, "missing"), filepath.Join(dir, "dangling")))
	found := filepath.Join(aside, "found")
	require.NoError(t, os.WriteFile(found, []byte("a SECRET text"), 0o600))
	require.Equal(t, []string{found}, natstest.Holding(t, "SECRET", []string{dir}))
	require.Empty(t, natstest.Holding(t, "OTHER", []string{dir}))
}
