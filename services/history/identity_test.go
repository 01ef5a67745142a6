package history_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/services/history"
)

// One process erases an identity; another, which may not have read that yet, takes no
// write to a session of it right after the answer, nor begins one.
func TestAWriteRightAfterAnIdentityIsErased(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		server := natstest.Server(t)
		erasing, writing := run(t, natstest.LogOn(t, server, partitions)), run(t, natstest.LogOn(t, server, partitions))
		for i := range 100 {
			session, identity := fmt.Sprint("s", i), fmt.Sprint("of s", i)
			_, err := writing.StartTurn(t.Context(), start(session, "r1"))
			require.NoError(t, err)
			_, err = writing.LinkSession(t.Context(), session, identity, "")
			require.NoError(t, err)
			_, err = erasing.EraseIdentity(t.Context(), identity, history.Erasure{})
			require.NoError(t, err)
			_, err = writing.StartTurn(t.Context(), start(session, "r2"))
			require.ErrorIs(t, err, conversation.ErrSessionErased, session)
			_, err = writing.StartTurn(t.Context(), start(session, "r1"))
			require.ErrorIs(t, err, conversation.ErrSessionErased, session)
			anew := start("new "+session, "r1")
			anew.IdentityID = identity
			_, err = writing.StartTurn(t.Context(), anew)
			require.ErrorIs(t, err, conversation.ErrSessionErased, session)
		}
	}
}
