package v1_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
)

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
		require.Equal(t, got["created_at"], after["created_at"])
		require.Equal(t, map[string]any{"folder": "a", "x": ""}, after["metadata"])
		require.InDelta(t, 1, after["turns"], 0)

		s.append(&events.SessionErased{SessionID: "s", ReceiptID: "x"})
		gone := s.ok(http.StatusOK, http.MethodGet, path, nil)
		require.Equal(t, false, gone["found"])
		require.Equal(t, map[string]any{}, gone["metadata"])
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
	again := s.ok(http.StatusOK, http.MethodPatch, "/v1/sessions/s", kind)
	require.Equal(t, true, again["duplicate"])
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
