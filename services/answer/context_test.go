package answer_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
)

// A turn that is longer than the model's context ends no thread: results of tools are shortened, and a turn that is too
// long without any is left out.
func TestATurnLongerThanTheModelsContextEndsNoThread(t *testing.T) {
	t.Parallel()
	const called = `[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",` +
		`"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"LONG"},` +
		`{"role":"assistant","content":"read"}]`
	for name, c := range map[string]struct{ answer, shown string }{
		"a result": {strings.ReplaceAll(called, "LONG", strings.Repeat("word ", 20_000)), "characters are left out"},
		"a text":   {`[{"role":"assistant","content":"` + strings.Repeat("word ", 20_000) + `"}]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, model := natstest.Server(t), modeltest.NewScripted(t)
			const context = 8000
			sent := make(chan string, 1)
			model.Demand = func(body json.RawMessage) string {
				sent <- string(body)
				if len(body)/4 > context { // an estimate of its tokens
					return "a shorter prompt"
				}
				return ""
			}
			a := newChatWith(t, server, model, func(cfg *answer.Config) { cfg.Context = context })
			log := natstest.LogOn(t, server, 1)
			id := events.TurnID("s", "r")
			natstest.Append(t, log, &events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r",
				Question: events.Question{QuestionNeutral: "read it"}})
			natstest.Append(t, log, &events.TurnFinalized{TurnID: id, SessionID: "s",
				Answer: events.Answer{AnswerNeutral: "read", AnswerMessages: []byte(c.answer)}})
			_, out := a.send("next", "and now?", services.Enqueue)
			require.NoError(t, (<-out).err)
			body := <-sent
			require.Contains(t, body, "and now?")
			require.Contains(t, body, c.shown)
		})
	}
}

// A prompt leaves of what the model takes what its answer may have: what the deployment lets it have, or a quarter.
func TestAPromptLeavesRoomForTheAnswer(t *testing.T) {
	t.Parallel()
	for most, shown := range map[int64]bool{0: true, 1000: true, 6000: false, 1 << 40: false} {
		server, model := natstest.Server(t), modeltest.NewScripted(t)
		sent := make(chan string, 1)
		model.Demand = func(body json.RawMessage) string {
			sent <- string(body)
			return ""
		}
		a := newChatWith(t, server, model, func(cfg *answer.Config) { cfg.Context, cfg.MaxAnswer = 8000, most })
		log := natstest.LogOn(t, server, 1)
		id := events.TurnID("s", "r")
		natstest.Append(t, log, &events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r",
			Question: events.Question{QuestionNeutral: "read it"}})
		natstest.Append(t, log, &events.TurnFinalized{TurnID: id, SessionID: "s",
			Answer: events.Answer{AnswerNeutral: strings.Repeat("word ", 3200)}}) // 4,000 tokens
		_, out := a.send("next", "and now?", services.Enqueue)
		require.NoError(t, (<-out).err)
		require.Equal(t, shown, strings.Contains(<-sent, "word"), "%d tokens for the answer", most)
	}
}
