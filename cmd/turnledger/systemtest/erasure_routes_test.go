package systemtest_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// kind of a call, by what it may answer.
type kind int

const (
	// shows texts to whoever may read them.
	shows kind = iota + 1
	// tells something of sessions or identities, and no text that the caller has not sent.
	tells
	// operates on views, backups and the log as a whole: it is not called here.
	operates
)

// kinds of all calls. A call that is not among them fails the test, so that somebody decides what it may show.
var kinds = map[string]kind{
	"POST /v1/sessions/{session_id}/turns":                    shows, // the first question stands
	"POST /v1/sessions/{session_id}/turns/{turn_id}/finalize": shows, // so does the first answer
	"POST /v1/turns":                                         tells,
	"PUT /v1/sessions/{session_id}/identity":                 tells,
	"PATCH /v1/sessions/{session_id}":                        shows, // the title and metadata that stand
	"GET /v1/sessions":                                       shows,
	"POST /v1/sessions/query":                                shows,
	"POST /v1/search":                                        shows,
	"POST /v1/similar":                                       tells, // systemtest/meaning has its texts
	"GET /v1/stats":                                          tells,
	"POST /v1/sessions/{session_id}/fork":                    tells,
	"POST /v1/sessions/{session_id}/summaries":               shows, // the first summary of the request
	"GET /v1/sessions/{session_id}/summaries":                shows,
	"POST /v1/sessions/{session_id}/turns/{turn_id}/redact":  tells,
	"POST /v1/sessions/{session_id}/turns/{turn_id}/correct": tells,
	"POST /v1/sessions/{session_id}/reset":                   tells,
	"GET /v1/sessions/{session_id}":                          tells,
	"GET /v1/sessions/{session_id}/turns":                    shows,
	"GET /v1/sessions/{session_id}/history":                  shows,
	"POST /v1/sessions/{session_id}/context":                 shows,
	"GET /v1/identities/{identity_id}/turns":                 shows,
	"DELETE /v1/sessions/{session_id}":                       tells,
	"DELETE /v1/identities/{identity_id}":                    tells,
	"GET /v1/receipts/{id}":                                  tells,
	"GET /v1/receipts":                                       tells,
	"GET /v1/keys":                                           tells,
	"GET /v1/events":                                         shows,
	"POST /v1/threads/{thread_id}/messages":                  tells,
	"POST /v1/threads/{thread_id}/messages/stream":           tells,
	"POST /v1/chat":                                          tells,
	"POST /v1/chat/stream":                                   tells,
	"GET /v1/projections":                                    tells,
	"GET /v1/deadletters":                                    tells,
	"GET /v1/deadletters/{projection}/{position}":            tells,
	"POST /v1/deadletters/{projection}/{position}/retry":     operates,
	"POST /v1/deadletters/{projection}/{position}/drop":      operates,
	"POST /v1/projections/{name}/rebuild":                    operates,
	"DELETE /v1/projections/{name}/rebuild":                  operates,
	"POST /v1/projections/{name}/verify":                     tells,
	"GET /v1/streams":                                        tells,
	"POST /v1/streams":                                       operates,
	"POST /v1/retention":                                     operates,
	"GET /v1/partitions/{partition}/snapshot":                operates, // the bytes of the log, which an eraser erases
	"POST /v1/restore":                                       operates,
}

// reads reports whether a call shows texts and records nothing.
func reads(pattern string) bool {
	return kinds[pattern] == shows && (strings.HasPrefix(pattern, "GET") || strings.HasSuffix(pattern, "/context") ||
		pattern == "POST /v1/sessions/query" || pattern == "POST /v1/search")
}

// look is a way to call a call, beside the path: what has the texts in it before the erasure.
type look struct {
	query, body string
}

// member names what calls are made for: a session of the identity with its turn.
type subject struct {
	session, identity, turn string
	recorded                time.Time
}

// looks returns the ways to call a call, with a placeholder for the session in each.
func (m subject) looks(pattern string) []look {
	message := func(rest string) look { return look{body: `{"message":"which cats?"` + rest + `}`} }
	switch pattern {
	case "GET /v1/sessions/{session_id}/turns":
		return []look{{}, {query: "?status=all"}, {query: "?limit=10000"}}
	case "POST /v1/sessions/{session_id}/context":
		return []look{
			message(""), message(`,"include_pending":true,"max_messages":100000`), message(`,"format":"anthropic"`),
			message(fmt.Sprintf(`,"as_of":{"time":%q}`, m.recorded.Format(time.RFC3339Nano))),
			message(`,"conversation_history":[],"memory":true`),
		}
	case "GET /v1/events":
		return []look{{}, {query: "?session_id=" + m.session}, {query: "?identity_id=" + m.identity}}
	case "GET /v1/sessions":
		return []look{{}, {query: "?identity_id=" + m.identity}}
	case "POST /v1/sessions/query":
		return []look{{body: `{}`}, {body: `{"identity_id":"` + m.identity + `"}`}, {body: `{"title":"SEC"}`}}
	case "POST /v1/search":
		return []look{{body: `{"query":"cats"}`}, {body: `{"query":"cats","identity_id":"` + m.identity + `"}`}}
	case "POST /v1/sessions/{session_id}/fork":
		return []look{{body: `{"request_id":"f"}`}}
	case "POST /v1/sessions/{session_id}/summaries":
		return []look{{body: `{"request_id":"sum","through_turn_id":"` + m.turn + `","summary_neutral":"another"}`}}
	case "PATCH /v1/sessions/{session_id}":
		return []look{{body: `{"metadata":{"k":"v"}}`}}
	case "POST /v1/sessions/{session_id}/turns":
		return []look{{body: `{"request_id":"r1","question_neutral":"another"}`}}
	case "POST /v1/sessions/{session_id}/turns/{turn_id}/finalize":
		return []look{{body: `{"answer_neutral":"another"}`}}
	case "POST /v1/sessions/{session_id}/turns/{turn_id}/correct":
		return []look{{body: `{"request_id":"c1","answer_neutral":"another"}`}}
	case "PUT /v1/sessions/{session_id}/identity":
		return []look{{body: `{"identity_id":"` + m.identity + `"}`}}
	case "POST /v1/chat", "POST /v1/chat/stream":
		return []look{{body: `{"content":"which cats?","thread_id":"` + m.session + `"}`}}
	case "POST /v1/threads/{thread_id}/messages", "POST /v1/threads/{thread_id}/messages/stream":
		return []look{{body: `{"content":"which cats?"}`}}
	default:
		return []look{{}}
	}
}

// ask makes a call for the member, and returns the status and the bytes.
func (m subject) ask(t *testing.T, p *stack.Process, pattern, receipt string, l look) (int, string) {
	t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	path = strings.NewReplacer("{session_id}", m.session, "{thread_id}", m.session, "{identity_id}", m.identity,
		"{turn_id}", m.turn, "{id}", receipt, "{name}", "recent", "{projection}", "recent", "{position}",
		"0:1").Replace(path)
	require.NotContains(t, path, "{", "what stands there in a path of this test?")
	req, err := http.NewRequestWithContext(t.Context(), method, p.URL+path+l.query, strings.NewReader(l.body))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(raw)
}

// documented returns the calls that a process says it has.
func documented(t *testing.T, p *stack.Process) (out []string) {
	t.Helper()
	for path, item := range p.Get(t, "/openapi.json")["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			out = append(out, strings.ToUpper(method)+" "+path)
		}
	}
	require.Greater(t, len(out), 25)
	return out
}

// same returns an answer without what tells one session, or one place in the log, from another.
func same(t *testing.T, raw string, m subject) string {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(raw), &out), raw)
	for _, name := range []string{"position", "source"} {
		delete(out, name)
	}
	return strings.ReplaceAll(fmt.Sprint(out), m.session, "session")
}

// Every call of the document is made for a session of an erased identity, while no eraser runs and the log and all
// views still hold its texts. Those that read answer as for a session, or an identity, that there is not.
func TestNoCallShowsAnErasedIdentity(t *testing.T) {
	t.Parallel()
	env := append([]string{"TURNLEDGER_PARTITIONS=2", "TURNLEDGER_POSTGRES_URL=" + pg.URL(t)},
		stack.NewModel(t).Env()...)
	p := stack.Serve(t, env, "--roles", "api,context,recent,audit,chat")
	m := subject{session: "erased", identity: "alice"}
	m.turn = p.RecordTurn(t, m.session, "r1", "SECRET cats", "SECRET cats, too")
	p.LinkIdentity(t, m.session, m.identity)
	p.Must(t, http.StatusOK, http.MethodPatch, stack.SessionPath(m.session), map[string]any{"title": "SECRET title"})
	p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(m.session)+"/summaries",
		map[string]any{"request_id": "sum", "through_turn_id": m.turn, "summary_neutral": "SECRET summary"})
	p.WaitCaughtUp(t, "recent", "audit")
	m.recorded = time.Now()
	calls := documented(t, p)
	for _, pattern := range calls {
		require.Contains(t, kinds, pattern, "say in kinds what it may show")
		if kinds[pattern] != shows {
			continue
		}
		for _, l := range m.looks(pattern) {
			_, raw := m.ask(t, p, pattern, "", l)
			require.Contains(t, raw, "SECRET", "the test sees what %s%s shows, with %s", pattern, l.query, l.body)
		}
	}

	receipt := p.Must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/alice", nil)["receipt_id"].(string)
	nobody := subject{session: "unknown", identity: "nobody", turn: m.turn, recorded: m.recorded}
	// First, since a write closes the session, and then the views have nothing of it.
	slices.SortFunc(calls, func(a, b string) int { return cmp.Compare(fmt.Sprint(!reads(a)), fmt.Sprint(!reads(b))) })
	for _, pattern := range calls {
		if kinds[pattern] == operates {
			continue
		}
		for _, l := range m.looks(pattern) {
			what := fmt.Sprint(pattern, l.query, " with ", l.body)
			status, raw := m.ask(t, p, pattern, receipt, l)
			require.Less(t, status, http.StatusInternalServerError, what+raw)
			require.NotContains(t, raw, "SECRET", what)
			if !reads(pattern) || pattern == "GET /v1/events" { // which has the events, redacted
				continue
			}
			likewise, of := nobody.ask(t, p, pattern, receipt, l)
			require.Equal(t, likewise, status, what)
			require.Equal(t, same(t, of, nobody), same(t, raw, m), what)
		}
	}
	require.Equal(t, false, p.Get(t, stack.SessionPath(m.session))["found"])
}
