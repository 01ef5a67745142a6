package embedded

import (
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
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

// A machine so busy that the server did not come to look within its millisecond is no
// reason to begin JetStream anew under all who write.
func TestABusyMachineIsNotASickStore(t *testing.T) {
	t.Parallel()
	busy := server.HealthzError{Type: server.HealthzErrorConn, Error: "failed to be ready for connections after 1ms: "}
	full := server.HealthzError{Type: server.HealthzErrorJetStream,
		Error: "JetStream has not established contact with a meta leader"}
	require.Empty(t, sickness(&server.HealthStatus{Status: "ok"}))
	require.Empty(t, sickness(&server.HealthStatus{Status: "error", Errors: []server.HealthzError{busy}}))
	require.Equal(t, full.Error, sickness(&server.HealthStatus{Status: "error", Errors: []server.HealthzError{busy,
		full}}))
}
