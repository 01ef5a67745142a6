package systemtest_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// gate lets clients into a NATS server while it is open, and counts those that it turned away.
type refuser struct {
	closed  atomic.Bool
	refused atomic.Int64
}

// Check implements natsserver.Authentication.
func (d *refuser) Check(natsserver.ClientAuthentication) bool {
	if d.closed.Load() {
		d.refused.Add(1)
	}
	return !d.closed.Load()
}

// NATS refuses the process's credentials for a while, as after a wrong change of the password, and is then mended. The
// process, which was turned away many times and logged it, comes back without a restart.
func TestAProcessThatNATSRefusedComesBack(t *testing.T) {
	t.Parallel()
	d := &refuser{}
	ns := stack.StartNATS(t, natsserver.Options{CustomClientAuthentication: d})
	p := stack.Start(t, []string{"TURNLEDGER_NATS_LISTEN=",
		"TURNLEDGER_NATS_URL=nats://u:SECRET@" + ns.Addr().String()}, "serve", "--roles", "api,context")
	p.RecordExchange(t, "s", 0)

	d.closed.Store(true)
	clients, err := ns.Connz(nil)
	require.NoError(t, err)
	require.NotEmpty(t, clients.Conns)
	for _, c := range clients.Conns {
		_ = ns.DisconnectClientByID(c.Cid) // it may be gone by itself
	}
	hang.Until(t, func() bool { return d.refused.Load() >= 5 }, "%s", p.Log)
	hang.Until(t, func() bool {
		status, out, err := p.Call(t.Context(), http.MethodGet, "/readyz", nil)
		if err != nil || status != http.StatusServiceUnavailable {
			return false
		}
		reason, _ := out["checks"].(map[string]any)["log"].(map[string]any)["reason"].(string)
		return strings.Contains(reason, "NATS does not let this process in")
	}, "%s", p.Log)
	d.closed.Store(false)
	p.WaitReady(t)
	p.RecordExchange(t, "s", 1)
	p.Stop(t)
	require.NotContains(t, p.Log.String(), "SECRET")
}
