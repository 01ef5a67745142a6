package write_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/write"
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
			must.Get(writing.StartTurn(t.Context(), start(session, "r1")))(t)
			must.Get(writing.LinkSession(t.Context(), session, identity, ""))(t)
			must.Get(erasing.EraseIdentity(t.Context(), identity, services.Erasure{}))(t)
			if i%2 == 0 { // every other time a batch comes first
				late := append(turnsOf(3, session), wholeTurn(session, "late"))
				for _, o := range writing.StartTurns(t.Context(), late) {
					require.ErrorIs(t, o.Err, decide.ErrSessionErased, session)
				}
			}
			must.Fail(writing.StartTurn(t.Context(), start(session, "r2")))(t, decide.ErrSessionErased, session)
			must.Fail(writing.StartTurn(t.Context(), start(session, "r1")))(t, decide.ErrSessionErased, session)
			anew := start("new "+session, "r1")
			anew.IdentityID = identity
			must.Fail(writing.StartTurn(t.Context(), anew))(t, decide.ErrSessionErased, session)
			anew.SessionID = "batch " + session
			for _, o := range writing.StartTurns(t.Context(), []decide.Start{anew}) {
				require.ErrorIs(t, o.Err, decide.ErrSessionErased, session)
			}
			require.Empty(t, logtest.Read(t, log, anew.SessionID))
		}
	}
}

// Another process erases the identity of a session right before a turn or a batch is appended, or right behind. No turn
// of them counts that comes behind it, though the writer sees its own event before it sees that the session is closed.
// Each turn that came before it counted, and its writer is told so.
func TestAnIdentityIsErasedBesideAnAppend(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	before, behind := &before{Log: log}, &between{Log: log}
	for name, does := range map[string]func(s *write.Service, sessionID string) error{
		"turn": func(s *write.Service, sessionID string) error {
			turn, err := s.StartTurn(t.Context(), start(sessionID, "late"))
			require.Equal(t, session.Pending, turn.Status)
			return err
		},
		"batch": func(s *write.Service, sessionID string) error {
			all := s.StartTurns(t.Context(), turnsOf(3, sessionID))
			for _, o := range all {
				require.Equal(t, all[0].Err, o.Err)
			}
			return all[0].Err
		},
	} {
		for at, s := range map[string]*write.Service{"before": runOn(t, before), "behind": runOn(t, behind)} {
			sessionID := name + " " + at
			must.Get(s.StartTurn(t.Context(), start(sessionID, "first")))(t)
			must.Get(s.LinkSession(t.Context(), sessionID, "of "+sessionID, ""))(t)
			erased := &events.IdentityErased{IdentityID: "of " + sessionID, ReceiptID: "0-1-abc"}
			if at == "before" {
				before.theirs = erased
				require.ErrorIs(t, does(s, sessionID), decide.ErrSessionErased, sessionID)
				require.Nil(t, before.theirs, "the erasure came first")
				continue
			}
			behind.behind = []events.Fact{erased}
			require.NoError(t, does(s, sessionID), sessionID)
			must.Fail(s.StartTurn(t.Context(), start(sessionID, "later")))(t, decide.ErrSessionErased, sessionID)
		}
	}
}

// A session that is linked to an identity that was erased is closed before its writer is answered. It was nobody's
// before, so the link counted.
func TestASessionIsLinkedToAnIdentityThatWasErased(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := run(t, log)
	must.Get(s.StartTurn(t.Context(), start("s", "first")))(t)
	must.Get(s.EraseIdentity(t.Context(), "ada", services.Erasure{}))(t)
	linked := must.Get(s.LinkSession(t.Context(), "s", "ada", ""))(t)
	require.Equal(t, "ada", linked.Identity)
	require.False(t, linked.Duplicate)
	require.NotZero(t, natstest.Fold(t, log, "s", session.Rules{}).Erased)
	must.Fail(s.LinkSession(t.Context(), "s", "ada", ""))(t, decide.ErrSessionErased)
}

// An attempt that comes again is one, and one from elsewhere is another. Each has an id of its own, also where the same
// attempt comes once more after others.
//
//conformance:l1
func TestEachRefusedLinkHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := run(t, log)
	must.Get(s.LinkSession(t.Context(), "s", "ada", ""))(t)
	for _, source := range []string{"here", "here", "there", "here", "here"} {
		must.Fail(s.LinkSession(t.Context(), "s", "eve", source))(t, decide.ErrLinkedElsewhere)
	}
	for range 2 {
		for _, o := range s.StartTurns(t.Context(), forEve(turnsOf(3, "s"))) {
			require.ErrorIs(t, o.Err, decide.ErrLinkedElsewhere)
		}
	}
	var sources []string
	ids := map[string]bool{}
	for _, e := range logtest.Read(t, log, "s") {
		require.Empty(t, e.Problem)
		require.False(t, ids[e.ID], "two events are %s", e.ID)
		ids[e.ID] = true
		if f, ok := e.Fact.(*events.LinkRefused); ok {
			sources = append(sources, f.SourceHash)
		}
	}
	require.Equal(t, []string{"here", "there", "here", "a batch"}, sources)
}

func forEve(commands []decide.Start) []decide.Start {
	for i := range commands {
		commands[i].IdentityID, commands[i].SourceHash = "eve", "a batch"
	}
	return commands
}
