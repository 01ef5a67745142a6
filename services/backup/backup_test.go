package backup_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services/backup"
)

// source is a log whose first copies are cut off, cut of them.
type source struct {
	copies [][]byte
	cut    int
}

func (s *source) Partitions(context.Context) (int, error) { return len(s.copies), nil }

func (s *source) Snapshot(_ context.Context, k int) (backup.Copy, error) {
	b := s.copies[k]
	if k == 1 && s.cut > 0 {
		s.cut--
		b = b[:len(b)/2]
	}
	return backup.Copy{
		File: backup.File{Events: 1, RawBytes: 10}, ItemKey: "k", Body: io.NopCloser(bytes.NewReader(b)),
	}, nil
}

var parked = []projections.DeadLetter{{
	Projection: "audit", Position: events.Position{Partition: 1, Seq: 7}, EventID: "e", Reason: "a test", Attempts: 2,
	ParkedAt: time.Unix(7, 0).UTC(),
	Dropped:  &projections.Drop{Reason: "a known lie", By: "ada", At: time.Unix(9, 0).UTC()},
}}

func (*source) DeadLetters(context.Context) ([]projections.DeadLetter, error) { return parked, nil }

func copies(n int) (out [][]byte) {
	for i := range n {
		var b bytes.Buffer
		w := s2.NewWriter(&b)
		_, _ = w.Write(bytes.Repeat([]byte{byte(i), 'x', 'y'}, 100_000))
		_ = w.Close()
		out = append(out, b.Bytes())
	}
	return out
}

func none(string, int64, int64) {}

func TestACopyThatIsCutOffIsTakenAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "b")
	m := must.Get(backup.Take(t.Context(), &source{copies(2), 2}, backup.Folder{Dir: dir}, "v", time.Now(), none))(t)
	require.EqualValues(t, 300_000, m.Files[1].RawBytes)
	whole := must.Get(backup.Check(t.Context(), backup.Folder{Dir: dir}, none))(t)
	defer whole.Close()
	info := must.Get(os.Stat(filepath.Join(dir, "TURNS-0.snapshot")))(t)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "a backup holds texts")

	_, err := backup.Take(t.Context(), &source{copies(2), 0}, backup.Folder{Dir: dir}, "v", time.Now(), none)
	require.ErrorIs(t, err, backup.ErrExists)
}

func TestWhatIsBrokenOffIsNoBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := backup.Take(t.Context(), &source{copies(2), 3}, backup.Folder{Dir: dir}, "v", time.Now(), none)
	require.ErrorContains(t, err, "copy partition 1")
	left := must.Get(os.ReadDir(dir))(t)
	require.Len(t, left, 1, "the first copy alone: %v", left)
	must.Fail(backup.Check(t.Context(), backup.Folder{Dir: dir}, none))(t, backup.ErrDamaged)
	_, err = backup.Take(t.Context(), &source{copies(2), 0}, backup.Folder{Dir: dir}, "v", time.Now(), none)
	require.NoError(t, err, "the same again begins anew")
}

// What is packed comes out as it was; a byte that changed on its way is found before the
// copy ends.
func TestPackedIsHeldAgainstItsSums(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	of := copies(2)
	must.Get(backup.Take(t.Context(), &source{of, 0}, backup.Folder{Dir: dir}, "v", time.Now(), none))(t)
	erasures, err := backup.ReadErasures(strings.NewReader(`{"type":"turnledger.turn.started.v1","data":{}}` + "\n\n" + `{"type":"turnledger.session.erased.v1","data":{"session_id":"s","erased_by":"ops"}}`))
	require.NoError(t, err)
	require.Len(t, erasures, 1)
	require.ErrorContains(t, must.Err(backup.ReadErasures(strings.NewReader("not JSON"))), "line 1")
	whole := must.Get(backup.Check(t.Context(), backup.Folder{Dir: dir}, none))(t)
	defer whole.Close()
	var packed bytes.Buffer
	require.NoError(t, whole.Pack(&packed, erasures))

	got := must.Get(backup.Unpack(bytes.NewReader(packed.Bytes())))(t)
	require.Equal(t, "ops", got.Erasures[0].Data.ErasedBy)
	require.Equal(t, parked, got.DeadLetters)
	_, err = got.Next(1)
	require.Error(t, err, "in their order")
	for k := range of {
		r := must.Get(got.Next(k))(t)
		raw := must.Get(io.ReadAll(r))(t)
		require.Equal(t, of[k], raw)
	}

	flipped := bytes.Clone(packed.Bytes())
	flipped[bytes.Index(flipped, of[1])+len(of[1])/2] ^= 1
	got = must.Get(backup.Unpack(bytes.NewReader(flipped)))(t)
	r := must.Get(got.Next(0))(t)
	must.Get(io.Copy(io.Discard, r))(t)
	r = must.Get(got.Next(1))(t)
	_, err = io.Copy(io.Discard, r)
	require.True(t, errors.Is(err, backup.ErrDamaged), err)
	require.ErrorContains(t, err, "TURNS-1.snapshot")
}

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
	resp := must.Get(http.Get(url))(t)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// A client that sends its body slowly holds nothing up: it is given up after a while. The request that shuts the door
// does not wait for itself.
func TestADoorIsShutOverAClientThatSendsSlowly(t *testing.T) {
	t.Parallel()
	a, s := behindADoor(t)
	slow := must.Get(net.Dial("tcp", strings.TrimPrefix(s.URL, "http://")))(t)
	defer func() { _ = slow.Close() }()
	must.Get(io.WriteString(slow, "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsome"))(t)
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
