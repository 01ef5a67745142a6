package contextbuilder_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/history"
)

// prune takes a half out of a turn, as the deletion of its items does.
func prune(t *testing.T, h *history.Service, session, request string, half events.Half) {
	t.Helper()
	must.Get(h.PruneTurn(t.Context(), conversation.Prune{SessionID: session, TurnID: events.TurnID(session, request),
		PruneID: string(half), Keep: func(m conversation.Message) json.RawMessage {
			if m.Half == half {
				return nil
			}
			return m.Raw
		}}))(t)
}

// A half whose items were deleted is no message, in any form and language; the other half stays.
//
//conformance:o19
func TestAHalfThatIsDeletedIsNoMessage(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	writes := history.New(history.On(log), history.Config{Rules: rules})
	natstest.Run(t, writes.Run)
	for session, half := range map[string]events.Half{"asked": events.HalfAnswer, "told": events.HalfQuestion} {
		must.Get(writes.StartTurn(t.Context(), conversation.Start{SessionID: session, RequestID: "1",
			Question: events.Question{QuestionNeutral: "q", QuestionTranslated: "p"},
			Answer:   &events.Answer{AnswerNeutral: "a", AnswerTranslated: "o"}}))(t)
		prune(t, writes, session, "1", half)
	}
	for _, c := range []struct {
		session string
		lang    services.Language
		format  services.Format
		want    []string
	}{
		{session: "asked", want: []string{"user: q", "user: next"}},
		{session: "told", want: []string{"assistant: a", "user: next"}},
		{session: "asked", lang: services.Translated, want: []string{"user: p", "user: next"}},
		{session: "told", lang: services.Translated, want: []string{"assistant: o", "user: next"}},
		{session: "told", format: services.Anthropic,
			want: []string{"user: (The assistant spoke first.)", "assistant: a", "user: next"}},
	} {
		got, err := builder(log, nil).Build(t.Context(), services.ContextRequest{SessionID: c.session, Message: "next",
			Language: c.lang, Format: c.format})
		require.NoError(t, err)
		require.Equal(t, c.want, texts(t, got), "%+v", c)
		require.Equal(t, 1, got.HistoryMessages)
		require.Equal(t, 1, got.HistoryTurns)
	}
	got := must.Get(builder(log, nil).Build(t.Context(), services.ContextRequest{SessionID: "asked", Message: "next",
		Format: services.Anthropic}))(t)
	require.Len(t, got.Messages, 1, "two messages of the user in a row are one")
	require.JSONEq(t, `{"role":"user","content":[{"type":"text","text":"q"},{"type":"text","text":"next"}]}`,
		string(got.Messages[0].JSON()))
}

// Turns that lack a half leave room in a window. It is filled with older turns from wherever these are.
func TestAWindowOfHalvesIsFilled(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	writes := history.New(history.On(log), history.Config{Rules: rules})
	natstest.Run(t, writes.Run)
	for i := range 60 {
		record(t, log, "s", fmt.Sprint(i), fmt.Sprint(i), "answer")
		prune(t, writes, "s", fmt.Sprint(i), events.HalfAnswer)
	}
	head := must.Get(log.Head(t.Context(), 0))(t)
	viewed, bare := builder(log, fed(t, log, head)), builder(log, nil)
	for _, most := range []int{2, 4, 20, 50, 100} {
		ask := services.ContextRequest{SessionID: "s", Message: "now", MaxMessages: most}
		want := must.Get(bare.Build(t.Context(), ask))(t)
		require.Equal(t, min(most, 60), want.HistoryMessages)
		got := must.Get(viewed.Build(t.Context(), ask))(t)
		require.Equal(t, texts(t, want), texts(t, got), "max_messages %d", most)
		require.Equal(t, want.DroppedTurns, got.DroppedTurns)
	}
}
