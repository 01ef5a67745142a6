package v1_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
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
	"start: a list":        wrong("POST", onS+"/turns", `[]`, "body"),
	"start: null":          wrong("POST", onS+"/turns", `null`, "body"),
	"start: a string":      wrong("POST", onS+"/turns", `"x"`, "body"),
	"start: no request id": wrong("POST", onS+"/turns", `{"question_neutral":"q"}`, "request_id"),
	"start: long request id": wrong("POST", onS+"/turns", `{"request_id":"`+long+
		`","question_neutral":"q"}`, "request_id"),
	"start: request id a number":        wrong("POST", onS+"/turns", `{"request_id":7,"question_neutral":"q"}`, "request_id"),
	"start: no question":                wrong("POST", onS+"/turns", `{"request_id":"new"}`, "question_neutral"),
	"start: empty question":             wrong("POST", onS+"/turns", `{"request_id":"new","question_neutral":""}`, "question_neutral"),
	"start: messages of text alone":     wrong("POST", onS+"/turns", `{"request_id":"new","question_messages":[{"role":"user","content":"q"}]}`, "question_neutral"),
	"start: no messages":                wrong("POST", onS+"/turns", `{"request_id":"new","question_messages":[]}`, "question_neutral"),
	"start: unknown member in capitals": wrong("POST", onS+"/turns", fresh+`,"Question_Neutral":"a"}`, "body"),
	"start: several wrong":              wrong("POST", onS+"/turns", `{"request_id":1,"question_neutral":true,"translate_chat":"yes"}`, "question_neutral", "request_id", "translate_chat"),
	"start: metadata a list":            wrong("POST", onS+"/turns", fresh+`,"metadata":[]}`, "metadata"),
	"start: messages an object": wrong("POST", onS+"/turns", fresh+`,"question_messages":{}}`,
		"question_messages"),
	"start: a message without role": wrong("POST", onS+"/turns", fresh+`,"question_messages":[{"content":"x"}]}`, "question_messages"),
	"start: long identity": wrong("POST", onS+"/turns", fresh+`,"identity_id":"`+long+`"}`,
		"identity_id"),
	"start: long session": wrong("POST", "/v1/sessions/"+long+"/turns", fresh+`}`, "session_id"),
	"start: body too large": refused("POST", onS+"/turns", fresh+`,"consultant":"`+big+`"}`,
		http.StatusRequestEntityTooLarge, "body_too_large"),
	"start: streamed body too large": refused("POST", onS+"/turns", streamed(fresh+`,"consultant":"`+big+`"}`),
		http.StatusRequestEntityTooLarge, "body_too_large"),
	"start: erased session": refused("POST", "/v1/sessions/erased/turns", fresh+`}`, http.StatusGone,
		"session_erased"),
	"finalize: no answer":    wrong("POST", open+"/finalize", `{}`, "answer_neutral"),
	"finalize: empty answer": wrong("POST", open+"/finalize", `{"answer_neutral":"","answer_messages":[]}`, "answer_neutral"),
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
	"link: no identity":            wrong("PUT", onS+"/identity", `{}`, "identity_id"),
	"redact: not JSON":             malformed("POST", final+"/redact", `because`),
	"redact: reason a number":      wrong("POST", final+"/redact", `{"reason":1}`, "reason"),
	"correct: no request id":       wrong("POST", final+"/correct", `{"answer_neutral":"b"}`, "request_id"),
	"correct: nothing":             wrong("POST", final+"/correct", `{"request_id":"new"}`, "answer_neutral"),
	"correct: empty answer":        wrong("POST", final+"/correct", `{"request_id":"new","answer_neutral":""}`, "answer_neutral"),
	"fork: turn and before turn": wrong("POST", onS+"/fork", `{"request_id":"f","turn_id":"`+events.TurnID("s", "final").String()+
		`","before_turn_id":"`+events.TurnID("s", "final").String()+`"}`, "before_turn_id"),
	"fork: no request id":        wrong("POST", onS+"/fork", `{}`, "request_id"),
	"fork: no turn id":           refused("POST", onS+"/fork", `{"request_id":"f","turn_id":"x"}`, http.StatusNotFound, "turn_not_found"),
	"fork: unknown session":      refused("POST", "/v1/sessions/none/fork", `{"request_id":"f"}`, http.StatusNotFound, "session_not_found"),
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
	"context: no message":      wrong("POST", onS+"/context", `{}`, "message"),
	"context: max_messages 1": wrong("POST", onS+"/context", `{"message":"m","max_messages":1}`,
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
	"context: as_of time":       wrong("POST", onS+"/context", `{"message":"m","as_of":{"time":"yesterday"}}`, "as_of.time"),
	"identity: since":           wrong("GET", "/v1/identities/ada/turns?since=today", nil, "since"),
	"identity: until":           wrong("GET", "/v1/identities/ada/turns?until=1", nil, "until"),
	"identity: limit":           wrong("GET", "/v1/identities/ada/turns?limit=0", nil, "limit"),
	"identity: min_position":    wrong("GET", "/v1/identities/ada/turns?min_position=0", nil, "min_position"),
	"identity: long":            wrong("GET", "/v1/identities/"+long+"/turns", nil, "identity_id"),
	"no such call":              refused("GET", "/v1/nothing", nil, http.StatusNotFound, "not_found"),
	"no such call below a turn": refused("POST", final+"/undo", `{}`, http.StatusNotFound, "not_found"),
	"another method": refused("DELETE", onS+"/turns", nil, http.StatusMethodNotAllowed,
		"method_not_allowed"),
	"another method on a call of reading": refused("PATCH", onS+"/history", nil, http.StatusMethodNotAllowed,
		"method_not_allowed"),
}

// prepared is a stack with a turn in every state.
func prepared(t *testing.T) *stack {
	s := start(t, func(c *config) { c.Identities = &identities{} })
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

// What a request that is turned away says and leaves: nothing reaches the log, and nothing that is read changes. What
// a session's state refuses, the scripts of events/session have.
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

// failing is a command side that fails in one way.
type failing struct {
	services.TurnWriter
	err error
}

func (f failing) StartTurn(context.Context, decide.Start) (services.Turn, error) {
	if f.err == nil {
		panic("a text that the client sent")
	}
	return services.Turn{}, f.err
}

func (f failing) StartTurns(_ context.Context, commands []decide.Start) []services.TurnOutcome {
	return slices.Repeat([]services.TurnOutcome{{Err: f.err}}, len(commands))
}

func failingWith(err error) setting { return func(c *config) { c.Turns = failing{err: err} } }

//conformance:h40 l13
func TestErrorsOfThePorts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status int
		code   string
		log    string
	}{
		"unavailable": {fmt.Errorf("append: %w: no responders", jetlog.ErrUnavailable), 503, "log_unavailable",
			"no responders"},
		"closed": {fmt.Errorf("wait: %w", jetlog.ErrClosed), 503, "log_unavailable", "log_unavailable: wait: closed"},
		"too slow": {fmt.Errorf("wait: %w", context.DeadlineExceeded), 503, "log_unavailable",
			"log_unavailable: context deadline exceeded"},
		"no connection": {fmt.Errorf("a text that the client sent: %w", &net.OpError{Op: "dial", Net: "tcp",
			Err: syscall.ECONNREFUSED}), 500, "internal", "dial tcp: connection refused"},
		"too large": {fmt.Errorf("append: %w", jetlog.ErrTooLarge), 413, "body_too_large", ""},
		"refused":   {fmt.Errorf("write: %w", decide.ErrTurnRedacted), 409, "turn_redacted", ""},
		"no room": {fmt.Errorf("append: %w: 0 MB free", jetlog.ErrNoWrites), 503, "log_unavailable",
			"0 MB free"},
		"refused and not kept": {errors.Join(decide.ErrLinkedElsewhere, jetlog.ErrUnavailable), 503,
			"log_unavailable", ""},
		"unknown": {fmt.Errorf("decode %w", errors.New("a text that the client sent")), 500, "internal",
			"internal: *errors.errorString"},
		"tables": {fmt.Errorf("look: %w: %w", projections.ErrUnavailable, fmt.Errorf("a text that the client sent: %w",
			errors.Join(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, &pgconn.PgError{
				Code: "57P01", Message: "a text that the client sent"}))), 503, "audit_unavailable",
			"audit_unavailable: the view's store does not answer: dial tcp: connection refused: SQLSTATE 57P01"},
		"tables that are behind": {fmt.Errorf("%w: they are at 0:5 of 0:7", services.ErrBehind), 503, "audit_unavailable",
			"audit_unavailable: the view is behind the log: they are at 0:5 of 0:7"},
		"a refusal of no code": {&decide.Refusal{Code: "odd", Detail: "a text that the client sent"}, 500,
			"internal", "*decide.Refusal"},
		"a panic":                 {nil, 500, "internal", "panic: string"},
		"position of another log": {services.ErrPositionNotReached, 503, "position_not_reached", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bare(t, func(cfg *config) { cfg.Turns = failing{err: c.err} })
			a := s.do("POST", "/v1/sessions/s/turns", `{"request_id":"r","question_neutral":"q"}`)
			requireProblem(t, a, c.status, c.code)
			require.NotContains(t, string(a.raw), "a text that the client sent")
			require.NotContains(t, s.logs.String(), "a text that the client sent")
			require.Contains(t, s.logs.String(), c.log)
			require.Equal(t, c.status == 503, a.header.Get("Retry-After") != "")
		})
	}
}

// Each code of the contract has the status that its page says.
func TestCodesHaveTheirStatuses(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../../docs/contract.md"))(t)
	_, section, _ := strings.Cut(string(page), "\n## Errors\n")
	section, _, _ = strings.Cut(section, "\n## ")
	seen := 0
	for _, row := range regexp.MustCompile(`(?m)^\| ([0-9]{3}[^|]*) \|(.*)$`).FindAllStringSubmatch(section, -1) {
		statuses := regexp.MustCompile("[0-9]{3}").FindAllString(row[1], -1)
		for _, code := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[2], -1) {
			p := problems.New(code[1], "x")
			if p.Class == 0 {
				continue // a member that the page names beside
			}
			seen++
			a := bare(t, failingWith(p)).do("POST", "/v1/sessions/s/turns", fresh+`}`)
			require.Contains(t, statuses, fmt.Sprint(a.status), code[1])
			require.Equal(t, code[1], a.body["code"])
		}
	}
	require.Equal(t, 35, seen)
}

// Operators find the cause of a 503 by its detail, on the page that lists them. Each row of the page's table is tried.
func TestEachCauseOfAFailedWriteHasItsDetail(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../../docs/operations.md"))(t)
	const restoring = "a backup is being restored; the log is being replaced by a backup"
	replaced := &wire.Suspended{Why: "the log is being replaced by a backup: come again"}
	causes := map[string][]error{
		restoring:                                         {&wire.Suspended{Why: v1.WhyRestoring}, replaced},
		"the issuer of tokens does not answer":            {access.ErrNoKeys},
		"as many requests are under way as may be":        {wire.ErrOverloaded},
		"the session gets so many writes at once":         {fmt.Errorf("decide: %w", services.ErrBusy)},
		"the log is not the one that this process opened": {errors.Join(jetlog.ErrUnavailable, jetlog.ErrStream)},
		"the log takes no writes":                         {fmt.Errorf("append: %w", jetlog.ErrNoWrites)},
		"the log did not answer":                          {fmt.Errorf("append: %w", jetlog.ErrUnavailable)},
	}
	_, section, _ := strings.Cut(string(page), "## When a write is 503")
	_, table, _ := strings.Cut(section, "| --- | --- | --- | --- |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	require.Len(t, rows, len(causes))
	for _, row := range rows {
		cells := strings.Split(row, " | ")
		details, code := strings.Split(cells[1], "; "), strings.Trim(cells[0], "|` ")
		require.Len(t, causes[cells[1]], len(details), cells[1])
		for i, err := range causes[cells[1]] {
			a := bare(t, failingWith(err)).do("POST", "/v1/sessions/s/turns", fresh+`}`)
			requireProblem(t, a, http.StatusServiceUnavailable, code)
			require.True(t, strings.HasPrefix(a.body["detail"].(string), details[i]), "%s", a.raw)
		}
	}
}

// unreachableViews are views whose stores do not answer.
type unreachableViews struct{ services.ProjectionKeeper }

func (unreachableViews) Rebuild(context.Context, string) (uint64, error) {
	return 0, projections.Unavailable(errors.New("connection refused"))
}

func (unreachableViews) Verify(context.Context, string, int, func(done, of uint64) error,
	func(projections.Difference) error) (int, error) {
	return 0, projections.Unavailable(errors.New("connection refused"))
}

// A view whose store does not answer is not taken for the audit's tables, which other requests ask.
func TestTheStoreOfAViewThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := bare(t, func(c *config) { c.Keeper = unreachableViews{} })
	for _, work := range []string{"rebuild", "verify"} {
		a := s.do("POST", "/v1/projections/v/"+work, nil)
		requireProblem(t, a, http.StatusServiceUnavailable, "projection_unavailable")
	}
}

// A process that lacks the role of a call says which role answers it, and one that nobody answers is none.
func TestACallOfAnotherRoleNamesIt(t *testing.T) {
	t.Parallel()
	bare := openAPI(v1.Config{})
	for call, says := range map[[2]string]string{
		{"POST", "/v1/retention"}:            "has not the role eraser",
		{"POST", "/v1/sessions/s/turns"}:     "has not the role api",
		{"DELETE", "/v1/identities/i"}:       "has not the role api",
		{"GET", "/v1/sessions/s/turns"}:      "has not the role context",
		{"HEAD", "/v1/sessions/s/history"}:   "has not the role context",
		{"GET", "/v1/events"}:                "has not the role context",
		{"POST", "/v1/threads/new/messages"}: "has not the role chat",
		{"POST", "/v1/nothing"}:              "there is no such call",
		{"PATCH", "/v1/retention"}:           "there is no such call",
	} {
		w := httptest.NewRecorder()
		bare.ServeHTTP(w, httptest.NewRequest(call[0], "http://127.0.0.1"+call[1], nil))
		require.Equal(t, http.StatusNotFound, w.Code, call)
		var problem struct{ Code, Detail string }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem))
		require.Equal(t, "not_found", problem.Code, call)
		require.Contains(t, problem.Detail, says, call)
	}
	require.NotContains(t, routes(bare), "POST /v1/retention")
}

// mistake is a request that says something that its call does not know, and the field that the refusal names.
type mistake struct {
	query, field string
	body         any
}

// mistakesOf are those of a call of the OpenAPI document.
func mistakesOf(op map[string]any) (out []mistake) {
	var names []string
	parameters, _ := op["parameters"].([]any)
	for _, p := range parameters {
		if p := p.(map[string]any); p["in"] == "query" {
			names = append(names, p["name"].(string))
		}
	}
	out = append(out, mistake{query: "?unknown=x", field: "unknown"}, mistake{query: "?unknown", field: "unknown"},
		mistake{query: "?HIDDEN%20TEXT=x", field: "query"})
	for _, name := range names {
		out = append(out, mistake{query: "?" + name + "s=true", field: name + "s"},
			mistake{query: "?" + strings.ToUpper(name) + "=x", field: "query"})
		if name != "type" && name != "offset" { // of which there may be several, or whose protocol has another status
			out = append(out, mistake{query: "?" + name + "=0:1&" + name + "=0:2", field: name})
		}
		if name != "cursor" { // of the first page
			out = append(out, mistake{query: "?" + name + "=", field: name}, mistake{query: "?" + name, field: name})
		}
	}
	body, takes := op["requestBody"].(map[string]any)
	if !takes {
		for _, sent := range []any{`{"dry_run":true}`, `{}`, "x", streamed(`{"dry_run":true}`)} {
			out = append(out, mistake{body: sent, field: "body"})
		}
	} else if _, json := body["content"].(map[string]any)["application/json"]; json &&
		op["operationId"] != "send-ui-message" { // whose application adds what it wants
		out = append(out, mistake{body: `{"unknown":true}`, field: "unknown"})
	}
	return out
}

// TestUnknownIsRefused goes through the calls of the OpenAPI document: a parameter or a member that a call does not
// have, a parameter that is empty or comes twice, and a body where none is taken is 422, and nothing is done.
//
//conformance:c1
func TestUnknownIsRefused(t *testing.T) {
	t.Parallel()
	var swept counted
	s, _ := guarded(t, ring{}, func(c *config) { c.Retention = &swept })
	require.Equal(t, http.StatusCreated, s.as("all", "POST", "/v1/sessions/s/turns",
		`{"request_id":"r","question_neutral":"q"}`).status)
	head, tried := s.head(), 0
	for path, item := range s.do("GET", "/openapi.json", nil).body["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			method, at := fill(strings.ToUpper(method)+" "+path, "s")
			for _, m := range mistakesOf(op.(map[string]any)) {
				a := s.as("all", method, at+m.query, m.body)
				what := fmt.Sprint(method, " ", at, m.query, " ", m.body)
				require.Equal(t, http.StatusUnprocessableEntity, a.status, "%s: %s", what, a.raw)
				require.Equal(t, "invalid_argument", a.body["code"], what)
				require.Contains(t, fmt.Sprint(column(a.body["errors"], "field")), m.field, what)
				require.NotContains(t, string(a.raw), "HIDDEN", what)
				require.Equal(t, head, s.head(), what)
				tried++
			}
		}
	}
	require.Greater(t, tried, 300)
	require.Zero(t, swept.Load())
}

// counted counts what is erased by retention.
type counted struct {
	nothing
	atomic.Int64
}

func (c *counted) Sweep(context.Context) (services.Swept, error) {
	c.Add(1)
	return services.Swept{}, nil
}

// TestARefusalSaysWhatToUse: a caller who meant what another part of the request says is told so.
//
//conformance:c1
func TestARefusalSaysWhatToUse(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{})
	for _, c := range []struct{ method, path, body, says string }{
		{"POST", "/v1/retention", `{"dry_run":true}`, "body: is not taken by this call: its parameters stand in the " +
			"query: dry_run"},
		{"POST", "/v1/retention?dryrun=true", "", "dryrun: is no parameter of this call: there is dry_run"},
		{"POST", "/v1/retention?dry_run=1", "", "dry_run: must be true or false"},
		{"POST", "/v1/retention?dry_run=true&dry_run=false", "", "dry_run: must stand there once"},
		{"POST", "/v1/retention?dry_run=", "", "dry_run: must not be empty: leave it out"},
		{"GET", "/v1/sessions?identity=ann", "", "identity: is no parameter of this call: there are identity_id, " +
			"since, until, limit, cursor, min_position"},
		{"GET", "/v1/sessions?identity_id=", "", "identity_id: must not be empty: leave it out"},
		{"GET", "/v1/projections?name=recent", "", "name: is no parameter of this call, which has none"},
		{"POST", "/v1/projections/recent/rebuild", `{"detach":true}`, "body: is not taken by this call"},
		{"DELETE", "/v1/sessions/s?reason=r", "", "reason: is no parameter of this call: send it in the body"},
		{"DELETE", "/v1/sessions/s", `{"dry_run":true}`, "dry_run: is not a member of this call's body: there are " +
			"reason, redacted_by"},
		{"DELETE", "/v1/sessions/s", `{"reason":"a","reason":"b"}`, "reason: must stand there once"},
		{"GET", "/v1/events?type=,", "", "type: must not be empty: leave it out"},
	} {
		a := s.as("all", c.method, c.path, c.body)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, "%s %s: %s", c.method, c.path, a.raw)
		require.Equal(t, c.says, a.body["detail"], "%s %s", c.method, c.path)
	}
	require.Equal(t, http.StatusOK, s.as("all", "GET", "/v1/sessions/s/turns?cursor=", nil).status)
	require.Equal(t, http.StatusOK, s.as("all", "GET", "/v1/sessions/s/turns", " \r\n").status)
	require.Equal(t, http.StatusServiceUnavailable, s.as("all", "POST", "/v1/retention?dry%5Frun=true", nil).status)
}

// A header that a call reads, and that comes twice, says two things.
//
//conformance:c1
func TestAHeaderThatComesTwiceIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, path := range map[string]string{
		"Idempotency-Key": "/v1/sessions/s/turns", "If-None-Match": "/v1/sessions/s/turns",
	} {
		r := must.Get(http.NewRequestWithContext(t.Context(), "POST", s.url+path,
			strings.NewReader(`{"request_id":"r","question_neutral":"q"}`)))(t)
		r.Header[name] = []string{"*", "b"}
		resp := must.Get(noRedirects.Do(r))(t)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, name)
	}
	require.Zero(t, s.head())
}
