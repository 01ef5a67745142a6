package v1_test

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/read"
)

// requireProblem holds an answer against RFC 9457 and docs/contract.md#errors.
func requireProblem(t testing.TB, a answer, status int, code string, fields ...string) {
	t.Helper()
	require.Equal(t, status, a.status, "%s", a.raw)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	require.Equal(t, code, a.body["code"], "%s", a.raw)
	require.EqualValues(t, status, a.body["status"])
	for _, member := range []string{"type", "title", "detail"} {
		require.NotEmpty(t, a.body[member], member)
	}
	if len(fields) == 0 {
		require.NotContains(t, a.body, "errors")
		return
	}
	var named []string
	for _, e := range a.body["errors"].([]any) {
		require.Equal(t, []string{"detail", "field"}, keys(e.(map[string]any)))
		named = append(named, e.(map[string]any)["field"].(string))
	}
	require.Equal(t, fields, named)
}

// refusal is a request that must be turned away.
type refusal struct {
	method, path string
	body         any
	status       int
	code         string
	fields       []string
}

func wrong(method, path string, body any, fields ...string) refusal {
	return refusal{method, path, body, http.StatusUnprocessableEntity, "invalid_argument", fields}
}

// On the stack of TestRefusalsLeaveNothing: turn "final" and turn "open" of session s.
var (
	onS   = "/v1/sessions/s"
	final = onS + "/turns/" + events.TurnID("s", "final").String()
	open  = onS + "/turns/" + events.TurnID("s", "open").String()
	none  = onS + "/turns/" + events.TurnID("s", "none").String()
	old   = onS + "/turns/" + events.TurnID("s", "old").String()
	gone  = onS + "/turns/" + events.TurnID("s", "gone").String()
)

func malformed(method, path string, body any) refusal {
	return refusal{method, path, body, http.StatusBadRequest, "malformed", nil}
}

func refused(method, path string, body any, status int, code string) refusal {
	return refusal{method, path, body, status, code, nil}
}

var (
	big   = strings.Repeat("x", 1<<20)
	long  = strings.Repeat("i", 257)
	fresh = `{"request_id":"new","question_neutral":"q"`
)

var refusals = map[string]refusal{
	"start: no body":        malformed("POST", onS+"/turns", nil),
	"start: blank body":     malformed("POST", onS+"/turns", " \n"),
	"start: not JSON":       malformed("POST", onS+"/turns", `{"request_id":`),
	"start: more than JSON": malformed("POST", onS+"/turns", fresh+`} x`),
	"start: not UTF-8": malformed("POST", onS+"/turns",
		"{\"request_id\":\"new\",\"question_neutral\":\"\xff\"}"),
	"start: half a pair in request id":   wrong("POST", onS+"/turns", `{"request_id":"x\ud800","question_neutral":"q"}`, "request_id"),
	"start: half a pair in the question": wrong("POST", onS+"/turns", `{"request_id":"new","question_neutral":"a\uDC00b"}`, "question_neutral"),
	"link: half a pair in identity id":   wrong("PUT", onS+"/identity", `{"identity_id":"u\ud800"}`, "identity_id"),
	"start: messages too deep":           wrong("POST", onS+"/turns", fresh+`,"question_messages":[{"role":"user","content":`+strings.Repeat("[", 600)+strings.Repeat("]", 600)+`}]}`, "question_messages"),
	"start: metadata too deep": wrong("POST", onS+"/turns", fresh+`,"metadata":{"channel":`+
		strings.Repeat("[", 600)+strings.Repeat("]", 600)+`}}`, "metadata"),
	"start: a list":           wrong("POST", onS+"/turns", `[]`, "body"),
	"start: null":             wrong("POST", onS+"/turns", `null`, "body"),
	"start: a string":         wrong("POST", onS+"/turns", `"x"`, "body"),
	"start: no request id":    wrong("POST", onS+"/turns", `{"question_neutral":"q"}`, "request_id"),
	"start: empty request id": wrong("POST", onS+"/turns", `{"request_id":"","question_neutral":"q"}`, "request_id"),
	"start: long request id": wrong("POST", onS+"/turns", `{"request_id":"`+long+
		`","question_neutral":"q"}`, "request_id"),
	"start: dot as request id":          wrong("POST", onS+"/turns", `{"request_id":"..","question_neutral":"q"}`, "request_id"),
	"start: control in request id":      wrong("POST", onS+"/turns", `{"request_id":"a\u0007","question_neutral":"q"}`, "request_id"),
	"start: request id a number":        wrong("POST", onS+"/turns", `{"request_id":7,"question_neutral":"q"}`, "request_id"),
	"start: no question":                wrong("POST", onS+"/turns", `{"request_id":"new"}`, "question_neutral"),
	"start: empty question":             wrong("POST", onS+"/turns", `{"request_id":"new","question_neutral":""}`, "question_neutral"),
	"start: messages of text alone":     wrong("POST", onS+"/turns", `{"request_id":"new","question_messages":[{"role":"user","content":"q"}]}`, "question_neutral"),
	"start: no messages":                wrong("POST", onS+"/turns", `{"request_id":"new","question_messages":[]}`, "question_neutral"),
	"start: unknown member":             wrong("POST", onS+"/turns", fresh+`,"answer":"a"}`, "answer"),
	"start: unknown member in capitals": wrong("POST", onS+"/turns", fresh+`,"Question_Neutral":"a"}`, "body"),
	"start: several wrong":              wrong("POST", onS+"/turns", `{"request_id":1,"question_neutral":true,"translate_chat":"yes"}`, "question_neutral", "request_id", "translate_chat"),
	"start: metadata a list":            wrong("POST", onS+"/turns", fresh+`,"metadata":[]}`, "metadata"),
	"start: messages an object": wrong("POST", onS+"/turns", fresh+`,"question_messages":{}}`,
		"question_messages"),
	"start: a message without role": wrong("POST", onS+"/turns", fresh+`,"question_messages":[{"content":"x"}]}`, "question_messages"),
	"start: empty identity":         wrong("POST", onS+"/turns", fresh+`,"identity_id":""}`, "identity_id"),
	"start: long identity": wrong("POST", onS+"/turns", fresh+`,"identity_id":"`+long+`"}`,
		"identity_id"),
	"start: long session": wrong("POST", "/v1/sessions/"+long+"/turns", fresh+`}`, "session_id"),
	"start: body too large": refused("POST", onS+"/turns", fresh+`,"consultant":"`+big+`"}`,
		http.StatusRequestEntityTooLarge, "body_too_large"),
	"start: streamed body too large": refused("POST", onS+"/turns", streamed(fresh+`,"consultant":"`+big+`"}`),
		http.StatusRequestEntityTooLarge, "body_too_large"),
	"start: request id of a correction": refused("POST", onS+"/turns", `{"request_id":"fix","question_neutral":"q"}`, http.StatusConflict, "request_id_in_use"),
	"start: erased session": refused("POST", "/v1/sessions/erased/turns", fresh+`}`, http.StatusGone,
		"session_erased"),
	"finalize: no body":      malformed("POST", open+"/finalize", nil),
	"finalize: not JSON":     malformed("POST", open+"/finalize", `answer`),
	"finalize: no answer":    wrong("POST", open+"/finalize", `{}`, "answer_neutral"),
	"finalize: empty answer": wrong("POST", open+"/finalize", `{"answer_neutral":"","answer_messages":[]}`, "answer_neutral"),
	"finalize: unknown member": wrong("POST", open+"/finalize", `{"answer_neutral":"a","turn_id":"x"}`,
		"turn_id"),
	"finalize: answer a list": wrong("POST", open+"/finalize", `{"answer_neutral":["a"]}`,
		"answer_neutral"),
	"finalize: a message that is none": wrong("POST", open+"/finalize", `{"answer_messages":["a"]}`,
		"answer_messages"),
	"finalize: empty request id": wrong("POST", open+"/finalize", `{"answer_neutral":"a","request_id":""}`,
		"request_id"),
	"finalize: never started": refused("POST", none+"/finalize", `{"answer_neutral":"a"}`,
		http.StatusNotFound, "turn_not_started"),
	"finalize: in another session": refused("POST", strings.Replace(open, "/s/", "/t/", 1)+"/finalize",
		`{"answer_neutral":"a"}`, http.StatusNotFound, "turn_not_started"),
	"finalize: no turn id": refused("POST", onS+"/turns/x/finalize", `{"answer_neutral":"a"}`,
		http.StatusNotFound, "turn_not_started"),
	"finalize: another request id": refused("POST", open+"/finalize", `{"answer_neutral":"a","request_id":"final"}`, http.StatusConflict, "turn_mismatch"),
	"finalize: redacted": refused("POST", gone+"/finalize", `{"answer_neutral":"a"}`,
		http.StatusConflict, "turn_redacted"),
	"finalize: erased session": refused("POST", "/v1/sessions/erased/turns/x/finalize",
		`{"answer_neutral":"a"}`, http.StatusGone, "session_erased"),
	"finalize: body too large": refused("POST", open+"/finalize", `{"answer_neutral":"`+big+`"}`,
		http.StatusRequestEntityTooLarge, "body_too_large"),
	"link: no body":        malformed("PUT", onS+"/identity", nil),
	"link: no identity":    wrong("PUT", onS+"/identity", `{}`, "identity_id"),
	"link: empty identity": wrong("PUT", onS+"/identity", `{"identity_id":""}`, "identity_id"),
	"link: unknown member": wrong("PUT", onS+"/identity", `{"identity_id":"x","force":true}`, "force"),
	"link: erased session": refused("PUT", "/v1/sessions/erased/identity", `{"identity_id":"x"}`,
		http.StatusGone, "session_erased"),
	"redact: not JSON":        malformed("POST", final+"/redact", `because`),
	"redact: unknown member":  wrong("POST", final+"/redact", `{"why":"x"}`, "why"),
	"redact: reason a number": wrong("POST", final+"/redact", `{"reason":1}`, "reason"),
	"redact: unknown turn":    refused("POST", none+"/redact", nil, http.StatusNotFound, "turn_not_found"),
	"redact: erased session": refused("POST", "/v1/sessions/erased/turns/x/redact", nil, http.StatusGone,
		"session_erased"),
	"correct: no body":               malformed("POST", final+"/correct", nil),
	"correct: no request id":         wrong("POST", final+"/correct", `{"answer_neutral":"b"}`, "request_id"),
	"correct: nothing":               wrong("POST", final+"/correct", `{"request_id":"new"}`, "answer_neutral"),
	"correct: only null":             wrong("POST", final+"/correct", `{"request_id":"new","answer_neutral":null}`, "answer_neutral"),
	"correct: empty answer":          wrong("POST", final+"/correct", `{"request_id":"new","answer_neutral":""}`, "answer_neutral"),
	"correct: unknown member":        wrong("POST", final+"/correct", `{"request_id":"new","answer_neutral":"b","metadata":{}}`, "metadata"),
	"correct: unknown turn":          refused("POST", none+"/correct", `{"request_id":"new","answer_neutral":"b"}`, http.StatusNotFound, "turn_not_found"),
	"correct: pending":               refused("POST", open+"/correct", `{"request_id":"new","answer_neutral":"b"}`, http.StatusConflict, "turn_pending"),
	"correct: redacted":              refused("POST", gone+"/correct", `{"request_id":"new","answer_neutral":"b"}`, http.StatusConflict, "turn_redacted"),
	"correct: replaced":              refused("POST", old+"/correct", `{"request_id":"new","answer_neutral":"b"}`, http.StatusConflict, "turn_replaced"),
	"correct: request id of a start": refused("POST", final+"/correct", `{"request_id":"open","answer_neutral":"b"}`, http.StatusConflict, "request_id_in_use"),
	"correct: erased session":        refused("POST", "/v1/sessions/erased/turns/x/correct", `{"request_id":"new","answer_neutral":"b"}`, http.StatusGone, "session_erased"),
	"reset: not JSON":                malformed("POST", onS+"/reset", `now`),
	"reset: unknown member":          wrong("POST", onS+"/reset", `{"all":true}`, "all"),
	"reset: erased session": refused("POST", "/v1/sessions/erased/reset", nil, http.StatusGone,
		"session_erased"),
	"session: min_position":      wrong("GET", onS+"?min_position=42", nil, "min_position"),
	"session: negative position": wrong("GET", onS+"?min_position=0:-1", nil, "min_position"),
	"turns: limit 0":             wrong("GET", onS+"/turns?limit=0", nil, "limit"),
	"turns: negative limit":      wrong("GET", onS+"/turns?limit=-1", nil, "limit"),
	"turns: limit a word":        wrong("GET", onS+"/turns?limit=ten", nil, "limit"),
	"turns: limit a fraction":    wrong("GET", onS+"/turns?limit=1.5", nil, "limit"),
	"turns: status":              wrong("GET", onS+"/turns?status=final", nil, "status"),
	"turns: cursor":              wrong("GET", onS+"/turns?cursor=x", nil, "cursor"),
	"turns: cursor of another session": wrong("GET", onS+"/turns?cursor="+
		base64.RawURLEncoding.EncodeToString([]byte("7.1.1.1")), nil, "cursor"),
	"turns: cursor of nothing": wrong("GET", onS+"/turns?cursor=MC4wLjA", nil, "cursor"),
	"turns: min_position":      wrong("GET", onS+"/turns?min_position=x", nil, "min_position"),
	"turns: escapes":           wrong("GET", onS+"/turns?limit=%zz", nil, "query"),
	"turns: semicolon":         wrong("GET", onS+"/turns?limit=1;status=all", nil, "query"),
	"history: limit":           wrong("GET", onS+"/history?limit=0", nil, "limit"),
	"history: min_position":    wrong("GET", onS+"/history?min_position=0:1,0:2", nil, "min_position"),
	"context: no body":         malformed("POST", onS+"/context", nil),
	"context: no message":      wrong("POST", onS+"/context", `{}`, "message"),
	"context: empty message":   wrong("POST", onS+"/context", `{"message":""}`, "message"),
	"context: max_messages 1": wrong("POST", onS+"/context", `{"message":"m","max_messages":1}`,
		"max_messages"),
	"context: max_messages 0": wrong("POST", onS+"/context", `{"message":"m","max_messages":0}`,
		"max_messages"),
	"context: max_messages negative": wrong("POST", onS+"/context", `{"message":"m","max_messages":-5}`,
		"max_messages"),
	"context: max_messages a fraction": wrong("POST", onS+"/context", `{"message":"m","max_messages":2.5}`,
		"max_messages"),
	"context: max_messages a string": wrong("POST", onS+"/context", `{"message":"m","max_messages":"20"}`,
		"max_messages"),
	"context: max_tokens negative": wrong("POST", onS+"/context", `{"message":"m","max_tokens":-1}`,
		"max_tokens"),
	"context: idle_timeout": wrong("POST", onS+"/context", `{"message":"m","idle_timeout":"soon"}`,
		"idle_timeout"),
	"context: idle_timeout for ever": wrong("POST", onS+"/context", `{"message":"m","idle_timeout":"200000d"}`, "idle_timeout"),
	"context: idle_timeout a number": wrong("POST", onS+"/context", `{"message":"m","idle_timeout":30}`,
		"idle_timeout"),
	"context: idle_timeout negative": wrong("POST", onS+"/context", `{"message":"m","idle_timeout":"-1m"}`,
		"idle_timeout"),
	"context: language": wrong("POST", onS+"/context", `{"message":"m","language":"pl"}`, "language"),
	"context: format":   wrong("POST", onS+"/context", `{"message":"m","format":"gemini"}`, "format"),
	"context: turn_id":  wrong("POST", onS+"/context", `{"message":"m","turn_id":"x"}`, "turn_id"),
	"context: identity_id": wrong("POST", onS+"/context", `{"message":"m","identity_id":""}`,
		"identity_id"),
	"context: as_of empty":             wrong("POST", onS+"/context", `{"message":"m","as_of":{}}`, "as_of"),
	"context: as_of a string":          wrong("POST", onS+"/context", `{"message":"m","as_of":"0:1"}`, "as_of"),
	"context: as_of of both":           wrong("POST", onS+"/context", `{"message":"m","as_of":{"position":"0:1","time":"2026-01-01T00:00:00Z"}}`, "as_of"),
	"context: as_of of something else": wrong("POST", onS+"/context", `{"message":"m","as_of":{"seq":1}}`, "as_of"),
	"context: as_of position":          wrong("POST", onS+"/context", `{"message":"m","as_of":{"position":"1"}}`, "as_of.position"),
	"context: as_of position a number": wrong("POST", onS+"/context", `{"message":"m","as_of":{"position":1}}`,
		"as_of"),
	"context: as_of time": wrong("POST", onS+"/context", `{"message":"m","as_of":{"time":"yesterday"}}`, "as_of.time"),
	"context: unknown member": wrong("POST", onS+"/context", `{"message":"m","session_id":"s"}`,
		"session_id"),
	"context: body too large": refused("POST", onS+"/context", `{"message":"`+big+`"}`,
		http.StatusRequestEntityTooLarge, "body_too_large"),
	"identity: since":           wrong("GET", "/v1/identities/ada/turns?since=today", nil, "since"),
	"identity: until":           wrong("GET", "/v1/identities/ada/turns?until=1", nil, "until"),
	"identity: limit":           wrong("GET", "/v1/identities/ada/turns?limit=0", nil, "limit"),
	"identity: min_position":    wrong("GET", "/v1/identities/ada/turns?min_position=0", nil, "min_position"),
	"identity: long":            wrong("GET", "/v1/identities/"+long+"/turns", nil, "identity_id"),
	"no such call":              refused("GET", "/v1/nothing", nil, http.StatusNotFound, "not_found"),
	"no such call at the root":  refused("POST", "/", `{}`, http.StatusNotFound, "not_found"),
	"no such call below a turn": refused("POST", final+"/undo", `{}`, http.StatusNotFound, "not_found"),
	"another version":           refused("GET", "/v2/sessions/s", nil, http.StatusNotFound, "not_found"),
	"another method": refused("DELETE", onS+"/turns", nil, http.StatusMethodNotAllowed,
		"method_not_allowed"),
	"another method on a call of reading": refused("PATCH", onS+"/history", nil, http.StatusMethodNotAllowed,
		"method_not_allowed"),
}

// prepared is a stack with a turn in every state.
func prepared(t *testing.T) *stack {
	s := start(t, func(c *config, _ *history.Config, _ *read.Config) {
		c.Identities = &identities{}
	})
	s.record("s", "final", "q", "a")
	s.record("s", "open", "q", "")
	s.record("s", "old", "q", "a")
	s.ok(http.StatusOK, "POST", old+"/correct", `{"request_id":"fix","answer_neutral":"b"}`)
	s.record("s", "gone", "q", "a")
	s.ok(http.StatusOK, "POST", gone+"/redact", nil)
	s.record("erased", "r", "q", "a")
	s.append(&events.SessionErased{SessionID: "erased", ReceiptID: "receipt"})
	return s
}

// Every refusal of docs/contract.md#errors: nothing reaches the log, and nothing that is read
// changes.
//
//conformance:h9 h42
func TestRefusalsLeaveNothing(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	before, shown := s.head(), s.do("GET", onS+"/turns?status=all", nil).raw
	for name, r := range refusals {
		t.Run(name, func(t *testing.T) {
			a := s.do(r.method, r.path, r.body)
			requireProblem(t, a, r.status, r.code, r.fields...)
			require.Equal(t, "no-store", a.header.Get("Cache-Control"))
			require.Equal(t, before, s.head())
		})
	}
	require.Equal(t, string(shown), string(s.do("GET", onS+"/turns?status=all", nil).raw))
	require.Equal(t, false, s.ok(http.StatusOK, "GET", "/v1/sessions/t", nil)["found"])
}

//conformance:h53
func TestARefusedLinkLeavesTheAttemptOnly(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.ok(http.StatusOK, "PUT", "/v1/sessions/s/identity", `{"identity_id":"ada"}`)
	s.record("s", "r", "q", "a")
	before := s.head()
	requireProblem(t, s.do("PUT", "/v1/sessions/s/identity", `{"identity_id":"eve"}`), http.StatusConflict,
		"session_linked_elsewhere")
	require.Equal(t, before+1, s.head())
	requireProblem(t, s.do("POST", "/v1/sessions/s/turns", `{"request_id":"new","question_neutral":"q","identity_id":"bob"}`), http.StatusConflict, "session_linked_elsewhere")
	require.Equal(t, before+2, s.head())
	for seq, identity := range map[uint64]string{before + 1: "eve", before + 2: "bob"} {
		e, found, err := s.log.At(t.Context(), events.Position{Seq: seq})
		require.NoError(t, err)
		require.True(t, found)
		kept := e.Fact.(*events.LinkRefused)
		require.Equal(t, identity, kept.IdentityID)
		require.Len(t, kept.SourceHash, 16)
	}
	got := s.ok(http.StatusOK, "GET", "/v1/sessions/s", nil)
	require.Equal(t, "ada", got["identity_id"])
	require.EqualValues(t, 1, got["turns"])
}

// A body of exactly 1 MiB is taken, whatever it claims to be.
func TestTheLargestBody(t *testing.T) {
	t.Parallel()
	s := start(t)
	body := []byte(fresh + `,"consultant":"` + big)
	body = append(body[:1<<20-2], `"}`...)
	require.Len(t, body, 1<<20)
	s.ok(http.StatusCreated, "POST", "/v1/sessions/s/turns", bytes.NewReader(body), "Content-Type", "text/plain")
	s.ok(http.StatusCreated, "POST", "/v1/sessions/t/turns", streamed(string(body)), "Content-Type",
		"application/x-www-form-urlencoded")
}

func TestTheAllowedMethodsAreNamed(t *testing.T) {
	t.Parallel()
	a := start(t).do("PUT", "/v1/sessions/s/turns", nil)
	require.Equal(t, "GET, HEAD, POST", a.header.Get("Allow"))
}
