package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/recent/redis/redistest"
)

func TestRebuildAndVerifyOverTheCommandLine(t *testing.T) {
	t.Parallel()
	pg, redis := pgtest.Start(t), redistest.Start(t)
	p := start(t, []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(), "TURNLEDGER_REDIS_URL=" + redis.URL()}, "serve", "--data-dir", dataDir(t))
	for i := range 3 {
		s := fmt.Sprint("s", i)
		p.must(t, http.StatusOK, http.MethodPut, session(s)+"/identity", map[string]any{"identity_id": "u"})
		p.turn(t, s, "r0", "question 0", "answer 0")
	}
	p.caughtUp(t, "recent", "audit")
	for _, name := range []string{"recent", "audit"} {
		code, out, errs := said(t, "projections", "rebuild", name, "--yes", "--url", p.url)
		require.Equal(t, exitDone, code, errs)
		require.Contains(t, out, name+" is served from generation 2, after ")
	}
	require.Equal(t, exchange(1), p.context(t, "s0"))
	code, out, errs := said(t, "projections", "verify", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	require.Equal(t, "recent: 3 sessions looked at, 0 differences\naudit: 3 sessions looked at, 0 differences\n", out)
	code, out, errs = said(t, "projections", "list", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, "GENERATION")

	conn, err := pgx.Connect(t.Context(), pg.URL())
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "update turnledger.answers set answer_neutral = 'SECRET' where final_position = (select min(final_position) from turnledger.answers)")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	code, out, errs = said(t, "projections", "verify", "audit", "--url", p.url)
	require.Equal(t, exitFailed, code)
	require.Regexp(t, `audit  session s0  answers  view [0-9a-f]{16}  log [0-9a-f]{16}\naudit: 3 sessions looked at, 1 differences`, out)
	require.Contains(t, errs, "projections rebuild")
	code, out, _ = said(t, "projections", "verify", "audit", "--json", "--url", p.url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, `"result":{"name":"audit","sessions":3,"differences":1}`)
	require.NotContains(t, out+errs, "SECRET")
	code, out, errs = said(t, "projections", "rebuild", "audit", "--detach", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, "generation 3 of audit is being filled")
	require.Eventually(t, func() bool {
		code, _, _ := said(t, "projections", "verify", "audit", "--sample", "3", "--url", p.url)
		return code == exitDone
	}, 30*time.Second, 100*time.Millisecond)

	p.must(t, http.StatusNotFound, http.MethodPost, "/v1/projections/nobody/rebuild", nil)
	p.must(t, http.StatusNotFound, http.MethodPost, "/v1/projections/nobody/verify", nil)
	p.must(t, http.StatusUnprocessableEntity, http.MethodPost, "/v1/projections/audit/verify?sample=x", nil)
	code, _, errs = said(t, "projections", "rebuild", "nobody", "--yes", "--url", p.url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "not_found")
}

// A process that does not feed a view says who does, and one of several that feed it
// may rebuild it at a time.
func TestRebuildWhereNobodyFeeds(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	out := p.must(t, http.StatusConflict, http.MethodPost, "/v1/projections/audit/rebuild", nil)
	require.Equal(t, "projection_not_fed", out["code"])
	require.Contains(t, out["detail"], "--roles audit")
}

// kill -9 in the middle of a rebuild: the next start serves what was served, and a
// rebuild can be begun again.
func TestKilledInARebuild(t *testing.T) {
	t.Parallel()
	pg, redis := pgtest.Start(t), redistest.Start(t)
	dir := dataDir(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(), "TURNLEDGER_REDIS_URL=" + redis.URL()}
	p := start(t, env, "serve", "--data-dir", dir)
	for i := range 40 {
		s := fmt.Sprint("s", i)
		p.must(t, http.StatusOK, http.MethodPut, session(s)+"/identity", map[string]any{"identity_id": "u"})
		p.turn(t, s, "r0", "question 0", "answer 0")
	}
	p.caughtUp(t, "recent", "audit")
	for range 3 {
		p.must(t, http.StatusAccepted, http.MethodPost, "/v1/projections/audit/rebuild", nil)
		p.kill(t)
		p = start(t, env, "serve", "--data-dir", dir)
		require.Len(t, p.audited(t, "u"), 40)
		p.caughtUp(t, "recent", "audit")
		require.Eventually(t, func() bool { // the server notices late that the connection is gone
			code, _, _ := said(t, "projections", "rebuild", "audit", "--yes", "--url", p.url)
			return code == exitDone
		}, 30*time.Second, 100*time.Millisecond)
		code, out, errs := said(t, "projections", "verify", "--url", p.url)
		require.Equal(t, exitDone, code, out+errs)
	}
	conn, err := pgx.Connect(t.Context(), pg.URL())
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	var schemas int
	require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from pg_namespace where nspname like 'turnledger%'").Scan(&schemas))
	require.Equal(t, 1, schemas)
}

// The log's folder was lost: the views in Redis and PostgreSQL follow a stream that is
// no more. They say so and are read by nobody, and the process lives to rebuild them.
func TestViewsOfAnotherStreamAreRebuilt(t *testing.T) {
	t.Parallel()
	pg, redis := pgtest.Start(t), redistest.Start(t)
	dir := dataDir(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(), "TURNLEDGER_REDIS_URL=" + redis.URL()}
	p := start(t, env, "serve", "--data-dir", dir)
	p.must(t, http.StatusOK, http.MethodPut, session("old")+"/identity", map[string]any{"identity_id": "u"})
	p.turn(t, "old", "r0", "question 0", "answer 0")
	p.caughtUp(t, "recent", "audit")
	p.stop(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "nats")))

	p = start(t, env, "serve", "--data-dir", dir)
	require.Eventually(t, func() bool {
		_, out, err := p.call(t.Context(), http.MethodGet, "/v1/projections", nil)
		require.NoError(t, err)
		failed := 0
		for _, x := range out["projections"].([]any) {
			s := x.(map[string]any)
			if s["state"] == "failed" {
				require.Contains(t, s["last_error"], "turnledger projections rebuild")
				failed++
			}
		}
		return failed == 2
	}, 30*time.Second, 50*time.Millisecond)
	require.Empty(t, p.context(t, "old"), "the view of another log is not history")
	p.must(t, http.StatusServiceUnavailable, http.MethodGet, "/v1/identities/u/turns", nil)
	p.must(t, http.StatusOK, http.MethodPut, session("new")+"/identity", map[string]any{"identity_id": "u"})
	p.turn(t, "new", "r0", "question 0", "answer 0")
	require.Equal(t, exchange(1), p.context(t, "new"))
	for _, name := range []string{"recent", "audit"} {
		code, _, errs := said(t, "projections", "rebuild", name, "--yes", "--url", p.url)
		require.Equal(t, exitDone, code, errs)
	}
	p.caughtUp(t, "recent", "audit")
	require.Equal(t, questions(1), p.audited(t, "u"))
	code, out, errs := said(t, "projections", "verify", "--url", p.url)
	require.Equal(t, exitDone, code, out+errs)
}
