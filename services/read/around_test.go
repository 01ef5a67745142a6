package read_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// Turns that are found are as a fold of the whole log has them, with their texts, whichever turn the search begins at,
// in which direction and how far, after whatever two processes did to the session.
func TestTurnsAreFoundAsTheLogHasThem(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			log := natstest.Log(t, 1)
			writers := []process{run(t, log), run(t, log)}
			r := rand.New(rand.NewPCG(seed, 0))
			muddle(t, r, writers, 40)
			whole := natstest.Fold(t, log, "s", session.Rules{MetadataKeys: policy.MetadataKeys})
			var listed []*session.Turn
			for _, turn := range whole.Turns {
				got := must.Get(writers[0].FindTurn(t.Context(), "s", turn.ID))(t)
				require.Equal(t, turn.Status, got.Turn.Status)
				require.Equal(t, turn.Extensions(), got.Turn.Extensions())
				if turn.Place > whole.ResetAt &&
					(turn.Status == session.Pending || turn.Status == session.Finalized) {
					listed = append(listed, turn)
				}
			}
			require.NotEmpty(t, listed)
			for _, back := range []bool{false, true} {
				for from := -1; from < len(listed); from++ {
					holdBeside(t, writers[r.IntN(2)], r, listed, from, back, r.IntN(12))
				}
			}
		})
	}
}

// muddle does random things to a session.
func muddle(t *testing.T, r *rand.Rand, writers []process, steps int) {
	t.Helper()
	var ids []uuid.UUID
	for n := range steps {
		w, name := writers[r.IntN(2)], fmt.Sprint(n)
		which := uuid.Nil
		if len(ids) > 0 {
			which = ids[r.IntN(len(ids))]
		}
		var err error
		switch text := "corrected " + name; r.IntN(10) {
		case 0, 1, 2:
			c := start("s", name)
			c.Answer = &events.Answer{AnswerNeutral: "a " + name}
			if r.IntN(3) == 0 {
				c.Answer = nil
			}
			var got services.Turn
			got, err = w.StartTurn(t.Context(), c)
			ids = append(ids, got.ID)
		case 3:
			_, err = w.FinalizeTurn(t.Context(), decide.Finalize{SessionID: "s", TurnID: which,
				Answer: events.Answer{AnswerNeutral: "late " + name}})
		case 4, 5, 6:
			half := []events.Half{events.HalfQuestion, events.HalfAnswer}[r.IntN(2)]
			_, err = w.ExtendTurn(t.Context(), extend("s", which, "x"+name, half, "more "+name))
		case 7:
			_, err = w.PruneTurn(t.Context(), without("s", which, "p"+name, "more"))
		case 8:
			var got services.Turn
			if got, err = w.CorrectTurn(t.Context(), decide.Correct{SessionID: "s", TurnID: which,
				RequestID: "c" + name, QuestionNeutral: &text}); err == nil {
				ids = append(ids, got.ID)
			}
		case 9:
			if n%3 == 0 {
				_, err = w.RedactTurn(t.Context(), "s", decide.Redact{TurnID: which})
			} else if n == steps/2 {
				_, err = w.ResetSession(t.Context(), "s", "")
			}
		}
		var refused *decide.Refusal
		if err != nil {
			require.ErrorAs(t, err, &refused)
		}
	}
	got := must.Get(writers[0].StartTurn(t.Context(), start("s", "last")))(t)
	require.False(t, got.Duplicate)
}

// holdBeside holds the messages beside one of the messages of a listed turn, or from their begin on, against all.
func holdBeside(
	t *testing.T, s process, r *rand.Rand, listed []*session.Turn, from int, back bool, messages int,
) {
	t.Helper()
	var all []string
	for _, turn := range listed {
		all = append(all, messagesOf(services.StandingTurn{Turn: turn})...)
	}
	ask := services.BesideAsk{SessionID: "s", Back: back, Messages: messages}
	at := -1
	if back {
		at = len(all)
	}
	if from >= 0 {
		turn := listed[from]
		half := []events.Half{events.HalfQuestion, events.HalfAnswer}[r.IntN(2)]
		own := slices.DeleteFunc(messagesOf(services.StandingTurn{Turn: turn}), func(m string) bool {
			return !strings.HasPrefix(m, fmt.Sprint(turn.ID, half))
		})
		if len(own) == 0 {
			return // the turn has no such half
		}
		ask.Message, ask.Answer, ask.At.Seq = r.IntN(len(own)), half == events.HalfAnswer, turn.Begun(half)
		at = slices.Index(all, own[ask.Message])
	}
	found, ok, err := s.TurnsBeside(t.Context(), ask)
	require.NoError(t, err)
	require.True(t, ok)
	var got []string
	for _, turn := range found.Turns {
		got = append(got, messagesOf(turn)...)
	}
	switch {
	case from >= 0 && messages == 0:
		require.Equal(t, messagesOf(services.StandingTurn{Turn: listed[from]}), got)
		return
	case len(got) == 0:
		require.Zero(t, messages)
		return
	}
	begin := slices.Index(all, got[0])
	require.GreaterOrEqual(t, begin, 0)
	end := begin + len(got)
	require.LessOrEqual(t, end, len(all))
	require.Equal(t, all[begin:end], got)
	if back {
		require.Equal(t, from < 0, end == at)
		require.GreaterOrEqual(t, at-begin, min(messages, at))
		require.True(t, found.More || begin == 0)
		return
	}
	require.LessOrEqual(t, begin, max(at, 0))
	require.GreaterOrEqual(t, end-at-1, min(messages, len(all)-at-1))
	require.True(t, found.More || end == len(all))
}

// messagesOf returns the messages that a turn holds, with where they stand.
func messagesOf(turn services.StandingTurn) (out []string) {
	add := func(half events.Half, raw json.RawMessage, neutral string, n int) {
		var list []json.RawMessage
		_ = json.Unmarshal(raw, &list)
		if len(list) == 0 && neutral != "" {
			role := map[events.Half]string{events.HalfQuestion: "user", events.HalfAnswer: "assistant"}[half]
			list = []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"role":%q,"content":%q}`, role, neutral))}
		}
		for i, m := range list {
			out = append(out, fmt.Sprint(turn.ID, half, n+i, string(m)))
		}
	}
	if q := turn.Question; q != nil {
		add(events.HalfQuestion, q.QuestionMessages, q.QuestionNeutral, 0)
	}
	if a := turn.Answer; a != nil {
		add(events.HalfAnswer, a.AnswerMessages, a.AnswerNeutral, turn.Skipped)
	}
	return out
}

// What another process appended, redacted or erased before the call is in what is found.
func TestWhatIsFoundIsAsNewAsTheLog(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	mine, other := run(t, log), run(t, log)
	find := func(sessionID string) ([]services.StandingTurn, error) {
		got, _, err := mine.TurnsBeside(t.Context(), services.BesideAsk{SessionID: sessionID, Messages: 100})
		return got.Turns, err
	}
	for n := range 30 {
		sessionID := fmt.Sprint("s", n%3)
		began := must.Get(other.StartTurn(t.Context(), start(sessionID, fmt.Sprint(n))))(t)
		found := must.Get(mine.FindTurn(t.Context(), sessionID, began.ID))(t)
		require.Equal(t, session.Pending, found.Turn.Status)
		got := must.Get(find(sessionID))(t)
		require.Equal(t, began.ID, got[len(got)-1].ID)
		if n%2 == 0 {
			must.Get(other.RedactTurn(t.Context(), sessionID, decide.Redact{TurnID: began.ID}))(t)
			found = must.Get(mine.FindTurn(t.Context(), sessionID, began.ID))(t)
			require.Equal(t, session.Redacted, found.Turn.Status)
			got = must.Get(find(sessionID))(t)
			require.NotContains(t, idsOf(got), began.ID)
		}
	}
	must.Fail(mine.FindTurn(t.Context(), "s0", uuid.New()))(t, decide.ErrTurnNotFound)
	must.Get(other.EraseSession(t.Context(), "s0", services.Erasure{}))(t)
	must.Fail(find("s0"))(t, decide.ErrSessionErased)

	// An identity's erasure counts at once, in the sessions that are not closed yet and in their branches.
	turn := events.TurnID("s1", "1")
	must.Get(other.FinalizeTurn(t.Context(), finalize("s1", "1")))(t)
	must.Get(other.ForkSession(t.Context(), decide.ForkSession{SessionID: "s1", RequestID: "f", ChildID: "branch",
		TurnID: turn}))(t)
	own := must.Get(other.StartTurn(t.Context(), start("branch", "own")))(t)
	must.Get(mine.FindTurn(t.Context(), "branch", own.ID))(t)
	_, err := mine.FindTurn(t.Context(), "branch", turn)
	require.ErrorIs(t, err, decide.ErrTurnNotFound, "a shared turn is not the branch's")
	shared, ok, err := mine.TurnsBeside(t.Context(), services.BesideAsk{SessionID: "branch", Messages: 100})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, own.ID, shared.Turns[len(shared.Turns)-1].ID)
	require.Equal(t, "branch", shared.Turns[len(shared.Turns)-1].SessionID)
	require.Equal(t, "s1", shared.Turns[0].SessionID)
	natstest.Append(t, log, &events.SessionLinked{SessionID: "s1", IdentityID: "ada"})
	must.Get(mine.FindTurn(t.Context(), "s1", turn))(t)
	must.Get(other.EraseIdentity(t.Context(), "ada", services.Erasure{}))(t)
	must.Fail(mine.FindTurn(t.Context(), "s1", turn))(t, decide.ErrSessionErased)
	must.Fail(mine.FindTurn(t.Context(), "branch", own.ID))(t, decide.ErrSessionErased)
}

func idsOf(turns []services.StandingTurn) (out []uuid.UUID) {
	for _, t := range turns {
		out = append(out, t.ID)
	}
	return out
}
