package nats

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/gobuild"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/ports"
)

// program builds nats-server from the module that go.mod names.
func program(t testing.TB) string {
	t.Helper()
	built := &gobuild.Program{Name: "nats-server", Package: "github.com/nats-io/nats-server/v2"}
	t.Cleanup(built.Remove)
	path := must.Get(built.Path())(t)
	return path
}

// aloneConfig is the configuration of one node, as in deploy/nats.conf.
const aloneConfig = `listen: "%s"
max_payload: 8MB
jetstream { store_dir: "%s", sync_interval: always }
`

// Alone starts a nats-server process on the data of a server that has stopped, and connects to it.
func Alone(t testing.TB, dir string) *nats.Conn {
	t.Helper()
	address := ports.FreeAddress(t)
	config := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, aloneConfig, address, dir), 0o600))
	cmd := exec.Command(program(t), "-c", config)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var nc *nats.Conn
	hang.Until(t, func() (up bool) {
		var err error
		nc, err = nats.Connect("nats://" + address)
		return err == nil
	})
	t.Cleanup(nc.Close)
	return nc
}
