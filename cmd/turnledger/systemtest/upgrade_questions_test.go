package systemtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// ask sends a call and returns the answer; of a list of JSON values, one a line, all of them.
func ask(t testing.TB, p *stack.Process, c recordedCall) (status int, answer any) {
	t.Helper()
	var body bytes.Buffer
	if c.Body != nil {
		require.NoError(t, json.NewEncoder(&body).Encode(c.Body))
	}
	req, err := http.NewRequestWithContext(t.Context(), c.Method, p.URL+c.Path, &body)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var values []any
	for dec := json.NewDecoder(resp.Body); ; {
		var value any
		err := dec.Decode(&value)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, c.Path)
		values = append(values, value)
	}
	if len(values) == 1 {
		return resp.StatusCode, values[0]
	}
	return resp.StatusCode, values
}

// askedOfEach are the calls whose answers must stay. They write nothing: those that say again what was acknowledged are
// duplicates. What an anonymous session shows now depends on its age, so it is asked as of a position.
func askedOfEach(f form, anonymous string) (out []recordedCall) {
	get := func(path string) { out = append(out, recordedCall{Method: http.MethodGet, Path: path}) }
	say := func(method, path string, body map[string]any) {
		out = append(out, recordedCall{Method: method, Path: path, Body: body})
	}
	post := func(path string, body map[string]any) { say(http.MethodPost, path, body) }
	turn := func(session, request string) string {
		return fmt.Sprint("/v1/sessions/", session, "/turns/", events.TurnID(session, request))
	}
	for _, session := range []string{"linked", "pending", "translated", "hers", "parked", "chatted", "unknown"} {
		get("/v1/sessions/" + session)
		get("/v1/sessions/" + session + "/turns?status=all")
		get("/v1/sessions/" + session + "/turns?status=pending")
		get("/v1/sessions/" + session + "/history?limit=3")
		get("/v1/events?session_id=" + session)
		for _, body := range []map[string]any{
			{"message": "now", "include_pending": true, "max_messages": 1000},
			{"message": "now", "max_messages": 2},
			{"message": "now", "language": "translated", "format": "anthropic", "system_prompt": "Be brief."},
		} {
			post("/v1/sessions/"+session+"/context", body)
		}
	}
	post("/v1/sessions/anonymous/context", map[string]any{"message": "now", "include_pending": true,
		"as_of": map[string]any{"position": anonymous}})
	get("/v1/sessions/anonymous/turns?status=all")
	get("/v1/sessions/erased/turns?status=all")
	get("/v1/identities/ada/turns")
	get("/v1/identities/bob/turns")
	get("/v1/identities/grace/turns")
	if !f.outside { // else the memory is another service's
		post("/v1/sessions/unknown/context", map[string]any{"message": "question", "memory": true,
			"identity_id": "bob"})
	}
	// What was acknowledged is acknowledged again, with the first answer.
	post("/v1/sessions/linked/turns", map[string]any{"request_id": "r0", "question_neutral": "another question"})
	post(turn("linked", "r0")+"/finalize", map[string]any{"answer_neutral": "another answer"})
	post(turn("linked", "r1")+"/correct", map[string]any{"request_id": "c1", "answer_neutral": "a third answer"})
	post(turn("linked", "r1")+"/finalize", map[string]any{"answer_neutral": "late"})
	post(turn("linked", "r2")+"/redact", map[string]any{})
	post(turn("linked", "r2")+"/correct", map[string]any{"request_id": "c2", "answer_neutral": "late"})
	post("/v1/sessions/linked/turns", map[string]any{"request_id": "c1", "question_neutral": "taken"})
	post("/v1/sessions/pending/turns", map[string]any{"request_id": "open", "question_neutral": "again"})
	post(turn("pending", "never")+"/finalize", map[string]any{"answer_neutral": "a"})
	post("/v1/sessions/anonymous/turns", map[string]any{"request_id": "r1", "question_neutral": "again"})
	post("/v1/sessions/erased/turns", map[string]any{"request_id": "r9", "question_neutral": "late"})
	post("/v1/sessions/hers/turns", map[string]any{"request_id": "r9", "question_neutral": "late"})
	post("/v1/threads/chatted/messages", map[string]any{"request_id": "r1", "content": "again", "user_id": "ada"})
	say(http.MethodPut, "/v1/sessions/linked/identity", map[string]any{"identity_id": "ada"})
	return out
}

// verbs are command lines that print the same in each version.
func verbs() (out [][]string) {
	for _, turn := range [][2]string{{"linked", "r0"}, {"linked", "r1"}, {"linked", "c1"}, {"linked", "r2"},
		{"translated", "r0"}, {"anonymous", "r9"}, {"chatted", "r1"}} {
		id := events.TurnID(turn[0], turn[1]).String()
		out = append(out, []string{"explain", turn[0], id, "--text"}, []string{"explain", turn[0], id, "--json"})
	}
	return append(out, []string{"history", "linked"}, []string{"replay", "--identity", "ada"},
		[]string{"export", "--identity", "ada"})
}
