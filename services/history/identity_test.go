package history_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// One process erases an identity; another, which may not have read that yet, takes no
// write to a session of it right after the answer, nor begins one.
func TestAWriteRightAfterAnIdentityIsErased(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		server := natstest.Server(t)
		log := natstest.LogOn(t, server, partitions)
		erasing, writing := run(t, natstest.LogOn(t, server, partitions)), run(t, log)
		for i := range 100 {
			session, identity := fmt.Sprint("s", i), fmt.Sprint("of s", i)
			_, err := writing.StartTurn(t.Context(), start(session, "r1"))
			require.NoError(t, err)
			_, err = writing.LinkSession(t.Context(), session, identity, "")
			require.NoError(t, err)
			_, err = erasing.EraseIdentity(t.Context(), identity, services.Erasure{})
			require.NoError(t, err)
			if i%2 == 0 { // every other time a batch comes first
				late := append(turnsOf(3, session), wholeTurn(session, "late"))
				for _, o := range writing.StartTurns(t.Context(), late) {
					require.ErrorIs(t, o.Err, conversation.ErrSessionErased, session)
				}
			}
			_, err = writing.StartTurn(t.Context(), start(session, "r2"))
			require.ErrorIs(t, err, conversation.ErrSessionErased, session)
			_, err = writing.StartTurn(t.Context(), start(session, "r1"))
			require.ErrorIs(t, err, conversation.ErrSessionErased, session)
			anew := start("new "+session, "r1")
			anew.IdentityID = identity
			_, err = writing.StartTurn(t.Context(), anew)
			require.ErrorIs(t, err, conversation.ErrSessionErased, session)
			anew.SessionID = "batch " + session
			for _, o := range writing.StartTurns(t.Context(), []conversation.Start{anew}) {
				require.ErrorIs(t, o.Err, conversation.ErrSessionErased, session)
			}
			require.Empty(t, eventsOf(t, log, anew.SessionID))
		}
	}
}

// Another process erases the identity of a session right before a turn or a batch is appended. No turn of them counts,
// though the writer sees its own event before it sees that the session is closed.
func TestAnIdentityIsErasedRightBeforeAnAppend(t *testing.T) {
	t.Parallel()
	log := &before{Log: natstest.Log(t, 1)}
	s := runOn(t, log)
	for name, write := range map[string]func(session string) []error{
		"turn": func(session string) []error {
			_, err := s.StartTurn(t.Context(), start(session, "late"))
			return []error{err}
		},
		"batch": func(session string) []error { return errorsOf(s.StartTurns(t.Context(), turnsOf(3, session))) },
	} {
		_, err := s.StartTurn(t.Context(), start(name, "first"))
		require.NoError(t, err)
		_, err = s.LinkSession(t.Context(), name, "of "+name, "")
		require.NoError(t, err)
		log.theirs = &events.IdentityErased{IdentityID: "of " + name, ReceiptID: "0-1-abc"}
		for i, err := range write(name) {
			require.ErrorIs(t, err, conversation.ErrSessionErased, "%s %d", name, i)
		}
		require.Nil(t, log.theirs, "the erasure came first")
	}
}

// A session that is linked to an identity that was erased is closed before its writer is answered. It was nobody's
// before, so the link counted.
func TestASessionIsLinkedToAnIdentityThatWasErased(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := run(t, log)
	_, err := s.StartTurn(t.Context(), start("s", "first"))
	require.NoError(t, err)
	_, err = s.EraseIdentity(t.Context(), "ada", services.Erasure{})
	require.NoError(t, err)
	linked, err := s.LinkSession(t.Context(), "s", "ada", "")
	require.NoError(t, err)
	require.Equal(t, "ada", linked.Identity)
	require.False(t, linked.Duplicate)
	require.NotZero(t, natstest.Fold(t, log, "s", conversation.Rules{}).Erased)
	_, err = s.LinkSession(t.Context(), "s", "ada", "")
	require.ErrorIs(t, err, conversation.ErrSessionErased)
}

// Another process erases the identity right behind the append. Each turn counted before, and its writer is told so.
func TestAnIdentityIsErasedRightBehindAnAppend(t *testing.T) {
	t.Parallel()
	log := &between{Log: natstest.Log(t, 1)}
	s := runOn(t, log)
	for name, write := range map[string]func(session string) []error{
		"turn": func(session string) []error {
			turn, err := s.StartTurn(t.Context(), start(session, "late"))
			require.Equal(t, conversation.Pending, turn.Status)
			return []error{err}
		},
		"batch": func(session string) []error { return errorsOf(s.StartTurns(t.Context(), turnsOf(3, session))) },
	} {
		_, err := s.StartTurn(t.Context(), start(name, "first"))
		require.NoError(t, err)
		_, err = s.LinkSession(t.Context(), name, "of "+name, "")
		require.NoError(t, err)
		log.behind = []events.Fact{&events.IdentityErased{IdentityID: "of " + name, ReceiptID: "0-1-abc"}}
		for i, err := range write(name) {
			require.NoError(t, err, "%s %d", name, i)
		}
		_, err = s.StartTurn(t.Context(), start(name, "later"))
		require.ErrorIs(t, err, conversation.ErrSessionErased, name)
	}
}

func errorsOf(outcomes []services.TurnOutcome) (all []error) {
	for _, o := range outcomes {
		all = append(all, o.Err)
	}
	return all
}

// An attempt that comes again is one, and one from elsewhere is another. Each has an id of its own, also where the same
// attempt comes once more after others.
//
//conformance:l1
func TestEachRefusedLinkHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := run(t, log)
	_, err := s.LinkSession(t.Context(), "s", "ada", "")
	require.NoError(t, err)
	for _, source := range []string{"here", "here", "there", "here", "here"} {
		_, err := s.LinkSession(t.Context(), "s", "eve", source)
		require.ErrorIs(t, err, conversation.ErrLinkedElsewhere)
	}
	for range 2 {
		for _, o := range s.StartTurns(t.Context(), forEve(turnsOf(3, "s"))) {
			require.ErrorIs(t, o.Err, conversation.ErrLinkedElsewhere)
		}
	}
	var sources []string
	ids := map[string]bool{}
	for e, err := range log.Session(t.Context(), "s", 0, math.MaxUint64) {
		require.NoError(t, err)
		require.Empty(t, e.Problem)
		require.False(t, ids[e.ID], "two events are %s", e.ID)
		ids[e.ID] = true
		if f, ok := e.Fact.(*events.LinkRefused); ok {
			sources = append(sources, f.SourceHash)
		}
	}
	require.Equal(t, []string{"here", "there", "here", "a batch"}, sources)
}

func forEve(commands []conversation.Start) []conversation.Start {
	for i := range commands {
		commands[i].IdentityID, commands[i].SourceHash = "eve", "a batch"
	}
	return commands
}
