package console_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// mostPage bounds a page of a session in bytes.
const mostPage = 300_000

// conversed is a session with all that can become of a turn.
func conversed(s *stack) (turns map[string]services.Turn) {
	t, h := s.t, s.services.History
	turns = map[string]services.Turn{}
	turns["plain"] = s.turn("s", "plain", "Who is that?", "A plain answer.")
	turns["wrong"] = s.turn("s", "wrong", "a misspelt question", "a misspelt answer")
	question := "a corrected question"
	fixed, err := h.CorrectTurn(t.Context(), conversation.Correct{
		SessionID: "s", TurnID: turns["wrong"].ID, RequestID: "fix", QuestionNeutral: &question,
	})
	require.NoError(t, err)
	turns["fixed"] = fixed
	turns["gone"] = s.turn("s", "gone", "an unspeakable question", "an unspeakable answer")
	_, err = h.RedactTurn(t.Context(), "s", conversation.Redact{TurnID: turns["gone"].ID})
	require.NoError(t, err)
	whole := conversation.Start{SessionID: "s", RequestID: "tools", Question: events.Question{
		QuestionNeutral: "the weather", QuestionTranslated: "das Wetter",
		QuestionMessages: json.RawMessage(`[{"role":"user","content":[{"type":"text","text":"what is this?"},` +
			`{"type":"image_url","image_url":{"url":"https://elsewhere.example/cat.png"}}]}]`),
	}, Answer: &events.Answer{AnswerNeutral: "sunny", AnswerTranslated: "sonnig", AnswerMessages: json.RawMessage(
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"weather",` +
			`"arguments":"{\"city\":\"Ulm\"}"}}]},{"role":"tool","tool_call_id":"c1","content":"18 degrees"},` +
			`{"role":"assistant","content":"It is sunny."}]`)}}
	turns["tools"], err = h.StartTurn(t.Context(), whole)
	require.NoError(t, err)
	turns["pending"] = s.turn("s", "pending", "still open?", "")
	return turns
}

func TestAConversation(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	turns := conversed(s)
	branch, err := s.services.History.ForkSession(t.Context(), conversation.ForkSession{
		SessionID: "s", RequestID: "f", ChildID: "the-branch", TurnID: turns["fixed"].ID,
	})
	require.NoError(t, err)
	require.Equal(t, "the-branch", branch.SessionID)
	_, err = s.services.History.SummarizeSession(t.Context(), conversation.Summarize{
		ThroughTurnID: turns["fixed"].ID, Summary: events.SessionSummarized{SessionID: "s", RequestID: "m",
			SummaryNeutral: "They spoke of somebody."},
	})
	require.NoError(t, err)

	// A mark that has made none: its fork lost a race to another session's.
	at := turns["fixed"].Position
	_, err = s.log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.SessionBranched{
		SessionID: "s", ChildSessionID: "elsewhere", RequestID: "lost", FromSessionID: "s", Root: "s", At: at,
		Segments: []events.Segment{{SessionID: "s", ThroughTurnID: turns["fixed"].ID, Through: at}},
	}}})
	require.NoError(t, err)
	s.turn("elsewhere", "r", "a question of somebody else", "an answer")
	late := s.turn("s", "late", "and later?", "")
	_, err = s.services.History.FinalizeTurn(t.Context(), conversation.Finalize{
		SessionID: "s", TurnID: late.ID, Answer: events.Answer{AnswerNeutral: "later"},
	})
	require.NoError(t, err)

	a := s.page("/console/sessions/s", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, 2, strings.Count(a.body, `<a href="/console/sessions/the-branch">`))
	require.NotContains(t, a.body, `<a href="/console/sessions/elsewhere">`)
	for _, want := range []string{"Who is that?", "A plain answer.", "a corrected question", "a misspelt question",
		"This turn was redacted", "Tool: <bdi class=\"id\">weather</bdi>", "city", "18 degrees", "It is sunny.",
		"[Image: https://elsewhere.example/cat.png]", "still open?", "pending", "Summary of 2 turns",
		"They spoke of somebody.", `A branch leaves here: <a href="/console/sessions/the-branch">`, `<span class="tag">corrected</span>`,
		`<span class="tag">redacted</span>`, "answered after", "no answer yet",
		"recorded with its answer"} {
		require.Contains(t, a.body, want)
	}
	require.NotContains(t, a.body, "unspeakable")
	struck := `(?s)class="turn earlier" id="t-` + turns["wrong"].ID.String() + `".*a misspelt`
	require.Regexp(t, regexp.MustCompile(struck), a.body)
	require.Less(t, strings.Index(a.body, "Who is that?"), strings.Index(a.body, "still open?"))
	require.Contains(t, s.page("/console/sessions/s?language=translated", "").body, "sonnig")
	require.NotContains(t, a.body, "sonnig</div>")

	shared := s.page("/console/sessions/the-branch", "").body
	require.Contains(t, shared, "Who is that?")
	require.Contains(t, shared, `shared from <a href="/console/sessions/s">`)
	require.Contains(t, shared, "session.forked.v1")
}

// A position names an event for ever: its page has the row, opened, and its JSON whole.
func TestPermalinks(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for i := range 60 {
		s.turn("s", fmt.Sprint(i), fmt.Sprint("question ", i), "an answer")
	}
	a := s.page("/console/sessions/s?at=0:7", "")
	require.Contains(t, a.body, `<details id="e-0-7" open>`)
	require.Contains(t, a.body, "question 3")
	require.NotContains(t, a.body, "question 50")
	whole := s.page("/console/sessions/s/events/0:7", "")
	require.Equal(t, http.StatusOK, whole.status)
	require.Equal(t, "application/json", whole.header.Get("Content-Type"))
	var e map[string]any
	require.NoError(t, json.Unmarshal([]byte(whole.body), &e))
	require.Equal(t, "0:7", e["position"])
	for _, none := range []string{"/console/sessions/other/events/0:7", "/console/sessions/s/events/0:999",
		"/console/sessions/s/events/x", "/console/sessions/none", "/console/sessions/s?before=" +
			events.TurnID("s", "none").String()} {
		require.Equal(t, http.StatusNotFound, s.page(none, "").status, none)
	}
	for _, wrong := range []string{"?at=x", "?before=x"} {
		require.Equal(t, http.StatusUnprocessableEntity, s.page("/console/sessions/s"+wrong, "").status)
	}
}

var olderTurns = regexp.MustCompile(`href="([^"]*)" rel="prev"`)

// All turns are on some page, each once, and no page is too large.
func TestALongConversationIsPaged(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	const turns = 70
	for i := range turns {
		s.turn("s", fmt.Sprint(i), fmt.Sprintf("question-%d-", i), strings.Repeat("long ", i*10))
	}
	seen := map[string]int{}
	address := "/console/sessions/s"
	for address != "" {
		a := s.page(address, "")
		require.Equal(t, http.StatusOK, a.status)
		require.LessOrEqual(t, len(a.body), mostPage)
		for _, q := range regexp.MustCompile(`dir="auto">question-\d+-`).FindAllString(a.body, -1) {
			seen[q]++
		}
		address = ""
		if m := olderTurns.FindStringSubmatch(a.body); m != nil {
			address = m[1]
		}
	}
	require.Len(t, seen, turns)
	for q, n := range seen {
		require.Equal(t, 1, n, q)
	}
}

// largeTurn records a turn of megabytes. It tries again if the log does not answer: a busy machine takes longer for so
// much than an append has.
func (s *stack) largeTurn(c conversation.Start) {
	s.t.Helper()
	err := jetlog.ErrUnavailable
	for n := 0; n < 10 && errors.Is(err, jetlog.ErrUnavailable); n++ {
		_, err = s.services.History.StartTurn(s.t.Context(), c)
	}
	require.NoError(s.t, err)
}

// largePage gets a page of megabytes. It asks again if the log does not answer: a busy machine takes longer for so much
// than a read of the log has.
func (s *stack) largePage(target string) (a answer) {
	s.t.Helper()
	for range 10 {
		a = s.page(target, "")
		if !strings.Contains(a.body, "The log did not answer") {
			break
		}
	}
	return a
}

// Whatever a conversation holds is text, and a page of it has its bound.
func TestHostileConversationsAreText(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for i, text := range append(hostile, strings.Repeat(`"'<>&`, 30_000), strings.Repeat("\u202e\u0001", 30_000)) {
		long := text[:min(len(text), 100_000)]
		session := fmt.Sprint("s", i)
		message := func(role string) json.RawMessage {
			raw, err := json.Marshal([]map[string]any{{"role": role, "content": long, "name": long,
				"tool_calls": []any{map[string]any{"id": "c", "function": map[string]any{
					"name":      text[:min(len(text), 200)],
					"arguments": long}}}}, {"role": "tool", "tool_call_id": "c", "content": long}})
			require.NoError(t, err)
			return raw
		}
		for n := range 2 {
			s.largeTurn(conversation.Start{
				SessionID: session, RequestID: fmt.Sprint(n),
				Question: events.Question{QuestionNeutral: text, QuestionMessages: message("user")},
				Answer:   &events.Answer{AnswerNeutral: text, AnswerMessages: message("assistant")},
			})
		}
		for _, query := range []string{"", "?language=translated"} {
			a := s.largePage("/console/sessions/" + session + query)
			require.Equal(t, http.StatusOK, a.status)
			requireText(t, a.body)
			require.LessOrEqual(t, len(a.body), mostPage)
		}
	}
	for _, never := range []string{"alert", "evil", "xxxxxxxx"} {
		require.NotContains(t, s.logs.String(), never)
	}
	families, err := s.metrics.Gather()
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(families), "alert")
}

// A turn with thousands of messages, and ids that are all escapes, keep within the bound.
func TestManyMessagesKeepWithinThePage(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	session := strings.Repeat("<", 256)
	calls := slicesRepeat(map[string]any{"id": "c", "function": map[string]any{"name": "f"}}, 2_000)
	messages, err := json.Marshal(append(
		slicesRepeat(map[string]any{"role": strings.Repeat("r", 1000), "content": "<b>"}, 2_000),
		map[string]any{"role": "assistant", "tool_calls": calls}))
	require.NoError(t, err)
	tools, err := json.Marshal([]any{map[string]any{"role": "assistant", "tool_calls": calls}})
	require.NoError(t, err)
	for n := range 30 {
		if n == 29 {
			messages = tools
		}
		s.largeTurn(conversation.Start{
			SessionID: session, RequestID: fmt.Sprint(n),
			Question: events.Question{QuestionNeutral: "q", QuestionMessages: messages},
		})
	}
	a := s.largePage("/console/sessions/" + strings.Repeat("%3C", 256))
	require.Equal(t, http.StatusOK, a.status)
	require.LessOrEqual(t, len(a.body), mostPage)
	require.Contains(t, a.body, "more messages than this page has room for")
}

func slicesRepeat(one any, n int) (list []any) {
	for range n {
		list = append(list, one)
	}
	return list
}

// Who may not read the log sees the conversation without its events.
func TestEventsNeedTheirScope(t *testing.T) {
	t.Parallel()
	s := start(t, newRing(map[string]access.Caller{
		"reader": {Name: "r", Scopes: reads}, "all": {Name: "a", Scopes: every},
	}))
	s.turn("s", "r", "Who is that?", "")
	require.NotContains(t, s.page("/console/sessions/s", s.cookieOf("reader")).body, "turn.started")
	require.Contains(t, s.page("/console/sessions/s", s.cookieOf("reader")).body, "Who is that?")
	require.Contains(t, s.page("/console/sessions/s", s.cookieOf("all")).body, "turn.started")
}
