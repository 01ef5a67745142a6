package jetlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
)

// A process that starts while the server is busy waits for it.
func TestASlowServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, slow := range []string{"streams", "notes"} {
		t.Run(slow, func(t *testing.T) {
			t.Parallel()
			nc, wire := natstest.Wired(t)
			ask := func(what string) {
				if what == slow {
					wire.Lock()
					time.AfterFunc(6*time.Second, wire.Unlock) // JetStream's client gives a question up after 5 s
				}
			}
			ask("streams")
			log, err := jetlog.Open(t.Context(), nc, jetlog.Config{})
			require.NoError(t, err)
			ask("notes")
			_, err = log.Notes(t.Context())
			require.NoError(t, err)
		})
	}
}
