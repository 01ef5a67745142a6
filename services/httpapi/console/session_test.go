package console_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/console"
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
	fixed := must.Get(h.CorrectTurn(t.Context(), decide.Correct{
		SessionID: "s", TurnID: turns["wrong"].ID, RequestID: "fix", QuestionNeutral: &question,
	}))(t)
	turns["fixed"] = fixed
	turns["gone"] = s.turn("s", "gone", "an unspeakable question", "an unspeakable answer")
	must.Get(h.RedactTurn(t.Context(), "s", decide.Redact{TurnID: turns["gone"].ID}))(t)
	whole := decide.Start{SessionID: "s", RequestID: "tools", Question: events.Question{
		QuestionNeutral: "the weather", QuestionTranslated: "das Wetter",
		QuestionMessages: json.RawMessage(`[{"role":"user","content":[{"type":"text","text":"what is this?"},` +
			`{"type":"image_url","image_url":{"url":"https://elsewhere.example/cat.png"}}]}]`),
	}, Answer: &events.Answer{AnswerNeutral: "sunny", AnswerTranslated: "sonnig", AnswerMessages: json.RawMessage(
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"weather",` +
			`"arguments":"{\"city\":\"Ulm\"}"}}]},{"role":"tool","tool_call_id":"c1","content":"18 degrees"},` +
			`{"role":"assistant","content":"It is sunny."}]`)}}
	turns["tools"] = must.Get(h.StartTurn(t.Context(), whole))(t)
	turns["pending"] = s.turn("s", "pending", "still open?", "")
	return turns
}

func TestAConversation(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	turns := conversed(s)
	branch := must.Get(s.services.History.ForkSession(t.Context(), decide.ForkSession{
		SessionID: "s", RequestID: "f", ChildID: "the-branch", TurnID: turns["fixed"].ID,
	}))(t)
	require.Equal(t, "the-branch", branch.SessionID)
	must.Get(s.services.History.SummarizeSession(t.Context(), decide.Summarize{
		ThroughTurnID: turns["fixed"].ID, Summary: events.SessionSummarized{SessionID: "s", RequestID: "m",
			SummaryNeutral: "They spoke of somebody."},
	}))(t)

	// A mark that has made none: its fork lost a race to another session's.
	at := turns["fixed"].Position
	must.Get(s.log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.SessionBranched{
		SessionID: "s", ChildSessionID: "elsewhere", RequestID: "lost", FromSessionID: "s", Root: "s", At: at,
		Segments: []events.Segment{{SessionID: "s", ThroughTurnID: turns["fixed"].ID, Through: at}},
	}}}))(t)
	s.turn("elsewhere", "r", "a question of somebody else", "an answer")
	late := s.turn("s", "late", "and later?", "")
	must.Get(s.services.History.FinalizeTurn(t.Context(), decide.Finalize{
		SessionID: "s", TurnID: late.ID, Answer: events.Answer{AnswerNeutral: "later"},
	}))(t)

	a := s.page("/console/sessions/s", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, 2, strings.Count(a.body, `<a href="/console/sessions/the-branch">`))
	require.NotContains(t, a.body, `<a href="/console/sessions/elsewhere">`)
	must.Contain(t, a.body,
		"Who is that?", "A plain answer.", "a corrected question", "a misspelt question",
		"This turn was redacted", "Tool: <bdi class=\"id\">weather</bdi>", "city", "18 degrees", "It is sunny.",
		"[Image: https://elsewhere.example/cat.png]", "still open?", "pending", "Summary of 2 turns",
		"They spoke of somebody.", `A branch leaves here: <a href="/console/sessions/the-branch">`, `<span class="tag">corrected</span>`,
		`<span class="tag">redacted</span>`, "answered after", "no answer yet",
		"recorded with its answer")
	require.NotContains(t, a.body, "unspeakable")
	struck := `(?s)class="turn earlier" id="t-` + turns["wrong"].ID.String() + `".*a misspelt`
	require.Regexp(t, regexp.MustCompile(struck), a.body)
	require.Less(t, strings.Index(a.body, "Who is that?"), strings.Index(a.body, "still open?"))
	require.Contains(t, s.page("/console/sessions/s?language=translated", "").body, "sonnig")
	require.NotContains(t, a.body, "sonnig</div>")

	shared := s.page("/console/sessions/the-branch", "").body
	must.Contain(t, shared, "Who is that?", `shared from <a href="/console/sessions/s">`, "session.forked.v1")
}

// A position names an event for ever: its page has the row, opened, and its JSON whole.
func TestPermalinks(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for i := range 60 {
		s.turn("s", fmt.Sprint(i), fmt.Sprint("question ", i), "an answer")
	}
	a := s.page("/console/sessions/s?at=0:7", "")
	must.Contain(t, a.body, `<details id="e-0-7" open>`, "question 3")
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
func (s *stack) largeTurn(c decide.Start) {
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
			raw := must.Get(json.Marshal([]map[string]any{{"role": role, "content": long, "name": long,
				"tool_calls": []any{map[string]any{"id": "c", "function": map[string]any{
					"name":      text[:min(len(text), 200)],
					"arguments": long}}}}, {"role": "tool", "tool_call_id": "c", "content": long}}))(t)
			return raw
		}
		for n := range 2 {
			s.largeTurn(decide.Start{
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
	must.Lack(t, s.logs.String(), "alert", "evil", "xxxxxxxx")
	families := must.Get(s.metrics.Gather())(t)
	require.NotContains(t, fmt.Sprint(families), "alert")
}

// A turn with thousands of messages, and ids that are all escapes, keep within the bound.
func TestManyMessagesKeepWithinThePage(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	session := strings.Repeat("<", 256)
	calls := slicesRepeat(map[string]any{"id": "c", "function": map[string]any{"name": "f"}}, 2_000)
	messages := must.Get(json.Marshal(append(
		slicesRepeat(map[string]any{"role": strings.Repeat("r", 1000), "content": "<b>"}, 2_000),
		map[string]any{"role": "assistant", "tool_calls": calls})))(t)
	tools := must.Get(json.Marshal([]any{map[string]any{"role": "assistant", "tool_calls": calls}}))(t)
	for n := range 30 {
		if n == 29 {
			messages = tools
		}
		s.largeTurn(decide.Start{
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

// hostile are texts that would do something if a page took them for more than text.
var hostile = []string{
	`<script>alert(1)</script>`, `<svg onload=alert(1)>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`,
	`javascript:alert(1)`, `{{.}} ${x}`, `</textarea></div></details></main>`,
	"\u202eevil\u202d", "a\x00b\x1b[31mred\x07",
	"data:image/png;base64,AAAA", strings.Repeat("x", 1<<20),
}

// requireText fails if a page holds a hostile text as anything but text.
func requireText(t *testing.T, body string) {
	t.Helper()
	must.Lack(t, body, "<script>alert", "<svg onload", "<img", "onmouseover='", `href="javascript`,
		"</textarea>", "\x00", "\x1b", "\x07", `src="data`)
}

func TestTheListOfSessions(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.lists.page = services.SessionPage{NextCursor: "next", Sessions: []projections.ListedSession{
		listed("a/b?c", "ada", "A title", "Who is that?"), listed("anonymous", "", "", ""),
	}}
	a := s.page("/console/?identity_id=ada&since=2026-01-02T03:04&until=2026-01-03T00:00:00Z&cursor=c", "")
	require.Equal(t, http.StatusOK, a.status)
	must.Contain(t, a.body, `href="/console/sessions/a%2Fb%3Fc"`, "A title", "Who is that?", "anonymous",
		"1970-01-01 00:00:02", `identity_id=ada`, `cursor=next`)
	require.Equal(t, "ada", s.lists.asked.IdentityID)
	require.Equal(t, "c", s.lists.asked.Cursor)
	require.Equal(t, time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), s.lists.asked.Since)
	require.Equal(t, time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC), s.lists.asked.Until)
	s.lists.page = services.SessionPage{}
	require.Contains(t, s.page("/console/?identity_id=ada", "").body, "If the identity was erased, the page Receipts")
	require.NotContains(t, s.page("/console/?state=pending", "").body, "was erased")
	for _, wrong := range []string{"?since=soon", "?state=odd"} {
		require.Equal(t, http.StatusUnprocessableEntity, s.page("/console/"+wrong, "").status)
	}
	s.lists.err = services.ErrBehind
	require.Equal(t, http.StatusServiceUnavailable, s.page("/console/", "").status)
}

// A title is a text: it is posted, and stands neither in an address, nor in a page's title or a log line.
func TestATitleIsPosted(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.lists.page = services.SessionPage{NextCursor: "next", Sessions: []projections.ListedSession{
		listed("s", "", "secret plan", "a secret question")}}
	a := s.do("POST", "/console/", url.Values{"title": {"secret"}, "identity_id": {"ada"}, "key": {"folder"},
		"value": {"secret folder"}})
	require.Equal(t, map[string]string{"folder": "secret folder"}, s.lists.asked.Metadata)
	require.Equal(t, "secret", s.lists.asked.Title)
	require.Equal(t, "ada", s.lists.asked.IdentityID)
	for line := range strings.SplitSeq(a.body, "\n") {
		if strings.Contains(line, "href=") || strings.Contains(line, "action=") || strings.Contains(line, "<title>") {
			for _, attribute := range strings.Split(line, `href="`)[1:] {
				address, _, _ := strings.Cut(attribute, `"`)
				require.NotContains(t, address, "secret")
			}
			require.NotRegexp(t, `<title>[^<]*secret`, line)
		}
	}
	s.page("/console/?title=secret&key=secret&value=secret", "")
	require.Empty(t, s.lists.asked.Metadata)
	require.Empty(t, s.lists.asked.Title, "a title in an address is not read")
	require.NotContains(t, s.logs.String(), "secret")
}

func TestHostileTextsOfTheListAreText(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for _, text := range hostile {
		short := text[:min(len(text), 200)]
		s.lists.page = services.SessionPage{NextCursor: "c", Sessions: []projections.ListedSession{
			listed("id"+short, "of "+short, short, short)}}
		a := s.do("POST", "/console/", url.Values{"title": {short}, "identity_id": {short}, "key": {short},
			"value": {short}})
		if strings.ContainsFunc(short, unicode.IsControl) {
			require.Equal(t, http.StatusUnprocessableEntity, a.status)
		} else {
			require.Equal(t, http.StatusOK, a.status)
		}
		requireText(t, a.body)
		requireText(t, s.page("/console/", "").body)
		escaped := url.QueryEscape(short)
		requireText(t, s.page("/console/?identity_id="+escaped+"&cursor="+escaped, "").body)
		requireText(t, s.page("/console/"+url.PathEscape(short), "").body)
	}
	require.NotContains(t, s.logs.String(), "alert")
}

// A bound key sees the sessions of its identity; without events:read a key names one.
func TestWhoseSessionsAreListed(t *testing.T) {
	t.Parallel()
	s := start(t, newRing(map[string]access.Caller{
		"ada": {Name: "ada", Scopes: reads, IdentityID: "ada"}, "reader": {Name: "reader", Scopes: reads},
	}))
	ada, reader := s.cookieOf("ada"), s.cookieOf("reader")
	require.Equal(t, http.StatusOK, s.page("/console/", ada).status)
	require.Equal(t, "ada", s.lists.asked.IdentityID)
	require.Equal(t, http.StatusForbidden, s.page("/console/?identity_id=bob", ada).status)
	s.lists.asked = services.SessionsAsk{}
	require.Contains(t, s.page("/console/", reader).body, "events:read")
	require.Zero(t, s.lists.asked, "nothing was read")
	s.page("/console/?identity_id=bob", reader)
	require.Equal(t, "bob", s.lists.asked.IdentityID)
}

// The links of a page of the log keep its filters, and do not lead out of the time that was asked for.
func TestTheLogOfATime(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		s := startWith(t, nil, partitions)
		for i := range 10 {
			s.turn("s", fmt.Sprint("before", i), "a question", "an answer")
		}
		since := time.Now().UTC().Format(time.RFC3339Nano)
		for i := range 60 {
			s.turn("s", fmt.Sprint(i), "a question", "an answer")
		}
		at := "/console/log?" + url.Values{"since": {since}, "type": {"turn.started.v1"}, "session_id": {"s"}}.Encode()
		first := s.page(at, "").body
		require.NotContains(t, first, `rel="prev"`, "nothing of that time is older")
		newer := linkOf(t, first, "next")
		second := s.page(newer, "").body
		for _, address := range []string{newer, linkOf(t, second, "prev")} {
			must.Contain(t, address, "since="+url.QueryEscape(since), "type=turn.started.v1", "session_id=s")
		}
		require.Equal(t, 60, strings.Count(first+second, `class="group"`))
		require.NotContains(t, second, `rel="next"`)
		require.Contains(t, second, "data-live")
		older := s.page(linkOf(t, second, "prev"), "").body
		require.Equal(t, 50, strings.Count(older, `class="group"`), "and none from before that time")
		require.NotContains(t, older, `rel="prev"`)
		require.Contains(t, older, "To the first ones since")
	}
}

// linkOf returns the address of the only link of a page that has a relation.
func linkOf(t *testing.T, body, rel string) string {
	t.Helper()
	found := regexp.MustCompile(`href="([^"]+)" rel="` + rel + `"`).FindStringSubmatch(body)
	require.NotNil(t, found, rel)
	return html.UnescapeString(found[1])
}

// recorded returns items as the log keeps them.
func recorded(t *testing.T, list ...string) json.RawMessage {
	t.Helper()
	var all []json.RawMessage
	for _, raw := range list {
		all = append(all, must.Get(message.ParseItem(json.RawMessage(raw)))(t).Normal().Message())
	}
	return must.Get(json.Marshal(all))(t)
}

// Items that clients of OpenAI's API write are shown for what they are.
func TestItemsOfAConversation(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	must.Get(s.services.History.StartTurn(t.Context(), decide.Start{
		SessionID: "s", RequestID: "r", Question: events.Question{QuestionNeutral: "q", QuestionMessages: recorded(t,
			`{"type":"message","role":"developer","content":"Be short."}`,
			`{"type":"message","role":"user","content":[{"type":"input_text","text":"What is in it?"},
				{"type":"input_image","image_url":"https://elsewhere.example/cat.png"},
				{"type":"input_file","file_id":"file-1","filename":"report.pdf"}]}`)},
		Answer: &events.Answer{AnswerNeutral: "a", AnswerMessages: recorded(t,
			`{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"A thought."}]}`,
			`{"type":"function_call","call_id":"c1","name":"weather","arguments":"{\"city\":\"Ulm\"}"}`,
			`{"type":"function_call_output","call_id":"c1","output":"18 degrees"}`,
			`{"type":"custom_tool_call","call_id":"c2","name":"shout","input":"loud words"}`,
			`{"type":"custom_tool_call_output","call_id":"c2","output":"LOUD WORDS"}`,
			`{"type":"web_search_call","id":"ws_1","action":{"type":"search","query":"cats"}}`,
			`{"type":"function_call_output","call_id":"elsewhere","output":"a result alone"}`,
			`{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"I had better not."}]}`)},
	}))(t)
	a := s.page("/console/sessions/s", "")
	require.Equal(t, http.StatusOK, a.status)
	must.Contain(t, a.body,
		`class="message system"><div class="role">developer</div><div class="text" dir="auto">Be short.`,
		"What is in it?\n[Image: https://elsewhere.example/cat.png]\n[File sent: report.pdf]",
		`Item: <bdi class="id">reasoning</bdi>`, "A thought.",
		`Tool: <bdi class="id">weather</bdi></summary><pre dir="auto">{&#34;city&#34;:&#34;Ulm&#34;}</pre>`,
		`result</div><pre dir="auto">18 degrees</pre>`,
		`Tool: <bdi class="id">shout</bdi></summary><pre dir="auto">loud words</pre>`,
		`result</div><pre dir="auto">LOUD WORDS</pre>`, `Item: <bdi class="id">web_search_call</bdi>`,
		`class="message tool"><div class="role">tool</div><div class="text" dir="auto">a result alone`,
		"I had better not.")
}

// The messages of other vendors and of older clients, too, and what is no message at all.
func TestMessagesOfOtherForms(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	must.Get(s.services.History.StartTurn(t.Context(), decide.Start{
		SessionID: "s", RequestID: "r",
		Question: events.Question{QuestionNeutral: "q", QuestionTranslated: "Q", QuestionMessages: json.RawMessage(
			`[{"role":"user","content":"bare text"}]`)},
		Answer: &events.Answer{AnswerNeutral: "a", AnswerMessages: json.RawMessage(`[
			{"role":"assistant","content":[{"type":"text","text":"I look."},
				{"type":"tool_use","id":"t1","name":"lens","input":{"x":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"seen"}]},
			{"role":"assistant","content":null,"function_call":{"name":"old","arguments":"{}"}}]`)},
	}))(t)
	a := s.page("/console/sessions/s", "")
	must.Contain(t, a.body, "bare text", "I look.", `Tool: <bdi class="id">lens</bdi>`,
		`result</div><pre dir="auto">seen</pre>`, `Tool: <bdi class="id">old</bdi>`, "No result in this turn.")
	translated := s.page("/console/sessions/s?language=translated", "").body
	require.Contains(t, translated, `<div class="text" dir="auto">Q</div>`)
	require.NotContains(t, translated, "bare text</div>")
	require.Contains(t, translated, "I look.", "a half without a translation is shown as it is")
}

// A session of the OpenAI surface says what it is, and a turn that messages were taken out of says so.
func TestKindsAndPrunes(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	h := s.services.History
	must.Get(h.DescribeSession(t.Context(), decide.Describe{
		SessionID: "s", RequestID: "d", Kind: events.KindConversation,
	}))(t)
	turn := must.Get(h.StartTurn(t.Context(), decide.Start{SessionID: "s", RequestID: "r",
		Question: events.Question{QuestionNeutral: "q", QuestionMessages: recorded(t,
			`{"type":"message","role":"user","content":"one stays"}`,
			`{"type":"message","role":"user","content":"one goes"}`)}}))(t)
	require.NotContains(t, s.page("/console/sessions/s", "").body, "were taken out")
	must.Get(h.PruneTurn(t.Context(), decide.Prune{SessionID: "s", PruneID: "p", TurnID: turn.ID,
		Keep: func(m session.Message) json.RawMessage {
			if m.Number == 1 {
				return nil
			}
			return m.Raw
		}}))(t)
	a := s.page("/console/sessions/s", "").body
	must.Contain(t, a, "<dt>Kind</dt><dd>conversation</dd>", "one stays",
		"some of its messages were taken out", `<span class="tag">pruned</span>`)
	require.NotContains(t, a, "one goes")
}

// A half whose items were deleted is no message; the other half stays.
func TestAHalfThatIsDeletedIsNotShown(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for sessionID, half := range map[string]events.Half{"asked": events.HalfAnswer, "told": events.HalfQuestion} {
		must.Get(s.services.History.StartTurn(t.Context(), decide.Start{SessionID: sessionID, RequestID: "r",
			Question: events.Question{QuestionNeutral: "words"}, Answer: &events.Answer{AnswerNeutral: "words"}}))(t)
		must.Get(s.services.History.PruneTurn(t.Context(), decide.Prune{SessionID: sessionID,
			TurnID: events.TurnID(sessionID, "r"), PruneID: "p", Keep: func(m session.Message) json.RawMessage {
				if m.Half == half {
					return nil
				}
				return m.Raw
			}}))(t)
		a := s.page("/console/sessions/"+sessionID, "")
		require.Equal(t, http.StatusOK, a.status)
		require.Contains(t, a.body, `dir="auto">words`)
		require.Equal(t, 1, strings.Count(a.body, `<div class="role">`), sessionID)
	}
}

// erasedAda is a console in which the identity ada was erased, with its two sessions.
func erasedAda(t *testing.T, o *operated) *stack {
	t.Helper()
	s := start(t, nil, o.set)
	for _, session := range []string{"a", "b"} {
		s.turn(session, "1", "a question", "an answer")
		s.link(session, "ada")
	}
	s.turn("other", "1", "a question", "an answer")
	receipt, err := s.services.History.EraseIdentity(t.Context(), "ada", services.Erasure{Reason: "asked", By: "ops"})
	require.NoError(t, err)
	for _, session := range []string{"a", "b"} {
		erased := (&events.IdentityErased{IdentityID: "ada", ReceiptID: receipt, Reason: "asked"}).Of(session)
		must.Get(s.log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{erased}}))(t)
	}
	o.receipt = services.Receipt{ID: receipt, IdentityID: "ada", Reason: "<b>asked", By: "<i>ops",
		RequestedAt: time.Now()}
	return s
}

// The log of an identity has the identity's own events, each with its receipt, and no link that leads nowhere.
func TestTheLogOfAnErasedIdentity(t *testing.T) {
	t.Parallel()
	o := &operated{}
	s := erasedAda(t, o)
	receipt := `<a href="/console/receipts?id=` + o.receipt.ID + `">Its receipt</a>`
	body := s.page("/console/log?identity_id=ada&type=identity.erased.v1", "").body
	must.Contain(t, body, `Of the identity <bdi class="id">ada</bdi>.`, receipt)
	must.Lack(t, body, "In its session", "Whole JSON", "sessions/ada")
	body = s.page("/console/log?identity_id=ada&type=session.erased.v1", "").body
	require.Equal(t, 2, strings.Count(body, receipt))
	body = s.page("/console/log?identity_id=ada", "").body
	require.Contains(t, body, "identity.erased.v1")
	require.NotContains(t, body, "other")
}

// An erased session has no page. It says so, and leads to the receipt, for those who may see receipts.
func TestThePageOfAnErasedSession(t *testing.T) {
	t.Parallel()
	o := &operated{}
	s := erasedAda(t, o)
	a := s.page("/console/sessions/a", "")
	require.Equal(t, http.StatusNotFound, a.status)
	must.Contain(t, a.body, "This session was erased.", `<a href="/console/receipts?id=0%3A`)
	require.NotContains(t, s.page("/console/sessions/none", "").body, "was erased.")
	keyed := start(t, newRing(map[string]access.Caller{"k": {Name: "reader", Scopes: access.ContextRead}}))
	keyed.turn("s", "1", "a question", "an answer")
	must.Get(keyed.services.History.EraseSession(t.Context(), "s", services.Erasure{}))(t)
	a = keyed.page("/console/sessions/s", keyed.cookieOf("k"))
	require.Equal(t, http.StatusNotFound, a.status)
	require.NotContains(t, a.body, "receipts?id=")
}

// A receipt says who asked and why, which sessions it took, what each place is, what stays and what it does not reach.
func TestTheReceiptOfAnIdentity(t *testing.T) {
	t.Parallel()
	o := &operated{}
	s := erasedAda(t, o)
	three, two := 3, 2
	o.receipt.Places = []services.ReceiptPlace{
		{Place: "log", Done: true, Erased: &three}, {Place: "audit", Done: true, Erased: &two},
	}
	page := func() string { return s.page("/console/receipts?id="+o.receipt.ID, "").body }
	body := page()
	must.Contain(t, body, "&lt;b&gt;asked", "&lt;i&gt;ops", "an erased identity, with all its sessions",
		"<dt>Sessions</dt><dd>2: ", `<a href="/console/log?session_id=a"><bdi class="id">a</bdi></a>, `,
		"<span>3</span> events", "<span>2</span> sessions", "What stays:", "backups and copies of the disks",
		`href="/v1/receipts/`+o.receipt.ID+`">As JSON`, "the tables in PostgreSQL")
	o.receipt.SessionID = "a"
	require.Contains(t, page(), "<span>2</span> turns")
	require.Contains(t, page(), "an erased session")
	o.receipt.TurnID, o.receipt.IdentityID, o.receipt.Owner = "t", "", "bob"
	require.Contains(t, page(), `<bdi class="id">bob</bdi>`)

	// The list has an identity's erasure once, and the identity of a redacted turn's session.
	require.Contains(t, s.page("/console/receipts", "").body, `<bdi class="id">bob</bdi>`)
	o.more = []services.Receipt{{ID: "r", SessionID: "a", IdentityID: "ada"}, {ID: "r", IdentityID: "ada"},
		{ID: "r2", SessionID: "c"}}
	body = s.page("/console/receipts", "").body
	require.Equal(t, 1, strings.Count(body, "<td>identity, with its sessions</td>"))
	require.Equal(t, 1, strings.Count(body, "<td>session</td>"))
}

// The page of an identity's erasure says what it will take, and warns where nothing is known or all is done.
func TestWhatTheErasureOfAnIdentityTakes(t *testing.T) {
	t.Parallel()
	o := &operated{}
	s := erasedAda(t, o)
	body := func(identity string) string { return s.page("/console/identities/"+identity+"/erase", "").body }
	require.Contains(t, body("bob"), "Nothing is linked to bob")
	for _, id := range []string{"s1", "s2", "s3", "s4", "s5", "s6"} {
		s.lists.page.Sessions = append(s.lists.page.Sessions, listed(id, "bob", "", "a question"))
	}
	must.Contain(t, body("bob"), "6 sessions with 6 turns, from 1970-01-01 00:00:01 to 1970-01-01 00:00:02",
		"s1, s2, s3, s4, s5, and 1 more", `href="/console/?identity_id=bob">Back`, "anonymous")
	require.Equal(t, "bob", s.lists.asked.IdentityID)
	s.lists.page.NextCursor = "more"
	require.Contains(t, body("bob"), "at least 30 sessions")
	s.lists.err = errors.New("connection refused")
	require.Contains(t, body("bob"), "does not know how many")
	require.NotContains(t, body("bob"), "connection refused")
	require.Contains(t, body("ada"), "erased already")
	require.Contains(t, body("ada"), `href="/console/receipts?id=`+o.receipt.ID+`">Its receipt`)
	require.Equal(t, http.StatusOK, start(t, nil, func(c *console.Config) { c.Lists = nil }).page(
		"/console/identities/x/erase", "").status)
}

// What can't be undone stands apart, and the list leads on by identity.
func TestErasuresStandApart(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.turn("s", "1", "a question", "an answer")
	s.link("s", "ada")
	body := s.page("/console/sessions/s", "").body
	harmless, forGood, found := strings.Cut(body, `class="pages forgood"`)
	require.True(t, found)
	require.NotContains(t, harmless, "/erase")
	require.Contains(t, forGood, "Erase its identity with all sessions")
	s.lists.page.Sessions = []projections.ListedSession{listed("s", "ada", "", "a question")}
	require.Contains(t, s.page("/console/", "").body,
		`<a href="/console/?identity_id=ada"><bdi class="id">ada</bdi></a>`)
}
