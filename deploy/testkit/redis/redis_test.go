package redis

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

func client(t *testing.T, s *Server) rueidis.Client {
	t.Helper()
	opt, err := rueidis.ParseURL(s.URL())
	require.NoError(t, err)
	// What it sends again after a broken connection is reused while the former connection's writer may still read it.
	opt.DisableRetry = true
	c, err := rueidis.NewClient(opt)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestServerIsPrivateAndNeverEvicts(t *testing.T) {
	t.Parallel()
	one, other := Start(t), Start(t)
	a, b := client(t, one), client(t, other)
	require.NoError(t, a.Do(t.Context(), a.B().Set().Key("k").Value("v").Build()).Error())
	require.True(t, rueidis.IsRedisNil(b.Do(t.Context(), b.B().Get().Key("k").Build()).Error()))
	require.Equal(t, "noeviction", policy(t, a))

	one.Config("allkeys-lru")
	require.Equal(t, "allkeys-lru", policy(t, a))
	info, err := os.Stat(one.dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func policy(t *testing.T, c rueidis.Client) string {
	t.Helper()
	m, err := c.Do(t.Context(), c.B().ConfigGet().Parameter("maxmemory-policy").Build()).AsStrMap()
	require.NoError(t, err)
	return m["maxmemory-policy"]
}

func TestRestartAtTheSameAddress(t *testing.T) {
	t.Parallel()
	s := Start(t)
	url := s.URL()
	c := client(t, s)
	// A question may meet a connection that broke with the server of before.
	until := func(done func() error) {
		require.EventuallyWithT(t, func(e *assert.CollectT) { assert.NoError(e, done()) }, hang.Limit,
			10*time.Millisecond)
	}
	set := func() error { return c.Do(t.Context(), c.B().Set().Key("k").Value("v").Build()).Error() }
	get := func() error { return c.Do(t.Context(), c.B().Get().Key("k").Build()).Error() }
	miss := func() error {
		err := get()
		if err == nil {
			return errors.New("it is there")
		}
		if rueidis.IsRedisNil(err) {
			return nil
		}
		return err
	}

	until(set)
	s.Stop()
	s.Stop()
	_, err := s.command("PING")
	require.Error(t, err, "nothing answers")
	s.Restart(Kept)
	require.Equal(t, url, s.URL())
	until(get)

	s.Restart(Empty)
	until(miss)

	until(set)
	s.Kill()
	s.Restart(Kept)
	until(miss) // a crash loses what was not saved
}

func TestPausedServerHangs(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Pause()
	answered := make(chan error, 1)
	go func() {
		_, err := s.command("PING")
		answered <- err
	}()
	select {
	case err := <-answered:
		require.Fail(t, "a paused server answered", err)
	case <-time.After(100 * time.Millisecond):
	}
	s.Resume()
	require.NoError(t, <-answered)
	s.Pause() // and the end of the test gets by
}

func TestMissingRedisFailsTheTest(t *testing.T) {
	t.Parallel()
	rec := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		start(rec, func(string) (string, error) { return "", errors.New("none") })
	}()
	<-done
	require.Contains(t, rec.fatal, "install")
}

// recorder keeps what a test would have died of.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Fatal(args ...any) { r.fatal = fmt.Sprint(args...); runtime.Goexit() }
func (r *recorder) Helper()           {}
