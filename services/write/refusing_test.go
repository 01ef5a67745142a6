package write_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
)

// refusing is a log that refuses to append some facts.
type refusing struct {
	*jetlog.Log
	refuses func(events.Fact) error
}

func (l *refusing) Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error) {
	for _, f := range a.Facts {
		if err := l.refuses(f); err != nil {
			return jetlog.Ack{}, err
		}
	}
	return l.Log.Append(ctx, a)
}

// Where the log does not take one turn of a session for the moment, the later ones of the session are not tried, so
// that none comes before it. What was recorded before keeps its answer, and so do other sessions.
func TestNoLineComesBeforeOneThatTheLogRefused(t *testing.T) {
	t.Parallel()
	log := &refusing{Log: natstest.Log(t, 1)}
	log.refuses = func(f events.Fact) error {
		if s, ok := f.(*events.TurnRecorded); ok && s.SessionID == "s" && s.RequestID == "r1" {
			return jetlog.ErrNoWrites
		}
		return nil
	}
	s := runOn(t, log)
	commands := turnsOf(3, "s", "t")
	// Each line of a session is a run of its own.
	for i := range commands {
		if commands[i].RequestID == "r1" {
			commands[i].IdentityID = "ada"
		}
	}
	for i, o := range s.StartTurns(t.Context(), commands) {
		if c := commands[i]; c.SessionID == "s" && c.RequestID != "r0" {
			require.ErrorIs(t, o.Err, jetlog.ErrNoWrites, c.RequestID)
			continue
		}
		require.NoError(t, o.Err)
		require.Equal(t, session.Finalized, o.Turn.Status)
	}
	st := natstest.Fold(t, log.Log, "s", session.Rules{})
	require.Equal(t, 1, st.Finalized)
	require.Nil(t, st.Turn(events.TurnID("s", "r2")))
	require.Equal(t, 3, natstest.Fold(t, log.Log, "t", session.Rules{}).Finalized)
	// Sent again, they come in their order.
	log.refuses = func(events.Fact) error { return nil }
	for _, o := range s.StartTurns(t.Context(), commands) {
		require.NoError(t, o.Err)
	}
	for i, turn := range natstest.Fold(t, log.Log, "s", session.Rules{}).Turns {
		require.Equal(t, fmt.Sprint("r", i), turn.RequestID)
	}
}

// before is a log in which another process writes right before an append.
type before struct {
	*jetlog.Log
	theirs events.Fact
}

func (l *before) Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error) {
	if f := l.theirs; f != nil {
		l.theirs = nil
		if _, err := l.Log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}}); err != nil {
			return jetlog.Ack{}, err
		}
	}
	return l.Log.Append(ctx, a)
}

// Another process links the session to another identity right before a batch is appended: no turn of the batch gets
// into it, whether the session is new or not, also where the last line needs no append since its turn stands.
func TestABatchLosesItsSessionToAnotherIdentity(t *testing.T) {
	t.Parallel()
	log := &before{Log: natstest.Log(t, 1)}
	s := runOn(t, log)
	for sessionID, stands := range map[string][]string{"new": nil, "known": {"r"}, "with the last": {"last"}} {
		for _, request := range stands {
			must.Get(s.StartTurn(t.Context(), start(sessionID, request)))(t)
		}
		lines := append(turnsOf(3, sessionID), wholeTurn(sessionID, "last"))
		for i := range lines {
			lines[i].IdentityID, lines[i].OnlyNew = "ada", sessionID == "with the last"
		}
		log.theirs = &events.SessionLinked{SessionID: sessionID, IdentityID: "bob"}
		for i, o := range s.StartTurns(t.Context(), lines) {
			require.ErrorIs(t, o.Err, decide.ErrLinkedElsewhere, "%s %d", sessionID, i)
		}
		require.Nil(t, log.theirs, "the link came first")
		st := natstest.Fold(t, log.Log, sessionID, session.Rules{})
		require.Len(t, st.Turns, len(stands), sessionID)
		require.Equal(t, "bob", st.Head().Identity)
	}
}
