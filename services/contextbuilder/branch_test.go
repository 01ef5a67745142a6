package contextbuilder_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/write"
)

// A turn that was pending when a branch was made is not in it, though it is answered later.
func TestATurnThatWasPendingAtTheForkIsNotShared(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 4)
	writes := write.New(write.On(log), write.Config{Rules: rules})
	natstest.Run(t, writes.Run)
	for _, c := range []decide.Start{
		{RequestID: "early", Question: events.Question{QuestionNeutral: "early"}},
		{RequestID: "answered", Question: events.Question{QuestionNeutral: "answered"},
			Answer: &events.Answer{AnswerNeutral: "a"}},
	} {
		c.SessionID = "parent"
		must.Get(writes.StartTurn(t.Context(), c))(t)
	}
	must.Get(writes.ForkSession(t.Context(), decide.ForkSession{SessionID: "parent", RequestID: "f",
		ChildID: "branch"}))(t)
	must.Get(writes.FinalizeTurn(t.Context(), decide.Finalize{SessionID: "parent",
		TurnID: events.TurnID("parent", "early"), Answer: events.Answer{AnswerNeutral: "late"}}))(t)
	reader := read.New(log, read.Config{Rules: rules})
	for session, want := range map[string][]string{"parent": {"early", "answered"}, "branch": {"answered"}} {
		reading := must.Get(reader.Read(t.Context(), services.Ask{SessionID: session, AllTurns: true}))(t)
		var shown []string
		for _, turn := range reading.State.Turns {
			shown = append(shown, turn.Question.QuestionNeutral)
		}
		require.Equal(t, want, shown)
	}
}

// A foreign publisher links a branch to somebody, and forks a session from one of somebody else. The identity is that
// of the root all the same, and nothing of a session is shared that is no branch of that root.
func TestForeignLinksAndForksOfBranchesAreNotBelieved(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 4)
	writes := write.New(write.On(log), write.Config{Rules: rules})
	natstest.Run(t, writes.Run)
	for _, session := range []string{"root", "other"} {
		_, err := writes.StartTurn(t.Context(), decide.Start{SessionID: session, RequestID: "1",
			Question: events.Question{QuestionNeutral: "of " + session}, Answer: &events.Answer{AnswerNeutral: "a"}})
		require.NoError(t, err)
	}
	made := must.Get(writes.ForkSession(t.Context(), decide.ForkSession{SessionID: "root", RequestID: "f",
		ChildID: "branch"}))(t)
	link := natstest.Append(t, log, &events.SessionLinked{SessionID: "branch", IdentityID: "bob"})
	stolen := natstest.Append(t, log, &events.SessionForked{SessionID: "thief", RequestID: "f", FromSessionID: "other",
		Root: "root", Segments: []events.Segment{{SessionID: "other", ThroughTurnID: events.TurnID("other", "1"),
			Through: events.Position{Partition: events.Partition("other", 4), Seq: 1000}}}})
	reader := read.New(log, read.Config{Rules: rules})
	shown := func(session string, at *services.AsOf) (identity string, questions []string) {
		reading, err := reader.Read(t.Context(), services.Ask{SessionID: session, AllTurns: true})
		if at != nil {
			reading, _, err = reader.AsOf(t.Context(), session, *at)
		}
		require.NoError(t, err)
		for _, turn := range reading.State.Turns {
			questions = append(questions, turn.Question.QuestionNeutral)
		}
		return reading.State.Identity, questions
	}
	for _, identity := range []string{"", "ada"} {
		if identity != "" {
			must.Get(writes.LinkSession(t.Context(), "root", identity, ""))(t)
		}
		for _, at := range []*services.AsOf{nil, {Position: &link}, {Position: &made.Position}} {
			then := identity
			if at != nil {
				then = "" // the root was linked later
			}
			is, questions := shown("branch", at)
			require.Equal(t, then, is)
			require.Equal(t, []string{"of root"}, questions)
		}
		is, questions := shown("thief", nil)
		require.Equal(t, identity, is)
		require.Empty(t, questions)
		_, questions = shown("thief", &services.AsOf{Position: &stolen})
		require.Empty(t, questions)
	}
}
