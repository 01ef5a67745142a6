package v1_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// realQueries and realBodies are what real requests carry.
var (
	realQueries = map[string]string{
		"GET /v1/sessions/{session_id}":          "?min_position=0:1",
		"GET /v1/sessions/{session_id}/turns":    "?limit=2&status=all&min_position=0:1",
		"GET /v1/sessions/{session_id}/history":  "?limit=20",
		"GET /v1/identities/{identity_id}/turns": "?since=2026-01-02T03:04:05Z&until=2027-01-02T03:04:05Z&limit=5",
		"GET /v1/events": "?session_id=s&type=turnledger.turn.started.v1&from=0:1&to=0:9" +
			"&since=2026-01-02T03:04:05Z",
		"POST /v1/projections/{name}/verify": "?sample=3",
		"GET /v1/streams":                    "?replicas=1",
		"POST /v1/streams":                   "?replicas=1",
		"POST /v1/retention":                 "?dry_run=true",
		"GET /v1/receipts":                   "?limit=5&cursor=0:9",
	}
	realBodies = map[string]string{
		"POST /v1/sessions/{session_id}/turns": `{"request_id":"r","question_neutral":"Who is it?","question_translated":"Wer ist es?","translate_chat":true,"identity_id":"ada","pipeline_name":"p","consultant":"c","repository":"x","metadata":{"channel":"web","locale":"de"},` +
			`"question_messages":[{"role":"user","content":[{"type":"text","text":"Who is it?"},{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}]}]}`,
		"POST /v1/turns": `{"session_id":"s","request_id":"w1","question_neutral":"Who?","answer_neutral":"Nobody."}` + "\n" +
			`{"session_id":"t","request_id":"w2","question_neutral":"Where?","identity_id":"ada"}`,
		"POST /v1/sessions/{session_id}/turns/{turn_id}/finalize": `{"request_id":"r","answer_neutral":"Nobody.","answer_translated":"Niemand.","metadata":{"channel":"web"},` +
			`"answer_messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"find","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"none"},{"role":"assistant","content":"Nobody."}]}`,
		"POST /v1/sessions/{session_id}/turns/{turn_id}/correct": `{"request_id":"r2","question_neutral":"Who was it?","answer_neutral":"Somebody."}`,
		"POST /v1/sessions/{session_id}/turns/{turn_id}/redact":  `{"reason":"asked","redacted_by":"ada"}`,
		"POST /v1/sessions/{session_id}/summaries":               `{"request_id":"m","through_turn_id":"066d3201-f058-5aa0-8105-935d3d2f85fc","summary_neutral":"x"}`,
		"POST /v1/sessions/{session_id}/reset":                   `{"reason":"anew"}`,
		"POST /v1/sessions/{session_id}/fork":                    `{"request_id":"f","session_id":"branch"}`,
		"POST /v1/sessions/query":                                `{"title":"butler","metadata":{"folder":"crime"},"limit":3,"since":"2026-01-01T00:00:00Z"}`,
		"POST /v1/search":                                        `{"query":"q"}`,
		"POST /v1/similar":                                       `{"question":"q"}`,
		"PATCH /v1/sessions/{session_id}":                        `{"request_id":"d","title":"Butler","metadata":{"folder":"crime","old":null},"kind":"conversation"}`,
		"PUT /v1/sessions/{session_id}/identity":                 `{"identity_id":"ada"}`,
		"DELETE /v1/sessions/{session_id}":                       `{"reason":"asked","redacted_by":"ada"}`,
		"DELETE /v1/identities/{identity_id}":                    `{"reason":"asked"}`,
		"POST /v1/sessions/{session_id}/context": `{"message":"And then?","system_prompt":"Be brief.","max_messages":10,"max_tokens":2000,"idle_timeout":"30m","language":"translated","include_pending":true,"format":"anthropic","as_of":{"position":"0:1"},` +
			`"conversation_history":[{"role":"user","content":"Hello"},{"role":"assistant","content":"Hello."}]}`,
		"POST /v1/threads/{thread_id}/messages":        `{"content":"Hello","user_id":"ada","request_id":"m1"}`,
		"POST /v1/threads/{thread_id}/messages/stream": `{"content":"Hello","user_id":"ada"}`,
		"POST /v1/chat": `{"thread_id":"new","content":"Hello","max_messages":10}`,
		"POST /v1/deadletters/{projection}/{position}/drop": `{"reason":"no turn of ours","dropped_by":"ada"}`,
		"POST /v1/chat/stream":                              `{"thread_id":"t","content":"Hello"}`,
	}
)

// realRequest is a request of a call, as a client sends it.
func realRequest(pattern string) []byte {
	method, path := fill(pattern, "s")
	return fmt.Appendf(nil, "%s %s%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, realQueries[pattern], len(realBodies[pattern]), realBodies[pattern])
}

// ask answers the bytes of a request by somebody who may do everything; false where
// net/http would not take them.
func (s *stack) ask(ctx context.Context, raw []byte) (*httptest.ResponseRecorder, bool) {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // events may be followed for ever
	defer cancel()
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
	r.Header.Del("Accept")
	r.Header.Set("Authorization", "Bearer all")
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r.WithContext(ctx))
	return w, true
}

// FuzzRequest holds any request that net/http takes against every call of the API: no
// panic, no 500, and no refusal that repeats the body. It begins with a real request of each
// call and with hostile ones.
func FuzzRequest(f *testing.F) {
	s, _ := guarded(f, ring{})
	for _, pattern := range slices.Sorted(maps.Keys(routes(s.api))) {
		w, ok := s.ask(f.Context(), realRequest(pattern))
		require.True(f, ok, pattern)
		require.NotContains(f, []int{http.StatusBadRequest, http.StatusMethodNotAllowed,
			http.StatusUnprocessableEntity}, w.Code, "%s is no real request: %s", pattern, w.Body)
		f.Add(realRequest(pattern))
	}
	h := malformer{rand.New(rand.NewPCG(1, 2))}
	for range 200 {
		if raw, _ := h.request(); len(raw) < 8<<10 {
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		w, ok := s.ask(t.Context(), raw)
		if !ok {
			return
		}
		if w.Code == http.StatusInternalServerError {
			t.Fatalf("500: %s\n%s", w.Body, s.logs)
		}
		if w.Code >= 400 && strings.Contains(w.Body.String(), hidden) {
			t.Fatalf("it repeats what was sent: %s", w.Body)
		}
	})
}
