package v1_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/read"
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
	at, err := time.Parse(time.RFC3339Nano, turn["created_at"].(string))
	require.NoError(t, err)
	require.True(t, at.After(before))
	require.Equal(t, time.UTC, at.Location())
	require.NotZero(t, at.Nanosecond())

	again := s.ok(http.StatusOK, "POST", "/v1/sessions/s1/turns", map[string]any{"request_id": "r1",
		"question_neutral": "Another?"})
	require.Equal(t, true, again["duplicate"])
	require.Equal(t, "Where is it?", again["question_neutral"])
	require.Equal(t, "0:2", again["position"])

	final := s.ok(http.StatusOK, "POST", "/v1/sessions/s1/turns/"+id+"/finalize", map[string]any{
		"request_id": "r1", "answer_neutral": "Here.", "metadata": map[string]any{"locale": "pl", "more": true},
		"answer_messages": []any{map[string]any{"role": "assistant", "content": "Here."}},
	})
	require.Equal(t, turnMembers, keys(final))
	require.Equal(t, "finalized", final["status"])
	require.Equal(t, "0:3", final["position"])
	require.Equal(t, "Here.", final["answer_neutral"])
	require.Equal(t, "Here.", final["answer_translated"])
	require.Equal(t, true, final["answer_translated_is_fallback"])
	require.Equal(t, map[string]any{"channel": "web", "locale": "pl"}, final["metadata"])
	require.Equal(t, []any{"more"}, final["dropped_metadata"])
	require.NotNil(t, final["finalized_at"])

	again = s.ok(http.StatusOK, "POST", "/v1/sessions/s1/turns/"+id+"/finalize",
		map[string]any{"answer_neutral": "There."})
	require.Equal(t, true, again["duplicate"])
	require.Equal(t, "Here.", again["answer_neutral"])
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
	require.Equal(t, "finalized", final["status"])
	require.Equal(t, "", final["answer_neutral"])
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
		again := s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns/"+id+"/redact", nil)
		require.Equal(t, true, again["duplicate"])

		require.Empty(t, s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns", nil)["turns"])
		require.Empty(t, s.ok(http.StatusOK, "GET", "/v1/sessions/s/history", nil)["history"])
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
		require.Equal(t, events.TurnID("s", "fix").String(), fixed["turn_id"])
		require.EqualValues(t, 2, fixed["record_version"])
		require.Equal(t, "q1", fixed["question_neutral"])
		require.Equal(t, "better", fixed["answer_neutral"])
		require.Equal(t, false, fixed["duplicate"])
		require.Equal(t, true, s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns/"+id+"/correct", body)["duplicate"])

		require.Equal(t, []string{"a0", "better", "a2"}, column(s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns",
			nil)["turns"], "answer_neutral"))
		require.Equal(t, []string{"a0", "better", "a2"}, column(s.ok(http.StatusOK, "GET", "/v1/sessions/s/history",
			nil)["history"], "answer_neutral"))
		all := s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?status=all", nil)["turns"]
		require.Equal(t, []string{"a0", "a1", "better", "a2"}, column(all, "answer_neutral"))
		old := all.([]any)[1].(map[string]any)
		require.Equal(t, "replaced", old["status"])
		require.Equal(t, fixed["turn_id"], old["replaced_by_turn_id"])
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
		s := start(t, func(_ *config, hc *history.Config, _ *read.Config) {
			hc.FinalizeWithoutStart = true
		})
		turn := s.ok(http.StatusOK, "POST", path, body)
		require.Equal(t, "finalized", turn["status"])
		require.Equal(t, "q", turn["question_neutral"])
		delete(body, "request_id")
		requireProblem(t, s.do("POST", strings.Replace(path, "/s/", "/t/", 1), body), http.StatusNotFound,
			"turn_not_started")
	})
}

//conformance:i9
func TestTheSameRequestFiftyTimesAtOnceIsOneTurn(t *testing.T) {
	t.Parallel()
	s := start(t)
	var created atomic.Int32
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			a, err := s.try("POST", "/v1/sessions/s/turns", `{"request_id":"r","question_neutral":"q"}`)
			switch {
			case err != nil:
				t.Error(err)
			case a.status == http.StatusCreated:
				created.Add(1)
			case a.status != http.StatusOK || a.body["duplicate"] != true:
				t.Errorf("%d %s", a.status, a.raw)
			}
			if a.body["position"] != "0:1" {
				t.Errorf("position %v", a.body["position"])
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, created.Load())
	require.EqualValues(t, 1, s.head())
}
