package openai_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/answer"
)

// The bodies of Codex come as zstd.
func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	zstded := func(body string) string { return string(encoder.EncodeAll([]byte(body), nil)) }
	long := strings.Repeat("a long question ", 1000)
	a := s.must("POST", "/v1/responses", zstded(`{"input":"`+long+`"}`), "Content-Encoding", "zstd")
	asked := s.must("GET", "/v1/responses/"+a["id"].(string)+"/input_items", "")["data"].([]any)
	require.Equal(t, []string{long}, texts(asked))
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err = w.Write([]byte(`{"items":[` + user("zipped") + `]}`))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	id := s.must("POST", "/v1/conversations", zipped.String(), "Content-Encoding", "gzip")["id"].(string)
	require.Equal(t, []string{"zipped"}, texts(s.list(id, 10)))

	head := s.head()
	for _, route := range []string{"/v1/responses", "/v1/conversations", "/v1/responses/input_tokens"} {
		a := s.do("POST", route, `{"input":"q"}`, "Content-Encoding", "br")
		require.Equal(t, http.StatusUnsupportedMediaType, a.status, a.raw)
		require.Equal(t, "gzip, zstd", a.header.Get("Accept-Encoding"))
		require.Equal(t, "false", a.header.Get("X-Should-Retry"))
		require.Equal(t, "unsupported_encoding", a.body["error"].(map[string]any)["code"])
		bomb := zstded(`{"input":"` + strings.Repeat("0", 64<<20) + `"}`)
		require.Less(t, len(bomb), 1<<20)
		a = s.do("POST", route, bomb, "Content-Encoding", "zstd")
		require.Equal(t, http.StatusRequestEntityTooLarge, a.status, a.raw)
		a = s.do("POST", route, `{"input":"q"}`, "Content-Encoding", "zstd")
		require.Equal(t, http.StatusBadRequest, a.status, a.raw)
	}
	require.Equal(t, head, s.head())
}
