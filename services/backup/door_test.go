package backup_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/services/backup"
)

// answers reads bodies; /shut shuts the door that the request came through, /stuck waits.
type answers struct {
	door            *backup.Door
	stuck           chan struct{}
	ended, resumed  atomic.Int32
	hurried, inHand atomic.Int32
	shut            chan error
	body            chan error
}

func (a *answers) EndStreams()    { a.ended.Add(1) }
func (a *answers) ResumeStreams() { a.resumed.Add(1) }

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/shut":
		a.shut <- a.door.Shut(r.Context(), func() { a.hurried.Add(1) })
	case "/stuck":
		a.inHand.Add(1)
		<-a.stuck
	case "/body":
		a.inHand.Add(1)
		_, err := io.ReadAll(r.Body)
		a.body <- err
	}
	w.WriteHeader(http.StatusNoContent)
}

func behindADoor(t *testing.T) (*answers, *httptest.Server) {
	t.Helper()
	d := backup.NewDoor(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	d.SetPatience(100*time.Millisecond, 2*time.Second)
	a := &answers{door: d, stuck: make(chan struct{}), shut: make(chan error, 1), body: make(chan error, 1)}
	s := httptest.NewServer(d)
	t.Cleanup(s.Close)
	require.Equal(t, http.StatusServiceUnavailable, status(t, s.URL))
	d.Open(a)
	require.Equal(t, http.StatusNoContent, status(t, s.URL))
	return a, s
}

func status(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// A client that sends its body slowly holds nothing up: it is given up after a while. The request that shuts the door
// does not wait for itself.
func TestADoorIsShutOverAClientThatSendsSlowly(t *testing.T) {
	t.Parallel()
	a, s := behindADoor(t)
	slow, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	require.NoError(t, err)
	defer func() { _ = slow.Close() }()
	_, err = io.WriteString(slow, "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsome")
	require.NoError(t, err)
	hang.Until(t, func() bool { return a.inHand.Load() == 1 })
	require.Equal(t, http.StatusNoContent, status(t, s.URL+"/shut"))
	require.NoError(t, <-a.shut)
	require.Error(t, <-a.body)
	require.EqualValues(t, 1, a.hurried.Load())
	require.EqualValues(t, 1, a.ended.Load())
	require.Equal(t, http.StatusServiceUnavailable, status(t, s.URL))
	require.NoError(t, a.door.Empty(t.Context()))
}

// A request that does not end keeps the door from being shut: then it is open again, with all that it had.
func TestADoorThatCannotBeShutIsOpenAgain(t *testing.T) {
	t.Parallel()
	a, s := behindADoor(t)
	go func() {
		if resp, err := http.Get(s.URL + "/stuck"); err == nil {
			_ = resp.Body.Close()
		}
	}()
	hang.Until(t, func() bool { return a.inHand.Load() == 1 })
	a.door.SetPatience(10*time.Millisecond, 10*time.Millisecond)
	err := a.door.Shut(t.Context(), func() {})
	require.True(t, errors.Is(err, context.DeadlineExceeded), err)
	require.ErrorContains(t, err, "1 requests are still under way")
	require.Equal(t, http.StatusNoContent, status(t, s.URL))
	require.EqualValues(t, 2, a.resumed.Load())
	close(a.stuck)
	require.NoError(t, a.door.Empty(t.Context()))
}
