package history_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/services"
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
			_, err = erasing.EraseIdentity(t.Context(), identity, services.Erasure{})
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

// The server forgets a message id after two minutes: until then an attempt that comes again
// is one, and one from elsewhere is another.
func TestWhoAsksFromAnotherAddressIsRememberedToo(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := run(t, log)
	_, err := s.LinkSession(t.Context(), "s", "ada", "")
	require.NoError(t, err)
	for _, source := range []string{"here", "there"} {
		_, err := s.LinkSession(t.Context(), "s", "eve", source)
		require.ErrorIs(t, err, conversation.ErrLinkedElsewhere)
	}
	var sources []string
	for e, err := range log.Session(t.Context(), "s", 0, math.MaxUint64) {
		require.NoError(t, err)
		if f, ok := e.Fact.(*events.LinkRefused); ok {
			sources = append(sources, f.SourceHash)
		}
	}
	require.Equal(t, []string{"here", "there"}, sources)
}
