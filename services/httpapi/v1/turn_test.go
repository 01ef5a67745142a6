package v1_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/ratelimit"
)

// turnMembers are those of docs/contract.md#a-turn.
var turnMembers = []string{
	"answer_messages", "answer_neutral", "answer_translated", "answer_translated_is_fallback", "consultant",
	"created_at",
	"deleted_at", "dropped_metadata", "duplicate", "finalized_at", "identity_id", "inherited", "metadata",
	"pipeline_name",
	"position",
	"question_messages", "question_neutral", "question_translated", "record_version", "replaced_by_turn_id",
	"repository",
	"request_id", "session_id", "status", "translate_chat", "turn_id",
}

// whole is a start that says everything.
var whole = map[string]any{
	"request_id": "r1", "question_neutral": "Where is it?", "question_translated": "Gdzie to jest?",
	"translate_chat": true,
	"identity_id":    "ada", "pipeline_name": "p", "consultant": "c", "repository": "repo",
	"metadata":          map[string]any{"channel": "web", "secret": 1, "also": 2},
	"question_messages": []any{map[string]any{"role": "user", "content": "Where is it?", "x-own": 1.5}},
}

//conformance:h8 h15 h36 h37 h48
func TestATurnFromStartToEnd(t *testing.T) {
	t.Parallel()
	s := start(t)
	before := time.Now().Add(-time.Minute)
	turn := s.ok(http.StatusCreated, "POST", "/v1/sessions/s1/turns", whole)
	require.Equal(t, turnMembers, keys(turn))
	id := events.TurnID("s1", "r1").String()
	require.Equal(t, map[string]any{
		"turn_id": id, "session_id": "s1", "identity_id": "ada", "request_id": "r1", "status": "pending",
		"position":   "0:2",
		"created_at": turn["created_at"], "finalized_at": nil, "pipeline_name": "p", "consultant": "c",
		"repository":     "repo",
		"translate_chat": true, "question_neutral": "Where is it?", "question_translated": "Gdzie to jest?",
		"answer_neutral": nil, "answer_translated": nil, "answer_translated_is_fallback": false,
		"question_messages": []any{map[string]any{"role": "user", "content": "Where is it?", "x-own": 1.5}},
		"answer_messages":   nil,
		"metadata":          map[string]any{"channel": "web"}, "record_version": 1.0, "replaced_by_turn_id": nil,
		"deleted_at": nil, "inherited": false,
		"duplicate": false, "dropped_metadata": []any{"also", "secret"},
	}, turn)
	at := must.Get(time.Parse(time.RFC3339Nano, turn["created_at"].(string)))(t)
	require.True(t, at.After(before))
	require.Equal(t, time.UTC, at.Location())
	require.NotZero(t, at.Nanosecond())

	again := s.ok(http.StatusOK, "POST", "/v1/sessions/s1/turns", map[string]any{"request_id": "r1",
		"question_neutral": "Another?"})
	require.Subset(t, again, map[string]any{"duplicate": true, "question_neutral": "Where is it?", "position": "0:2"})

	final := s.ok(http.StatusOK, "POST", "/v1/sessions/s1/turns/"+id+"/finalize", map[string]any{
		"request_id": "r1", "answer_neutral": "Here.", "metadata": map[string]any{"locale": "pl", "more": true},
		"answer_messages": []any{map[string]any{"role": "assistant", "content": "Here."}},
	})
	require.Equal(t, turnMembers, keys(final))
	require.Subset(t, final, map[string]any{"status": "finalized", "position": "0:3", "answer_neutral": "Here.",
		"answer_translated": "Here.", "answer_translated_is_fallback": true,
		"metadata": map[string]any{"channel": "web", "locale": "pl"}, "dropped_metadata": []any{"more"}})
	require.NotNil(t, final["finalized_at"])

	again = s.ok(http.StatusOK, "POST", "/v1/sessions/s1/turns/"+id+"/finalize",
		map[string]any{"answer_neutral": "There."})
	require.Subset(t, again, map[string]any{"duplicate": true, "answer_neutral": "Here."})
	require.EqualValues(t, 3, s.head())
}

//conformance:h19
func TestTheRequestIDMayBeAHeader(t *testing.T) {
	t.Parallel()
	s := start(t)
	body := map[string]any{"question_neutral": "q"}
	turn := s.ok(http.StatusCreated, "POST", "/v1/sessions/s/turns", body, "Idempotency-Key", "key")
	require.Equal(t, "key", turn["request_id"])
	body["request_id"] = "key"
	s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns", body, "Idempotency-Key", "key")
	a := s.do("POST", "/v1/sessions/s/turns", body, "Idempotency-Key", "another")
	requireProblem(t, a, http.StatusUnprocessableEntity, "invalid_argument", "request_id")
}

//conformance:h3 h16 h17 h18
func TestFallbacks(t *testing.T) {
	t.Parallel()
	s := start(t)
	turn := s.ok(http.StatusCreated, "POST", "/v1/sessions/s/turns", map[string]any{"request_id": "1",
		"question_translated": "Gdzie?"})
	require.Equal(t, "Gdzie?", turn["question_neutral"])
	require.Equal(t, map[string]any{"question_neutral_is_fallback": true}, turn["metadata"])

	image := []any{map[string]any{"role": "user", "content": []any{map[string]any{"type": "image_url",
		"image_url": map[string]any{"url": "https://x/y.png"}}}}}
	turn = s.ok(http.StatusCreated, "POST", "/v1/sessions/s/turns", map[string]any{"request_id": "2",
		"question_messages": image})
	require.Equal(t, "", turn["question_neutral"])

	calls := `[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}]`
	final := s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns/"+turn["turn_id"].(string)+"/finalize",
		`{"answer_messages":`+calls+`}`)
	require.Subset(t, final, map[string]any{"status": "finalized", "answer_neutral": ""})
}

// Whatever a client puts into its messages comes back as it was: big and odd
// numbers, escapes, the order of members.
//
//conformance:h6 f3 f5
func TestMessagesAreKeptAsTheyCame(t *testing.T) {
	t.Parallel()
	s := start(t)
	messages := `[{"zeta":12345678901234567890.10,"role":"user","content":[{"type":"text","text":"a\u0000b\ud83d\ude00<&>` + "\u2028żółć" + `"}],"a":{"b":[1e400,-0.0,{"c":null}]},"name":"n"}]`
	s.ok(http.StatusCreated, "POST", "/v1/sessions/s/turns", `{"request_id":"r","question_neutral":"q","question_messages":`+messages+`}`)
	a := s.do("GET", "/v1/sessions/s/turns?status=pending", nil)
	require.Contains(t, string(a.raw), `"question_messages":`+messages)
	a = s.do("POST", "/v1/sessions/s/context", `{"message":"m","include_pending":true}`)
	require.Contains(t, string(a.raw), `{"messages":[`+messages[1:len(messages)-1]+`,`)
}

//conformance:h60 h61
func TestRedact(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		id := s.record("s", "r1", "my secret", "known")
		gone := s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns/"+id+"/redact", map[string]any{"reason": "asked",
			"redacted_by": "ops"})
		require.Equal(t, turnMembers, keys(gone))
		requireTombstone(t, gone)
		require.Equal(t, "0:3", gone["position"])
		require.Equal(t, true, s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns/"+id+"/redact", nil)["duplicate"])

		all := s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?status=all", nil)["turns"].([]any)
		require.Len(t, all, 1)
		requireTombstone(t, all[0].(map[string]any))
		late := s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns", map[string]any{"request_id": "r1",
			"question_neutral": "my secret"})
		require.Equal(t, true, late["duplicate"])
		requireTombstone(t, late)
	})
}

func requireTombstone(t *testing.T, turn map[string]any) {
	t.Helper()
	require.Equal(t, "redacted", turn["status"])
	require.NotNil(t, turn["deleted_at"])
	require.NotNil(t, turn["created_at"])
	require.NotNil(t, turn["finalized_at"])
	require.Equal(t, "r1", turn["request_id"])
	for _, member := range []string{"question_neutral", "question_translated", "answer_neutral", "answer_translated",
		"question_messages", "answer_messages"} {
		require.Nil(t, turn[member], member)
	}
	require.Empty(t, turn["metadata"])
}

//conformance:h59 s26
func TestCorrect(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		s.record("s", "r0", "q0", "a0")
		id := s.record("s", "r1", "q1", "a1")
		s.record("s", "r2", "q2", "a2")
		body := map[string]any{"request_id": "fix", "answer_neutral": "better"}
		fixed := s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns/"+id+"/correct", body)
		require.Equal(t, turnMembers, keys(fixed))
		require.Subset(t, fixed, map[string]any{"turn_id": events.TurnID("s", "fix").String(), "record_version": 2.0,
			"question_neutral": "q1", "answer_neutral": "better", "duplicate": false})
		require.Equal(t, true, s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns/"+id+"/correct", body)["duplicate"])

		all := s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?status=all", nil)["turns"]
		require.Equal(t, []string{"a0", "a1", "better", "a2"}, column(all, "answer_neutral"))
		old := all.([]any)[1].(map[string]any)
		require.Subset(t, old, map[string]any{"status": "replaced", "replaced_by_turn_id": fixed["turn_id"]})
		require.EqualValues(t, 3, s.ok(http.StatusOK, "GET", "/v1/sessions/s", nil)["turns"])

		again := s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns/"+events.TurnID("s", "fix").String()+"/correct",
			map[string]any{"request_id": "fix again", "answer_neutral": "best"})
		for _, name := range []any{id, fixed["turn_id"]} {
			late := s.do("POST", fmt.Sprintf("/v1/sessions/s/turns/%s/correct", name),
				map[string]any{"request_id": "late", "answer_neutral": "worse"})
			require.Equal(t, http.StatusConflict, late.status)
			require.Equal(t, map[string]any{"turn_id": again["turn_id"], "record_version": 3.0}, late.body["current"],
				"who lost a race learns what to correct")
		}
	})
}

func column(list any, member string) []string {
	var out []string
	for _, row := range list.([]any) {
		out = append(out, fmt.Sprint(row.(map[string]any)[member]))
	}
	return out
}

//conformance:h41
func TestFinalizeWithoutStart(t *testing.T) {
	t.Parallel()
	body := map[string]any{"request_id": "r", "question_neutral": "q", "answer_neutral": "a"}
	path := "/v1/sessions/s/turns/" + events.TurnID("s", "r").String() + "/finalize"
	t.Run("is refused", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		requireProblem(t, s.do("POST", path, body), http.StatusNotFound, "turn_not_started")
		require.Zero(t, s.head())
	})
	t.Run("starts the turn in development", func(t *testing.T) {
		t.Parallel()
		s := start(t, func(c *config) { c.history.FinalizeWithoutStart = true })
		turn := s.ok(http.StatusOK, "POST", path, body)
		require.Subset(t, turn, map[string]any{"status": "finalized", "question_neutral": "q"})
		delete(body, "request_id")
		requireProblem(t, s.do("POST", strings.Replace(path, "/s/", "/t/", 1), body), http.StatusNotFound,
			"turn_not_started")
	})
}

// many sends lines, and returns the answers to them.
func (s *stack) many(body string, header ...string) (rows []map[string]any) {
	s.t.Helper()
	a := s.do("POST", "/v1/turns", body, header...)
	require.Equal(s.t, http.StatusOK, a.status, "%s", a.raw)
	require.Equal(s.t, "application/x-ndjson", a.header.Get("Content-Type"))
	for line := range strings.Lines(string(a.raw)) {
		var row map[string]any
		require.NoError(s.t, json.Unmarshal([]byte(line), &row))
		rows = append(rows, row)
	}
	return rows
}

func manyLine(session, request string) string {
	return fmt.Sprintf(`{"session_id":%q,"request_id":%q,"question_neutral":"q","answer_neutral":"a"}`+"\n", session, request)
}

func TestABatchIsCountedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, body := range []string{strings.Repeat(manyLine("s", "r"), 1001), strings.Repeat("x", 8<<20+1)} {
		requireProblem(t, s.do("POST", "/v1/turns", body), http.StatusRequestEntityTooLarge, "body_too_large")
	}
	requireProblem(t, s.do("POST", "/v1/turns", "\n \n"), http.StatusBadRequest, "malformed")
	requireProblem(t, s.do("POST", "/v1/turns", manyLine("s", "r"), "If-None-Match", `"x"`),
		http.StatusUnprocessableEntity, "invalid_argument", "If-None-Match")
	require.Zero(t, s.head())
	rows := s.many(strings.Repeat(manyLine("s", "r"), 999) + manyLine("s", "last"))
	require.Len(t, rows, 1000)
	require.EqualValues(t, 201, rows[0]["http_status"])
	require.Equal(t, true, rows[998]["duplicate"])
	require.EqualValues(t, 1000, rows[999]["line"])
	require.EqualValues(t, 2, s.head())
}

func TestALineThatIsTooLargeIsItsOwn413(t *testing.T) {
	t.Parallel()
	s := start(t)
	huge := strings.Replace(manyLine("s", "r1"), `"a"`, `"`+strings.Repeat("a", 1<<20)+`"`, 1)
	rows := s.many(manyLine("s", "r0") + huge + manyLine("s", "r2"))
	require.Subset(t, rows[1], map[string]any{"http_status": 413.0, "code": "body_too_large"})
	require.EqualValues(t, 201, rows[2]["http_status"])
}

// After a line that comes too soon the later ones of its session are not tried.
func TestLinesCountInTheRateOfTheirSession(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := start(t, func(c *config) {
		c.Limiter = ratelimit.New(ratelimit.Rate{Requests: 2, Per: time.Hour}, ratelimit.Rate{},
			func() time.Time { return now })
	})
	body := ""
	for i := range 4 {
		body += manyLine("s", fmt.Sprint("r", i)) + manyLine(fmt.Sprint("t", i), "r")
	}
	for i, row := range s.many(body) {
		want := 201
		if i%2 == 0 && i >= 4 {
			want = 429
			require.Positive(t, row["retry_after"])
			require.Equal(t, "rate_limited", row["code"])
		}
		require.EqualValues(t, want, row["http_status"], "line %d", i+1)
	}
}

// What one line is refused for the moment, the later lines of its session are refused, too: a turn that would be let in
// by itself must not come before an earlier one.
func TestALineThatComesTooSoonHoldsUpItsSession(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config) {
		c.Limiter = ratelimit.New(ratelimit.Rate{}, ratelimit.Rate{Requests: 1, Per: time.Hour}, nil)
	})
	ofAda := func(session, request string) string {
		return strings.Replace(manyLine(session, request), `{`, `{"identity_id":"ada",`, 1)
	}
	rows := s.many(ofAda("s", "r0") + ofAda("t", "r0") + manyLine("t", "r1") + manyLine("u", "r0"))
	for i, want := range []int{201, 429, 429, 201} {
		require.EqualValues(t, want, rows[i]["http_status"], "line %d", i+1)
	}
	require.Subset(t, rows[2], map[string]any{"retry_after": rows[1]["retry_after"], "code": rows[1]["code"]})
	require.EqualValues(t, 3, s.head(), "the session t has no events")
}

// A batch looks up the identity of each of its sessions once, however many lines it has of it: a bound key's for what
// it reaches, and any key's for the rate of identities.
func TestABatchReadsEachSessionOnce(t *testing.T) {
	t.Parallel()
	body := ""
	for i := range 40 {
		body += manyLine(fmt.Sprint("s", i%4), fmt.Sprint("r", i))
	}
	for _, caller := range []string{"all", "ada"} {
		read := &countedSessions{times: map[string]int{}}
		s, _ := guarded(t, ring{}, func(c *config) {
			read.SessionReader, c.LinkReader = c.LinkReader, read
			c.Limiter = ratelimit.New(ratelimit.Rate{}, ratelimit.Rate{Requests: 1000, Per: time.Hour}, nil)
		})
		want := map[string]int{}
		for i := range 4 {
			session := fmt.Sprint("s", i)
			want[session] = 1
			s.append(&events.SessionLinked{SessionID: session, IdentityID: "ada"})
		}
		for i, row := range s.many(body, "Authorization", "Bearer "+caller) {
			require.EqualValues(t, http.StatusCreated, row["http_status"], "line %d of %s", i+1, caller)
		}
		require.Equal(t, want, read.times, caller)
	}
}

// countedSessions counts the readings of each session.
type countedSessions struct {
	services.SessionReader
	sync.Mutex
	times map[string]int
}

// Read implements services.SessionReader.
func (c *countedSessions) Read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	c.Lock()
	defer c.Unlock()
	c.times[ask.SessionID]++
	return c.SessionReader.Read(ctx, ask)
}

// A bound key may not name another identity in a line either: the line is refused before anything of it is recorded.
// The metrics count lines by their statuses.
func TestALineOfABoundKeySpeaksForItself(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{})
	require.Equal(t, http.StatusCreated, s.as("all", "POST", "/v1/sessions/own/turns",
		`{"request_id":"r","question_neutral":"q","identity_id":"ada"}`).status)
	head := s.head()
	of := func(identity, request string) string {
		return strings.Replace(manyLine("own", request), `{`, fmt.Sprintf(`{"identity_id":%q,`, identity), 1)
	}
	a := s.as("ada", "POST", "/v1/turns", of("bob", "r1")+of("ada", "r2"))
	require.Equal(t, http.StatusOK, a.status)
	var rows []map[string]any
	for line := range strings.Lines(string(a.raw)) {
		var row map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		rows = append(rows, row)
	}
	require.EqualValues(t, http.StatusForbidden, rows[0]["http_status"])
	require.Equal(t, "forbidden", rows[0]["code"])
	require.EqualValues(t, http.StatusCreated, rows[1]["http_status"])
	require.EqualValues(t, head+1, s.head(), "a whole turn, and no refused link")
	metrics := string(s.as("all", "GET", "/metrics", nil).raw)
	require.Contains(t, metrics, `turnledger_http_lines_total{status="201"} 1`)
	require.Contains(t, metrics, `turnledger_http_lines_total{status="403"} 1`)
}

func TestOnlyNewTurns(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.do("POST", "/v1/sessions/s/turns", `{"request_id":"r","question_neutral":"another"}`)
	before := s.head()
	row := s.many(manyLine("s", "r"), "If-None-Match", "*")[0]
	require.Subset(t, row, map[string]any{"http_status": 200.0, "duplicate": true})
	require.Equal(t, before, s.head())
	row = s.many(manyLine("s", "r"))[0]
	require.EqualValues(t, 200, row["http_status"])
	require.Equal(t, false, row["duplicate"], "the pending turn got the answer")
}

// Uploads that do not come leave the room for batches to others, however much their senders say that will come.
func TestSlowUploadsTakeNoRoom(t *testing.T) {
	t.Parallel()
	s := start(t)
	address := strings.TrimPrefix(s.url, "http://")
	for range 9 {
		conn := must.Get(net.Dial("tcp", address))(t)
		t.Cleanup(func() { _ = conn.Close() })
		_, err := fmt.Fprintf(conn, "POST /v1/turns HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n{",
			address, 8<<20)
		require.NoError(t, err)
	}
	a := s.do("POST", "/v1/turns", `{"session_id":"s","request_id":"r","question_neutral":"q"}`)
	require.Equal(t, http.StatusOK, a.status)
}

// Batches whose bytes fill the room leave none for the next, which hears that the server has too much in hand. A body
// that is too large takes room only up to its bound.
func TestBatchesFillTheirRoom(t *testing.T) {
	t.Parallel()
	s := start(t)
	address := strings.TrimPrefix(s.url, "http://")
	line, piece := `{"session_id":"s","request_id":"r","question_neutral":"q"}`, strings.Repeat(" ", 1<<20)
	var open []net.Conn
	for s.do("POST", "/v1/turns", line).status == http.StatusOK {
		require.Less(t, len(open), 100)
		conn := must.Get(net.Dial("tcp", address))(t)
		t.Cleanup(func() { _ = conn.Close() })
		_, err := fmt.Fprintf(conn, "POST /v1/turns HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n",
			address)
		for range 10 { // two more than its bound; it breaks where there is no room
			if err == nil {
				_, err = fmt.Fprintf(conn, "%x\r\n%s\r\n", len(piece), piece)
			}
		}
		open = append(open, conn)
	}
	for range 20 {
		<-time.After(10 * time.Millisecond)
		requireProblem(t, s.do("POST", "/v1/turns", line), http.StatusServiceUnavailable, "overloaded")
	}
	for _, conn := range open {
		require.NoError(t, conn.Close())
	}
	hang.Until(t, func() bool { return s.do("POST", "/v1/turns", line).status == http.StatusOK })
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		t.Helper()
		const path = "/v1/sessions/s"
		first := s.ok(http.StatusOK, http.MethodPatch, path, map[string]any{
			"request_id": "d1", "title": "One", "metadata": map[string]any{"folder": "a", "pinned": "yes"}})
		require.Equal(t, false, first["duplicate"])
		require.NotEmpty(t, first["position"])
		got := s.ok(http.StatusOK, http.MethodGet, path, nil)
		require.Equal(t, true, got["found"], "a described session exists")
		require.Equal(t, "One", got["title"])
		require.Nil(t, got["last_active_at"], "a description is no activity")
		require.NotNil(t, got["created_at"])
		require.NotContains(t, got, "duplicate")

		s.record("s", "r1", "q", "a")
		second := s.ok(http.StatusOK, http.MethodPatch, path,
			map[string]any{"request_id": "d2", "title": nil, "metadata": map[string]any{"pinned": nil, "x": ""}})
		require.Nil(t, second["title"])
		require.Equal(t, map[string]any{"folder": "a", "x": ""}, second["metadata"])
		again := s.ok(http.StatusOK, http.MethodPatch, path, map[string]any{"request_id": "d1", "title": "One"})
		require.Equal(t, true, again["duplicate"], "a late retry puts nothing back")
		require.Nil(t, again["title"])
		after := s.ok(http.StatusOK, http.MethodGet, path, nil)
		require.Subset(t, after, map[string]any{"created_at": got["created_at"],
			"metadata": map[string]any{"folder": "a", "x": ""}, "turns": 1.0})

		s.append(&events.SessionErased{SessionID: "s", ReceiptID: "x"})
		gone := s.ok(http.StatusOK, http.MethodGet, path, nil)
		require.Subset(t, gone, map[string]any{"found": false, "metadata": map[string]any{}})
		require.Equal(t, http.StatusGone, s.do(http.MethodPatch, path, map[string]any{"title": "x"}).status)
	})
}

// A session that is said to be a conversation stays one, and no silence is a boundary in it.
func TestDescribeAsAConversation(t *testing.T) {
	t.Parallel()
	s := start(t)
	kind := map[string]any{"request_id": "k", "kind": "conversation"}
	s.ok(http.StatusOK, http.MethodPatch, "/v1/sessions/s", kind)
	require.Equal(t, events.KindConversation, s.state("s").Description().Kind)
	s.ok(http.StatusOK, http.MethodPatch, "/v1/sessions/s", map[string]any{"title": "x"})
	require.Equal(t, events.KindConversation, s.state("s").Description().Kind)
	require.Equal(t, true, s.ok(http.StatusOK, http.MethodPatch, "/v1/sessions/s", kind)["duplicate"])
}

func TestDescribeRefuses(t *testing.T) {
	t.Parallel()
	s := start(t)
	many := map[string]any{}
	for _, c := range "abcdefghijklmnop" {
		many[string(c)] = "v"
	}
	s.ok(http.StatusOK, http.MethodPatch, "/v1/sessions/s",
		map[string]any{"title": strings.Repeat("ü", 200), "metadata": many})
	before := s.head()
	for name, body := range map[string]map[string]any{
		"nothing":          {"request_id": "d"},
		"a long title":     {"title": strings.Repeat("ü", 201)},
		"a number":         {"title": 1},
		"NUL":              {"title": "SECRET\x00"},
		"a long key":       {"metadata": map[string]any{strings.Repeat("k", 65): "SECRET"}},
		"a long value":     {"metadata": map[string]any{"k": strings.Repeat("v", 513)}},
		"an object":        {"metadata": map[string]any{"k": map[string]any{}}},
		"a list":           {"metadata": []string{"k"}},
		"one key too many": {"metadata": map[string]any{"SECRET": "v"}},
		"a request id":     {"request_id": "a\nb", "title": "x"},
		"another member":   {"title": "x", "name": "y"},
		"a kind":           {"kind": "response"},
		"an unknown kind":  {"kind": "SECRET"},
	} {
		got := s.do(http.MethodPatch, "/v1/sessions/s", body)
		require.Equal(t, http.StatusUnprocessableEntity, got.status, name)
		require.NotContains(t, string(got.raw), "SECRET", name)
	}
	require.Equal(t, before, s.head())
	s.ok(http.StatusOK, http.MethodPatch, "/v1/sessions/s",
		map[string]any{"metadata": map[string]any{"a": nil, "z": "v"}})
}
