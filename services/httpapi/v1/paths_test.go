package v1_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// raw sends a request whose path is not touched by any client.
func (s *stack) raw(method, path, body string) answer {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(s.t, err)
	defer func() { _ = c.Close() }()
	_, err = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		method, path, len(body), body)
	require.NoError(s.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(s.t, err)
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	a.raw, err = io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	a.body = object(a.raw)
	return a
}

func TestIDsOfAllKinds(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, id := range []string{
		"a/b", "/", "a//b", "ünï", "a b", "a+b", "../", "..%2F", "x%25y", "%", "~", "~YQ", "...", "a.b", "?q=1&r", "#",
		";v=1", "日本語", "🙂",
		`"quoted"`, `back\slash`, "turns", "{session_id}", strings.Repeat("i", 256), "a*b>c",
	} {
		path := "/v1/sessions/" + url.PathEscape(id)
		turn := s.raw("POST", path+"/turns", `{"request_id":"r","question_neutral":"q"}`)
		require.Equal(t, http.StatusCreated, turn.status, "%q: %s", id, turn.raw)
		require.Equal(t, id, turn.body["session_id"])
		turn = s.raw("POST", path+"/turns/"+turn.body["turn_id"].(string)+"/finalize", `{"answer_neutral":"a"}`)
		require.Equal(t, http.StatusOK, turn.status, id)
		require.Len(t, s.raw("POST", path+"/context", `{"message":"m"}`).body["messages"], 3, id)
		got := s.raw("GET", path, "")
		require.Equal(t, id, got.body["session_id"])
		require.EqualValues(t, 1, got.body["turns"], id)
		require.Len(t, s.state(id).Turns, 1, id)
	}
}

func TestIDsThatAreNone(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, escaped := range []string{
		"", ".", "..", "%2E", "%2E%2E", "%2e%2E", "%00", "a%0Ab", "%7F", "%C2%85", "%FF", "a%C3", strings.Repeat("i",
			257), strings.Repeat("%C3%A4", 129),
	} {
		path := "/v1/sessions/" + escaped
		for _, call := range []struct{ method, path, body string }{
			{"POST", path + "/turns", `{"request_id":"r","question_neutral":"q"}`}, {"POST", path + "/reset", ""}, {"PUT", path + "/identity", `{"identity_id":"x"}`},
			{"GET", path + "/turns", ""}, {"GET", path + "/history", ""}, {"POST", path + "/context",
				`{"message":"m"}`},
		} {
			requireProblem(t, s.raw(call.method, call.path, call.body), http.StatusUnprocessableEntity,
				"invalid_argument", "session_id")
		}
	}
	requireProblem(t, s.raw("GET", "/v1/identities/%2E%2E/turns", ""), http.StatusUnprocessableEntity,
		"invalid_argument", "identity_id")
	require.Zero(t, s.head())
}

// A path is taken as it is: cleaned, it would be another call.
func TestNothingIsRedirected(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{"//v1/sessions/s", "/v1/../healthz", "/healthz/", "/v1/sessions/s/",
		"/v1/sessions/s/turns/", "/docs/", "/./docs", "/v1/sessions/s/turns//finalize", "/v1//sessions/s"} {
		for _, method := range []string{"GET", "POST"} {
			a := s.raw(method, path, "")
			require.GreaterOrEqual(t, a.status, 400, path)
			require.Equal(t, "application/problem+json", a.header.Get("Content-Type"), path)
			require.Empty(t, a.header.Get("Location"), path)
		}
	}
}
