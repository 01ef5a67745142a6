package embedded

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileSystemsThatKeepTheOrderOfRenames(t *testing.T) {
	t.Parallel()
	for magic, safe := range map[int64]bool{
		0xef53: true, 0x9123683e: true, 0x2fc12fc1: true, 0x01021994: true,
		/* fuse */
		0x58465342: false /* xfs */, 0x6969: false /* nfs */, 0x794c7630: false /* overlayfs */, 0x65735546: false,
	} {
		if safe {
			require.NoError(t, order(magic), "%x", magic)
		} else {
			require.ErrorIs(t, order(magic), ErrFileSystem, "%x", magic)
		}
	}
}

func TestFileSystemOfAFolderThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.ErrorIs(t, CheckFileSystem("/proc/none/of/these"), ErrFileSystem)
	require.Equal(t, CheckFileSystem(dir), CheckFileSystem(filepath.Join(dir, "a", "b")))
}
