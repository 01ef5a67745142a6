package v1_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
)

const streamed1 = "/v1/streams/sessions/s"

// messagesOf are the messages of an answer of a stream.
func messagesOf(t *testing.T, raw []byte) (out []map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(raw, &out), "%s", raw)
	return out
}

func (s *stack) turnOf(session, request string) string {
	s.t.Helper()
	a := s.as("all", "POST", "/v1/sessions/"+session+"/turns", map[string]any{"request_id": request,
		"question_neutral": "secret " + request, "answer_neutral": "a", "identity_id": "ada"})
	require.Equal(s.t, http.StatusCreated, a.status, "%s", a.raw)
	return a.body["turn_id"].(string)
}

// The read cases of the protocol's conformance tests that need no appends by it, on a session's stream.
func TestASessionIsADurableStream(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{})
	get := func(query string, header ...string) answer {
		return s.do("GET", streamed1+query, nil, append(header, "Authorization", "Bearer all")...)
	}
	requireProblem(t, get(""), http.StatusNotFound, "session_not_found")
	require.Equal(t, http.StatusNotFound, s.as("all", "HEAD", streamed1, nil).status)
	first := s.turnOf("s", "r1") // a link, and the turn
	s.turnOf("other", "r1")
	s.turnOf("s", "r2")

	all := get("")
	require.Equal(t, http.StatusOK, all.status, "%s", all.raw)
	require.Equal(t, []string{"application/json", "private, no-store", "true", "", ""}, []string{
		all.header.Get("Content-Type"), all.header.Get("Cache-Control"), all.header.Get("Stream-Up-To-Date"),
		all.header.Get("Stream-Closed"), all.header.Get("Stream-Cursor")})
	messages := messagesOf(t, all.raw)
	require.Len(t, messages, 3)
	must.Lack(t, string(all.raw), "other")
	next := all.header.Get("Stream-Next-Offset")
	require.Len(t, next, 20)
	require.Equal(t, next, s.as("all", "HEAD", streamed1, nil).header.Get("Stream-Next-Offset"))
	begin := get("?offset=-1")
	require.Equal(t, string(all.raw), string(begin.raw))
	require.Equal(t, all.header.Get("ETag"), begin.header.Get("ETag"))
	none := get("?offset=" + next)
	require.Equal(t, []string{"[]", next, "true"}, []string{string(none.raw), none.header.Get("Stream-Next-Offset"),
		none.header.Get("Stream-Up-To-Date")})
	now := get("?offset=now")
	require.Equal(t, []string{"[]", next, ""}, []string{string(now.raw), now.header.Get("Stream-Next-Offset"),
		now.header.Get("ETag")})
	require.Equal(t, "[]", string(get("?offset=09999999999999999999").raw), "beyond the end")
	for _, wrong := range []string{"?offset=1", "?offset=abc", "?offset=-2", "?offset=-1&offset=now",
		"?offset=0:1", "?live=sse", "?live=long-poll", "?offset=-1&live=yes"} {
		requireProblem(t, get(wrong), http.StatusBadRequest, "malformed")
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		a := s.as("all", method, streamed1, "{}")
		require.Equal(t, []any{http.StatusMethodNotAllowed, "GET, HEAD"}, []any{a.status, a.header.Get("Allow")})
	}

	// A reader who goes on from any offset gets what stands behind it, once.
	var seen []map[string]any
	for _, m := range messages {
		_, seq, _ := strings.Cut(m["position"].(string), ":")
		rest := messagesOf(t, get("?offset="+strings.Repeat("0", 20-len(seq))+seq).raw)
		seen = append(seen, m)
		require.Equal(t, messages[len(seen):], append([]map[string]any{}, rest...))
	}

	// What is withdrawn is confirmed by no ETag, and offsets stay.
	tag := all.header.Get("ETag")
	require.Equal(t, http.StatusNotModified, get("", "If-None-Match", tag).status)
	require.Equal(t, http.StatusOK, s.as("all", "POST", "/v1/sessions/s/turns/"+first+"/redact", nil).status)
	after := get("", "If-None-Match", tag)
	require.Equal(t, http.StatusOK, after.status)
	must.Lack(t, string(after.raw), "secret r1")
	must.Contain(t, string(after.raw), "secret r2")
	require.Len(t, messagesOf(t, get("?offset="+next).raw), 1, "the redaction")
}

func TestALongPollOfASessionsStream(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{})
	s.turnOf("s", "r1")
	stale := s.as("all", "GET", streamed1+"?offset=-1&live=long-poll", nil)
	require.Len(t, messagesOf(t, stale.raw), 2)
	cursor, next := stale.header.Get("Stream-Cursor"), stale.header.Get("Stream-Next-Offset")
	require.NotEmpty(t, cursor)
	came := make(chan answer, 1)
	go func() {
		a, _ := s.try("GET", streamed1+"?offset="+next+"&live=long-poll&cursor="+cursor, nil, "Authorization",
			"Bearer all")
		came <- a
	}()
	s.turnOf("other", "r1")
	s.turnOf("s", "r2")
	a := <-came
	require.Equal(t, http.StatusOK, a.status, "%s", a.raw)
	require.Len(t, messagesOf(t, a.raw), 1)
	require.Greater(t, a.header.Get("Stream-Next-Offset"), next)
	require.Greater(t, a.header.Get("Stream-Cursor"), cursor, "no reader goes in circles")

	// An erased session is closed: a reader at its end is told at once.
	s.append(&events.SessionErased{SessionID: "s", ReceiptID: "0-0-x"})
	closed := s.as("all", "GET", streamed1, nil)
	require.Equal(t, []string{"true", "true"}, []string{closed.header.Get("Stream-Closed"),
		closed.header.Get("Stream-Up-To-Date")})
	must.Lack(t, string(closed.raw), "secret")
	end := s.as("all", "GET", streamed1+"?live=long-poll&offset="+closed.header.Get("Stream-Next-Offset"), nil)
	require.Equal(t, []any{http.StatusNoContent, "true"}, []any{end.status, end.header.Get("Stream-Closed")})
	require.Equal(t, "true", s.as("all", "HEAD", streamed1, nil).header.Get("Stream-Closed"))
}

// sentEvent is the next server-sent event of a stream.
func sentEvent(t *testing.T, in *bufio.Scanner) (name, data string) {
	t.Helper()
	for in.Scan() {
		switch line := in.Text(); {
		case strings.HasPrefix(line, "event: "):
			name = line[7:]
		case strings.HasPrefix(line, "data: "):
			data = line[6:]
		case line == "" && name != "":
			return name, data
		}
	}
	return "", ""
}

func TestServerSentEventsOfASessionsStream(t *testing.T) {
	t.Parallel()
	s, i := withTokens(t)
	s.turnOf("s", "r1")
	follow := func(token string) *bufio.Scanner {
		req := must.Get(http.NewRequestWithContext(t.Context(), "GET", s.url+streamed1+"?offset=-1&live=sse", nil))(t)
		req.Header.Set("Authorization", "Bearer "+token)
		resp := must.Get(noRedirects.Do(req))(t)
		t.Cleanup(func() { _ = resp.Body.Close() })
		require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
		return bufio.NewScanner(resp.Body)
	}
	control := func(in *bufio.Scanner) map[string]any {
		name, data := sentEvent(t, in)
		require.Equal(t, "control", name)
		return object([]byte(data))
	}
	all, ada := follow("all"), follow(s.token("maker", "ada", "context:read"))
	for _, in := range []*bufio.Scanner{all, ada} {
		name, data := sentEvent(t, in)
		require.Equal(t, "data", name)
		require.Len(t, messagesOf(t, []byte(data)), 2)
		c := control(in)
		require.Equal(t, true, c["upToDate"])
		require.Len(t, c["streamNextOffset"], 20)
		require.NotEmpty(t, c["streamCursor"])
	}
	s.turnOf("s", "r2")
	for _, in := range []*bufio.Scanner{all, ada} {
		name, data := sentEvent(t, in)
		require.Equal(t, "data", name)
		require.Contains(t, data, "secret r2")
		control(in)
	}
	// A token that is void ends its streams.
	i.late.Store(int64(2 * time.Minute))
	name, _ := sentEvent(t, ada)
	require.Empty(t, name)
	s.append(&events.SessionErased{SessionID: "s", ReceiptID: "0-0-x"})
	sentEvent(t, all)
	c := control(all)
	require.Equal(t, []any{true, nil}, []any{c["streamClosed"], c["streamCursor"]})
	name, _ = sentEvent(t, all)
	require.Empty(t, name, "the stream has ended")
}

// Who is bound reads its own sessions, without the settings of requests.
func TestWhoReadsASessionsStream(t *testing.T) {
	t.Parallel()
	s, _ := withTokens(t)
	turn := s.turnOf("s", "r1")
	s.append(&events.TurnExtended{TurnID: s.state("s").Turns[0].ID, SessionID: "s", ExtensionID: "x",
		Extension: events.Extension{Half: events.HalfAnswer, Messages: []byte(`[{"role":"assistant","content":"c"}]`)},
		Settings:  []byte(`{"instructions":"of the operator"}`)})
	require.NotEmpty(t, turn)
	require.Contains(t, string(s.as("all", "GET", streamed1, nil).raw), "of the operator")
	own := s.as(s.token("maker", "ada", "context:read"), "GET", streamed1, nil)
	require.Equal(t, http.StatusOK, own.status)
	require.Len(t, messagesOf(t, own.raw), 3)
	must.Contain(t, string(own.raw), "secret r1")
	must.Lack(t, string(own.raw), "of the operator", "settings")
	requireProblem(t, s.as(s.token("maker", "bob", "context:read"), "GET", streamed1, nil), http.StatusNotFound,
		"session_not_found")
	requireProblem(t, s.as(s.token("maker", "ada", "turns:write"), "GET", streamed1, nil), http.StatusForbidden,
		"forbidden")
	requireProblem(t, s.do("GET", streamed1, nil), http.StatusUnauthorized, "unauthenticated")
}
