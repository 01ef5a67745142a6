package contextbuilder_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
)

const (
	asks       = `[{"role":"assistant","content":"Let me look","tool_calls":[{"id":"c1","type":"function","function":{"name":"sky","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"sea","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c2","content":"wet"}]`
	toolResult = `[{"role":"tool","tool_call_id":"c1","name":"sky","content":"blue"}]`
	half       = `{"role":"assistant","content":"Let me look\n[Tool call: sky {}]","tool_calls":[{"id":"c2","type":"function","function":{"name":"sea","arguments":"{}"}}]}`
	wet        = `{"role":"tool","tool_call_id":"c2","content":"wet"}`
	telling    = `{"role":"user","content":"[Tool result sky: blue]"}`
)

// calling is a session whose first turn calls a tool, and whose second one brings its result.
func calling(t testing.TB) *jetlog.Log { return callingIn(t, asks, toolResult) }

func callingIn(t testing.TB, asks, told string) *jetlog.Log {
	log := natstest.Log(t, 1)
	for _, x := range []struct {
		request, question string
		answer            events.Answer
	}{
		{"ask", "", events.Answer{AnswerMessages: json.RawMessage(asks)}},
		{"tell", told, events.Answer{AnswerNeutral: "It is blue."}},
	} {
		id := events.TurnID("s", x.request)
		natstest.Append(t, log, &events.TurnStarted{TurnID: id, SessionID: "s", RequestID: x.request,
			Question: events.Question{QuestionNeutral: x.request, QuestionMessages: json.RawMessage(x.question)}})
		if x.request == "ask" {
			natstest.Append(t, log, &events.TurnFinalized{TurnID: id, SessionID: "s", Answer: x.answer})
		}
	}
	return log
}

func answered(t testing.TB, log *jetlog.Log) events.Position {
	return natstest.Append(t, log, &events.TurnFinalized{TurnID: events.TurnID("s", "tell"), SessionID: "s",
		Answer: events.Answer{AnswerNeutral: "It is blue."}})
}

func redact(t testing.TB, log *jetlog.Log, request string) events.Position {
	return natstest.Append(t, log, &events.TurnRedacted{TurnID: events.TurnID("s", request), SessionID: "s"})
}

func raws(t testing.TB, log *jetlog.Log, head events.Position, req services.ContextRequest) (out []string) {
	t.Helper()
	req.SessionID, req.Message = "s", "m"
	for name, b := range map[string]*contextbuilder.Builder{"log": builder(log, nil), "view": builder(log,
		fed(t, log, head))} {
		r := must.Get(b.Build(t.Context(), req))(t)
		var list []string
		for _, m := range r.Messages[:len(r.Messages)-1] {
			list = append(list, string(m.JSON()))
		}
		if out != nil {
			require.Equal(t, out, list, name)
		}
		out = list
	}
	return out
}

// TestAHiddenTurnTearsNoCallFromItsResult: what is left of a call or a result whose other half the prompt may not show
// is text, which every model takes; what was recorded without its other half is given back as it came.
func TestAHiddenTurnTearsNoCallFromItsResult(t *testing.T) {
	t.Parallel()
	same := func(want, got []string) {
		t.Helper()
		require.Len(t, got, len(want))
		for i := range want {
			require.JSONEq(t, want[i], got[i])
		}
	}
	ask, tell := `{"role":"user","content":"ask"}`, `{"role":"assistant","content":"It is blue."}`

	log := calling(t)
	pending := natstest.Append(t, log, &events.SessionLinked{SessionID: "s", IdentityID: "ada"})
	same([]string{ask, half, wet}, raws(t, log, pending, services.ContextRequest{}))
	same([]string{ask, half, wet}, raws(t, log, pending, services.ContextRequest{IncludePending: true,
		TurnID: events.TurnID("s", "tell")}))
	whole := raws(t, log, pending, services.ContextRequest{IncludePending: true})
	require.JSONEq(t, "["+whole[1]+","+whole[2]+"]", asks)
	require.JSONEq(t, "["+whole[3]+"]", toolResult)
	before := answered(t, log)
	whole = raws(t, log, before, services.ContextRequest{})
	require.JSONEq(t, "["+whole[1]+","+whole[2]+"]", asks)
	gone := redact(t, log, "tell")
	same([]string{ask, half, wet}, raws(t, log, gone, services.ContextRequest{}))
	same([]string{ask, half, wet}, raws(t, log, gone, services.ContextRequest{AsOf: &services.AsOf{Position: &before}}))

	log = calling(t)
	answered(t, log)
	gone = redact(t, log, "ask")
	same([]string{telling, tell}, raws(t, log, gone, services.ContextRequest{}))

	log = natstest.Log(t, 1)
	logtest.Turn(t, log, "s", "another", "still pending", "")
	id := events.TurnID("s", "few")
	natstest.Append(t, log, &events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "few",
		Question: events.Question{QuestionNeutral: "few", QuestionMessages: json.RawMessage(toolResult)}})
	natstest.Append(t, log, &events.TurnFinalized{TurnID: id, SessionID: "s",
		Answer: events.Answer{AnswerMessages: json.RawMessage(asks)}})
	alone := logtest.Turn(t, log, "s", "more", "pending too", "")
	whole = raws(t, log, alone, services.ContextRequest{})
	require.JSONEq(t, "["+whole[0]+"]", toolResult, "recorded without its call")
	require.JSONEq(t, "["+whole[1]+","+whole[2]+"]", asks, "recorded without its result")
}

// TestThePastIsTheSameAfterAnErasure: whether the events of a turn that was redacted since are in the log or have
// left it, a call of it is torn, and the turn that is being answered has nothing after it.
func TestThePastIsTheSameAfterAnErasure(t *testing.T) {
	t.Parallel()
	log := calling(t)
	before := answered(t, log)
	later := logtest.Turn(t, log, "s", "later", "q", "a")
	id := events.TurnID("s", "tell")
	last := natstest.Append(t, log, decide.Redact{TurnID: id}.On(viewtest.Folded(t, log, rules, "s", later.Seq,
		10)).Facts[0])
	want := []string{`{"role":"user","content":"ask"}`, half, wet}
	for _, gone := range []bool{false, true} {
		for seq := before.Seq - 1; gone && seq <= before.Seq; seq++ {
			must.Get(overwrite.On(log).Erase(t.Context(), events.Position{Seq: seq}))(t)
		}
		for _, req := range []services.ContextRequest{{AsOf: &services.AsOf{Position: &before}},
			{AsOf: &services.AsOf{Position: &later}, TurnID: id}} {
			got := raws(t, log, last, req)
			require.JSONEq(t, "["+strings.Join(want, ",")+"]", "["+strings.Join(got, ",")+"]", "gone from the log: %t",
				gone)
		}
	}
}

// TestAWordBehindACallTearsNothing: the assistant may say more behind its call. A turn that is hidden then has no half
// of it; a word between two results parts the second one from its call.
func TestAWordBehindACallTearsNothing(t *testing.T) {
	t.Parallel()
	const call = `{"role":"assistant","content":null,"tool_calls":[` +
		`{"id":"c1","type":"function","function":{"name":"sky","arguments":"{}"}},` +
		`{"id":"c2","type":"function","function":{"name":"sea","arguments":"{}"}}]}`
	const wait, blue = `{"role":"assistant","content":"Wait."}`, `{"role":"tool","tool_call_id":"c1","content":"blue"}`
	list := func(messages ...string) string { return "[" + strings.Join(messages, ",") + "]" }
	for answer, want := range map[string]string{
		list(call, wait, wet, blue): list(call, wait, wet, blue),
		list(call, wet, wait, blue): list(strings.Replace(half, "Let me look\\n", "", 1), wet, wait, blue),
	} {
		log := natstest.Log(t, 1)
		id := events.TurnID("s", "ask")
		natstest.Append(t, log, &events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "ask",
			Question: events.Question{QuestionNeutral: "ask"}})
		natstest.Append(t, log, &events.TurnFinalized{TurnID: id, SessionID: "s",
			Answer: events.Answer{AnswerMessages: json.RawMessage(answer)}})
		logtest.Turn(t, log, "s", "later", "q", "a")
		got := raws(t, log, redact(t, log, "later"), services.ContextRequest{})
		require.JSONEq(t, want, list(got[1:]...))
	}
}

// TestEveryFormOfACallIsTornIntoText: calls and results are also Anthropic's blocks, and were once functions.
func TestEveryFormOfACallIsTornIntoText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ asks, toolResult, half, telling string }{
		"blocks": {
			`[{"role":"assistant","content":[{"type":"text","text":"Let me look"},{"type":"tool_use","id":"c1","name":"sky","input":{"at":1}},{"type":"tool_use","id":"c2","name":"sea","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2","content":"wet"}]}]`,
			`[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"blue"},{"type":"text","text":"and now?"}]}]`,
			`{"role":"assistant","content":[{"type":"text","text":"Let me look"},{"type":"text","text":"[Tool call: sky {\"at\":1}]"},{"type":"tool_use","id":"c2","name":"sea","input":{}}]}`,
			`{"role":"user","content":[{"type":"text","text":"[Tool result: blue]"},{"type":"text","text":"and now?"}]}`,
		},
		"a function": {
			`[{"role":"assistant","content":null,"function_call":{"name":"sky","arguments":"{}"}}]`,
			`[{"role":"function","name":"sky","content":"blue"}]`,
			`{"role":"assistant","content":"[Tool call: sky {}]"}`,
			telling,
		},
		"a call beside parts": {
			`[{"role":"assistant","content":[{"type":"text","text":"Let me look"},{"type":"tool_use","id":"c2","name":"sea","input":{}}],"tool_calls":[{"id":"c1","type":"function","function":{"name":"sky","arguments":"{}"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2","content":"wet"}]}]`,
			toolResult,
			`{"role":"assistant","content":[{"type":"text","text":"Let me look"},{"type":"tool_use","id":"c2","name":"sea","input":{}},{"type":"text","text":"[Tool call: sky {}]"}]}`,
			telling,
		},
	} {
		whole := callingIn(t, c.asks, c.toolResult)
		head := answered(t, whole)
		got := raws(t, whole, head, services.ContextRequest{})
		require.Contains(t, got, c.toolResult[1:len(c.toolResult)-1], name+": nothing is torn")
		require.JSONEq(t, c.half, raws(t, whole, redact(t, whole, "tell"), services.ContextRequest{})[1], name)

		whole = callingIn(t, c.asks, c.toolResult)
		answered(t, whole)
		require.JSONEq(t, c.telling, raws(t, whole, redact(t, whole, "ask"), services.ContextRequest{})[0], name)
	}
}

// TestACallThatWaitsForItsResultIsReadFromTheView: the last answer of a long session is a call, and the log is not
// asked what came of it as long as nothing has come.
func TestACallThatWaitsForItsResultIsReadFromTheView(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	for i := range 40 {
		logtest.Turn(t, log, "s", fmt.Sprint("plain", i), "q", "a")
	}
	id := events.TurnID("s", "ask")
	natstest.Append(t, log, &events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "ask",
		Question: events.Question{QuestionNeutral: "ask"}})
	head := natstest.Append(t, log, &events.TurnFinalized{TurnID: id, SessionID: "s",
		Answer: events.Answer{AnswerMessages: json.RawMessage(asks)}})
	source := func(head events.Position) services.Source {
		return must.Get(builder(log, fed(t, log, head)).Build(t.Context(), services.ContextRequest{SessionID: "s",
			Message: "m", MaxMessages: 6}))(t).Source
	}
	require.Equal(t, services.FromView, source(head))
	logtest.Turn(t, log, "s", "tell", "It is blue.", "Thanks.")
	require.Equal(t, services.FromView, source(logtest.Turn(t, log, "s", "next", "q", "a")),
		"the view has the whole session")
	require.Equal(t, services.FromLog, source(redact(t, log, "tell")), "what was redacted may have been the result")
}
