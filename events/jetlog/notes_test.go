package jetlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
)

// A process that starts while the server is busy waits for it.
func TestNotesOfASlowServerAreWaitedFor(t *testing.T) {
	t.Parallel()
	nc, wire := natstest.Wired(t)
	log, err := jetlog.Open(t.Context(), nc, jetlog.Config{})
	require.NoError(t, err)
	wire.Lock()
	time.AfterFunc(6*time.Second, wire.Unlock) // JetStream's client gives a question up after 5 s
	_, err = log.Notes(t.Context())
	require.NoError(t, err)
}
