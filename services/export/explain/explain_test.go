package explain_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/export/explain"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/replay"
)

// Which turns a prompt showed is what the prompt says, and not a number of the newest ones: a filtered turn is in none,
// and the last pair stands before questions that the window left out.
func TestTheTurnsOfThePromptAreNamed(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	start := func(request string) *events.TurnStarted {
		return &events.TurnStarted{TurnID: events.TurnID("s", request), SessionID: "s", RequestID: request,
			Question: events.Question{QuestionNeutral: request}}
	}
	logtest.Turn(t, log, "s", "old", "old", "a")
	logtest.Turn(t, log, "s", "pair", "pair", "a")
	natstest.Append(t, log, start("refused"), &events.TurnFinalized{TurnID: events.TurnID("s", "refused"),
		SessionID: "s", Metadata: json.RawMessage(`{"finish_reason":"content_filter"}`),
		Answer: events.Answer{AnswerMessages: json.RawMessage(`[{"role":"assistant","content":""}]`)}})
	for i := range 3 {
		natstest.Append(t, log, start(fmt.Sprint("open", i)))
	}
	natstest.Append(t, log, start("now"))
	reader := read.New(log, read.Config{Rules: session.Rules{}})
	lines := replay.New(log, owners.New(log, nil))
	natstest.Run(t, lines.Run)
	x := explain.Service{
		Events: lines, Sessions: reader, Contexts: contextbuilder.NewBuilder(reader, contextbuilder.Config{}),
	}
	for pending, want := range map[bool][]string{
		true: {"left out by the window", "shown", "its answer was filtered", "left out by the window", "shown",
			"shown"},
		false: {"left out by the window", "shown", "its answer was filtered", "had no answer yet", "had no answer yet",
			"had no answer yet"},
	} {
		got := must.Get(x.Explain(t.Context(), services.ExplainAsk{SessionID: "s", TurnID: events.TurnID("s", "now"),
			MaxMessages: 2, IncludePending: pending}))(t)
		var seen []string
		for _, turn := range got.Turns {
			seen = append(seen, turn.Seen)
		}
		require.Equal(t, want, seen)
	}
}

// The question of a turn is that of the event that counts, and not of a later one that says something else.
func TestAnEventThatNeverCountedAsksNothing(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	id := events.TurnID("s", "r")
	logtest.Turn(t, log, "s", "r", "asked", "a")
	natstest.Append(t, log, &events.TurnExtended{TurnID: id, SessionID: "s", ExtensionID: "late",
		Extension: events.Extension{Half: events.HalfQuestion, QuestionNeutral: "never asked",
			Messages: json.RawMessage(`[{"role":"user","content":"never asked"}]`)}})
	reader := read.New(log, read.Config{Rules: session.Rules{}})
	lines := replay.New(log, owners.New(log, nil))
	natstest.Run(t, lines.Run)
	got := must.Get(explain.Service{
		Events: lines, Sessions: reader, Contexts: contextbuilder.NewBuilder(reader, contextbuilder.Config{}),
	}.Explain(t.Context(), services.ExplainAsk{SessionID: "s", TurnID: id}))(t)
	require.Len(t, got.Events, 3)
	last := got.Prompt.Messages[len(got.Prompt.Messages)-1]
	require.NotContains(t, string(last.JSON()), "never asked")
}
