package wire_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// A body takes as much memory as its length says, and no text is lost whether the length is known or not.
func TestABodyIsReadWhole(t *testing.T) {
	t.Parallel()
	const text, most = "a turn of some length", 30
	read := func(body string, length int64) ([]byte, error) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", io.NopCloser(strings.NewReader(body)))
		r.ContentLength = length
		return wire.ReadBody(r, most)
	}
	got := must.Get(read(text, int64(len(text))))(t)
	require.Equal(t, text, string(got))
	require.Equal(t, len(text), cap(got), "no room to spare")
	require.Equal(t, text, string(must.Get(read(text, -1))(t)))
	require.Empty(t, must.Get(read("", 0))(t))

	must.Fail(read(text, int64(len(text))+1))(t, wire.ErrBody, "the client left before the end")
	var large *wire.TooLarge
	require.ErrorAs(t, must.Err(read(strings.Repeat("x", most+1), most+1)), &large)
	require.ErrorAs(t, must.Err(read(strings.Repeat("x", most+1), -1)), &large)
}

// packings make bodies of the encodings that are read.
var packings = map[string]func(io.Writer) io.WriteCloser{
	"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"zstd": func(w io.Writer) io.WriteCloser {
		out, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1)) // the options are constants
		return out
	},
}

func packed(t *testing.T, encoding, body string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := packings[encoding](&out)
	must.Get(io.WriteString(w, body))(t)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// askPacked posts a note whose length is told, or not.
func askPacked(api http.Handler, body []byte, length int64, encoding ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/v1/notes", bytes.NewReader(body))
	r.ContentLength = length
	r.Header["Content-Encoding"] = encoding
	r.Header.Set("Authorization", "Bearer all")
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w
}

func TestACompressedBodyIsReadAsIfItWereNot(t *testing.T) {
	t.Parallel()
	api, _ := beside(t, nil)
	note := `{"text":"` + strings.Repeat("a turn, ", 10_000) + `"}`
	for encoding := range packings {
		body := packed(t, encoding, note)
		require.Less(t, len(body), len(note)/10)
		for _, name := range []string{encoding, strings.ToUpper(encoding)} {
			for _, length := range []int64{int64(len(body)), -1} {
				w := askPacked(api, body, length, name)
				require.Equal(t, http.StatusOK, w.Code, w.Body)
				require.JSONEq(t, `{"members":1,"bytes":80011}`, w.Body.String())
			}
		}
	}
	for _, same := range []string{"identity", ""} {
		require.Equal(t, http.StatusOK, askPacked(api, []byte(`{}`), 2, same).Code)
	}
	require.Equal(t, http.StatusOK, askPacked(api, packed(t, "gzip", "{}"), -1, "x-gzip").Code)
}

// The limit of a body is that of what it unpacks to, and no more memory than that is taken.
func TestACompressedBodyIsHeldToTheSameLimit(t *testing.T) {
	api, _ := beside(t, nil)
	bombs := map[string][]byte{}
	for encoding := range packings {
		bombs[encoding] = packed(t, encoding, `{"text":"`+strings.Repeat("0", 64<<20)+`"}`)
	}
	var before, after runtime.MemStats
	for encoding, bomb := range bombs {
		require.Less(t, len(bomb), mostNotes)
		runtime.ReadMemStats(&before)
		requireNotes(t, askPacked(api, bomb, int64(len(bomb)), encoding), http.StatusRequestEntityTooLarge)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(48<<20), encoding)
	}
	wide := must.Get(zstd.NewWriter(nil, zstd.WithWindowSize(64<<20), zstd.WithSingleSegment(false)))(t)
	var out bytes.Buffer
	wide.Reset(&out)
	must.Get(wide.Write(bytes.Repeat([]byte("0"), 65<<20)))(t)
	require.NoError(t, wide.Close())
	runtime.ReadMemStats(&before)
	requireNotes(t, askPacked(api, out.Bytes(), -1, "zstd"), http.StatusBadRequest)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(48<<20))
}

func TestABodyThatIsNotWhatItsEncodingSays(t *testing.T) {
	t.Parallel()
	api, _ := beside(t, nil)
	for encoding := range packings {
		whole := packed(t, encoding, `{"text":"`+strings.Repeat("a turn, ", 1000)+`"}`)
		for _, wrong := range [][]byte{[]byte(`{"text":"plain"}`), whole[:len(whole)-9], {0}} {
			requireNotes(t, askPacked(api, wrong, int64(len(wrong)), encoding), http.StatusBadRequest)
		}
	}
}

func TestAnEncodingThatIsNotRead(t *testing.T) {
	t.Parallel()
	api, _ := beside(t, nil)
	for _, encoding := range [][]string{{"br"}, {"deflate"}, {"gzip, zstd"}, {"gzip", "gzip"}, {"a text"}} {
		w := askPacked(api, packed(t, "gzip", "{}"), -1, encoding...)
		requireNotes(t, w, http.StatusUnsupportedMediaType)
		require.Equal(t, "gzip, zstd", w.Header().Get("Accept-Encoding"))
	}
	r := httptest.NewRequest("GET", "/v1/notes/a", nil)
	r.Header.Set("Content-Encoding", "br")
	r.Header.Set("Authorization", "Bearer all")
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, "there is no body")
}
