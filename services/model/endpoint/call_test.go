package endpoint_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/model/endpoint"
)

// answering counts the calls that come, and answers each as its function does.
func answering(t *testing.T, serve func(n int32, w http.ResponseWriter, r *http.Request)) (string, *atomic.Int32) {
	t.Helper()
	var calls atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(calls.Add(1), w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, &calls
}

// What fails and may pass is called again, with its body, once the endpoint's pause is over; what the endpoint refuses
// for good is not.
func TestACallIsMadeAgainWhileItMayPass(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int32{
		http.StatusTooManyRequests: 2, http.StatusServiceUnavailable: 2, http.StatusConflict: 2,
		http.StatusRequestTimeout: 2,
		http.StatusBadRequest:     1, http.StatusUnauthorized: 1, http.StatusNotFound: 1, http.StatusNotModified: 1,
	} {
		url, calls := answering(t, func(n int32, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After-Ms", "900")
			body := make([]byte, 5)
			_, _ = r.Body.Read(body)
			if n == 1 || string(body) != `{"a":` {
				w.WriteHeader(status)
				return
			}
			_, _ = w.Write([]byte("done"))
		})
		began := time.Now()
		raw, err := endpoint.NewCaller(url, "", 0).Call(t.Context(), http.MethodPut, "/x", map[string]int{"a": 1})
		require.Equal(t, want, calls.Load(), status)
		if want == 1 {
			require.Equal(t, status, endpoint.StatusOf(err))
			require.Equal(t, status == http.StatusBadRequest, endpoint.Unfit(err))
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "done", string(raw))
		require.GreaterOrEqual(t, time.Since(began), 900*time.Millisecond)
	}
}

// The text of an error names what went wrong in one line, and neither the key, nor the address, nor what was sent or
// answered.
func TestErrorsHoldNoSecret(t *testing.T) {
	t.Parallel()
	hangs, calls := answering(t, func(_ int32, _ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	cut, _ := answering(t, func(_ int32, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "99")
		_, _ = w.Write([]byte("secret"))
	})
	refuses, _ := answering(t, func(_ int32, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After-Ms", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"error":{"message":"secret","code":"secret"}}`))
	})
	gone := httptest.NewServer(nil)
	gone.Close()
	for address, want := range map[string]string{
		hangs: "the endpoint did not answer in time", refuses: "the endpoint answered 429",
		cut: "the endpoint did not answer: unexpected EOF", gone.URL: "the endpoint did not answer: dial tcp",
		"http://h:port": "the endpoint did not answer: invalid port",
	} {
		c := endpoint.NewCaller(strings.Replace(address, "http://", "http://secret:secret@", 1), "secret", 50*time.Millisecond)
		_, err := c.Call(t.Context(), http.MethodPost, "/secret?key=secret", "secret")
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
		require.NotContains(t, err.Error(), "\n")
	}
	require.EqualValues(t, 3, calls.Load(), "each try has its own time")
}

// Who goes away waits for no pause.
func TestACallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	url, calls := answering(t, func(_ int32, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := endpoint.NewCaller(url, "k", 0).Call(ctx, http.MethodGet, "", nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualValues(t, 1, calls.Load())
	require.Less(t, time.Since(began), 4*time.Second)
}
