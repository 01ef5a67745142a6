package v1_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

func zipped(t *testing.T, body string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := io.WriteString(w, body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.String()
}

func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	s := start(t)
	const encoding = "Content-Encoding"
	start := fresh + `}`
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	s.ok(http.StatusCreated, "POST", "/v1/sessions/s/turns", zipped(t, start), encoding, "gzip")
	s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns", string(encoder.EncodeAll([]byte(start), nil)), encoding, "zstd")
	require.Len(t, s.many(zipped(t, manyLine("b", "r1")+manyLine("b", "r2")), encoding, "gzip"), 2)
	head := s.head()
	a := s.do("POST", "/v1/sessions/s/turns", start, encoding, "br")
	requireProblem(t, a, http.StatusUnsupportedMediaType, "unsupported_encoding")
	require.Equal(t, "gzip, zstd", a.header.Get("Accept-Encoding"))
	requireProblem(t, s.do("POST", "/v1/sessions/s/turns", start, encoding, "gzip"), http.StatusBadRequest, "malformed")
	for path, most := range map[string]int{"/v1/sessions/s/turns": 1 << 20, "/v1/turns": 8 << 20} {
		bomb := zipped(t, strings.Repeat(" ", 20*most))
		a := s.do("POST", path, bomb, encoding, "gzip")
		requireProblem(t, a, http.StatusRequestEntityTooLarge, "body_too_large")
	}
	require.Equal(t, head, s.head())
}
