package embedded

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

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
