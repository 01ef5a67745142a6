package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/recent/redis/redistest"
)

// exchange is what a context must show: the user's and the assistant's words.
func exchange(n int) (out []any) {
	for i := range n {
		out = append(out,
			map[string]any{"role": "user", "content": fmt.Sprint("question ", i)},
			map[string]any{"role": "assistant", "content": fmt.Sprint("answer ", i)})
	}
	return out
}

// say records turn i of a session and finds it in the next context at once.
func (p *process) say(t testing.TB, id string, i int) {
	t.Helper()
	p.turn(t, id, fmt.Sprint("r", i), fmt.Sprint("question ", i), fmt.Sprint("answer ", i))
	require.Equal(t, exchange(i+1), p.context(t, id))
}

// caughtUp waits until the named projections are at the log's head.
func (p *process) caughtUp(t testing.TB, names ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		status, out, err := p.call(t.Context(), http.MethodGet, "/v1/projections", nil)
		if err != nil || status != http.StatusOK {
			return false
		}
		ready := map[string]bool{}
		for _, x := range out["projections"].([]any) {
			s := x.(map[string]any)
			ready[s["name"].(string)] = s["position"] == s["head"] && s["state"] == "live"
		}
		for _, n := range names {
			if !ready[n] {
				return false
			}
		}
		return true
	}, 30*time.Second, 20*time.Millisecond, "%v do not catch up: %s", names, p.log)
}

// audited gives the questions of an identity in the audit tables; while PostgreSQL is
// on its way back the answer is 503.
func (p *process) audited(t testing.TB, identity string) (out []string) {
	t.Helper()
	var page map[string]any
	require.Eventually(t, func() bool {
		status, answer, err := p.call(t.Context(), http.MethodGet, "/v1/identities/"+identity+"/turns?limit=1000", nil)
		page = answer
		return err == nil && status == http.StatusOK
	}, 30*time.Second, 20*time.Millisecond)
	for _, x := range page["turns"].([]any) {
		out = append(out, x.(map[string]any)["question_neutral"].(string))
	}
	return out
}

func questions(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("question ", i))
	}
	return out
}

func TestWithRedisStoppedTheNextContextIsRight(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := start(t, []string{"TURNLEDGER_REDIS_URL=" + redis.URL()}, "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent")
	p.say(t, "s", 0)
	p.caughtUp(t, "recent")
	redis.Stop()
	p.say(t, "s", 1)
	p.say(t, "s", 2)
	redis.Restart(redistest.Empty)
	p.say(t, "s", 3)
	p.caughtUp(t, "recent")
	require.Equal(t, exchange(4), p.context(t, "s"))
}

func TestWithPostgresStoppedTheNextContextIsRight(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t)
	p := start(t, []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL()}, "serve", "--data-dir", dataDir(t))
	p.must(t, http.StatusOK, http.MethodPut, session("s")+"/identity", map[string]any{"identity_id": "u"})
	p.say(t, "s", 0)
	p.caughtUp(t, "audit")
	require.Equal(t, questions(1), p.audited(t, "u"))
	out := p.must(t, http.StatusUnprocessableEntity, http.MethodGet, "/v1/identities/u/turns?cursor=none", nil)
	require.Equal(t, "invalid_argument", out["code"])
	require.NoError(t, pg.Stop(t.Context()))
	p.say(t, "s", 1)
	out = p.must(t, http.StatusServiceUnavailable, http.MethodGet, "/v1/identities/u/turns", nil)
	require.Equal(t, "audit_unavailable", out["code"])
	require.NoError(t, pg.Restart(t.Context()))
	p.caughtUp(t, "audit")
	require.Equal(t, questions(2), p.audited(t, "u"))
}

// The projectors are a process of their own here, and are killed.
func TestWithTheProjectorsStoppedTheNextContextIsRight(t *testing.T) {
	t.Parallel()
	redis, pg := redistest.Start(t), pgtest.Start(t)
	nats := freeAddress(t)
	views := []string{"TURNLEDGER_REDIS_URL=" + redis.URL(), "TURNLEDGER_POSTGRES_URL=" + pg.URL()}
	api := start(t, append(views, "TURNLEDGER_NATS_LISTEN="+nats, "TURNLEDGER_SYNC=always"), "serve", "--data-dir", dataDir(t), "--roles", "api,context")
	outside := append(views, "TURNLEDGER_NATS_URL=nats://"+nats, "TURNLEDGER_NATS_LISTEN=")
	projectors := start(t, outside, "serve", "--roles", "recent,audit")
	api.must(t, http.StatusOK, http.MethodPut, session("s")+"/identity", map[string]any{"identity_id": "u"})
	api.say(t, "s", 0)
	projectors.caughtUp(t, "recent", "audit")
	projectors.kill(t)
	api.say(t, "s", 1)
	api.say(t, "s", 2)
	projectors = start(t, outside, "serve", "--roles", "recent,audit")
	projectors.caughtUp(t, "recent", "audit")
	require.Equal(t, exchange(3), api.context(t, "s"))
	require.Equal(t, questions(3), api.audited(t, "u"))
}

// A Redis that comes back empty is filled again, also when nobody writes.
func TestARedisThatWasEmptiedIsFilledAgain(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := start(t, []string{"TURNLEDGER_REDIS_URL=" + redis.URL()}, "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent")
	p.say(t, "s", 0)
	p.caughtUp(t, "recent")
	source := func() any {
		return p.must(t, http.StatusOK, http.MethodPost, session("s")+"/context", map[string]any{"message": "next"})["source"]
	}
	require.Equal(t, "view", source())
	redis.Stop()
	redis.Restart(redistest.Empty)
	require.Equal(t, "log", source())
	require.Eventually(t, func() bool { return source() == "view" }, 30*time.Second, 50*time.Millisecond)
	require.Equal(t, exchange(1), p.context(t, "s"))
}

// dev looks after its own PostgreSQL.
func TestDevStartsItsPostgresAgain(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	p := start(t, nil, "dev", "--data-dir", dir)
	p.must(t, http.StatusOK, http.MethodPut, session("s")+"/identity", map[string]any{"identity_id": "u"})
	p.say(t, "s", 0)
	p.caughtUp(t, "audit")
	raw, err := os.ReadFile(filepath.Join(dir, "postgres", "cluster", "postmaster.pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.Fields(string(raw))[0])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	p.say(t, "s", 1)
	p.caughtUp(t, "audit")
	require.Equal(t, questions(2), p.audited(t, "u"))
	p.says(t, "PostgreSQL has ended and is started again")
}
