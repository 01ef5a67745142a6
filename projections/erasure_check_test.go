package projections_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// What was read of an identity does not pass the gate when the identity was erased meanwhile; what belongs to nobody
// passes.
func TestNothingOfAnErasedIdentityPassesTheGate(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := natstest.Append(t, log, turntest.Started("s", "r", "q"),
		&events.SessionLinked{SessionID: "s", IdentityID: "ada"})
	erasures := projections.ErasureCheck{Log: log}
	text := func(identity string, meanwhile ...events.Fact) string {
		out := must.Get(projections.Unerased(t.Context(), erasures, identity, func() (string, error) {
			natstest.Append(t, log, meanwhile...)
			return "text", nil
		}))(t)
		return out
	}
	state := natstest.Fold(t, log, "s", session.Rules{})
	require.NoError(t, erasures.Session(t.Context(), state, at))
	require.Len(t, state.Turns, 1)
	require.Equal(t, "text", text("ada"))
	require.Empty(t, text("ada", &events.IdentityErased{IdentityID: "ada", ReceiptID: "r"}))
	require.Equal(t, "text", text("bob"))
	require.Equal(t, "text", text(""))

	require.NoError(t, erasures.Session(t.Context(), state, must.Get(log.Head(t.Context(), 0))(t)))
	require.Empty(t, state.Turns)
	require.NotZero(t, state.Erased)

	refused := errors.New("refused")
	_, err := projections.Unerased(t.Context(), erasures, "bob", func() (string, error) { return "text", refused })
	require.ErrorIs(t, err, refused)
}
