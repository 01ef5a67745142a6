package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections/audit/localpg"
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
	code, out, errs = said(t, "projections", "rebuild", "recent", "--yes", "--json", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	require.JSONEq(t, `{"name":"recent","generation":3,"served":true}`, out)

	cancelled(t, p, pg)

	p.must(t, http.StatusNotFound, http.MethodPost, "/v1/projections/nobody/rebuild", nil)
	p.must(t, http.StatusNotFound, http.MethodDelete, "/v1/projections/nobody/rebuild", nil)
	p.must(t, http.StatusNotFound, http.MethodPost, "/v1/projections/nobody/verify", nil)
	p.must(t, http.StatusUnprocessableEntity, http.MethodPost, "/v1/projections/audit/verify?sample=x", nil)
	code, _, errs = said(t, "projections", "rebuild", "nobody", "--yes", "--url", p.url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "not_found")
}

// cancelled breaks a rebuild of the audit off, which leaves what is served, and begins another.
func cancelled(t *testing.T, p *process, pg *localpg.Server) {
	t.Helper()
	reader, err := pgx.Connect(t.Context(), pg.URL())
	require.NoError(t, err)
	read, err := reader.Begin(t.Context())
	require.NoError(t, err)
	_, err = read.Exec(t.Context(), "select from turnledger.projection_checkpoints") // the swap waits for it
	require.NoError(t, err)
	listed := func() string {
		_, out, _ := said(t, "projections", "list", "--url", p.url)
		return out
	}

	code, _, errs := said(t, "projections", "rebuild", "audit", "--cancel", "--url", p.url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "not_found: no rebuild of the projection runs in this process")
	code, _, errs = said(t, "projections", "rebuild", "audit", "--detach", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, listed(), "rebuilding")
	code, out, errs := said(t, "projections", "rebuild", "audit", "--cancel", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, "generation 4 of audit is given up; the view is served as it was")
	require.Contains(t, listed(), "the rebuild was cancelled")
	require.Regexp(t, `audit +0 .* live +3 `, listed())
	require.NoError(t, reader.Close(t.Context()))
	code, _, errs = said(t, "projections", "rebuild", "audit", "--yes", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
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

// kill -9 at any step of a rebuild, before, at and after the swap: the next start serves
// whole views, reads what it did, and leaves nothing behind; and a rebuild can be begun
// again.
func TestKilledInARebuild(t *testing.T) {
	t.Parallel()
	rounds := 3
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		rounds = 40
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 3))
	pg, redis := pgtest.Start(t), redistest.Start(t)
	dir := dataDir(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(), "TURNLEDGER_REDIS_URL=" + redis.URL()}
	p := start(t, env, "serve", "--data-dir", dir)
	file := madeConversations(t, rng, 0)
	code, _, errs := turnledger(t, p, "import", file)
	require.Equal(t, exitDone, code, errs)
	said := readConversations(t, []string{file})
	for _, c := range said {
		p.must(t, http.StatusOK, http.MethodPut, session(c.ID)+"/identity", map[string]any{"identity_id": "u"})
	}
	p.caughtUp(t, "recent", "audit")
	for round := range rounds {
		name := []string{"audit", "recent"}[round%2]
		part := rng.Float64() * 1.2
		require.Eventually(t, func() bool { // a store notices late that who rebuilt is gone
			status, _, err := p.call(t.Context(), http.MethodPost, "/v1/projections/"+name+"/rebuild", nil)
			return err == nil && status == http.StatusAccepted
		}, time.Minute, 100*time.Millisecond)
		p.rebuilding(t, name, part)
		p.kill(t)
		p = start(t, env, "serve", "--data-dir", dir)
		p.caughtUp(t, "recent", "audit")
		require.Len(t, p.audited(t, "u"), madeTurns, "seed %d round %d (%s at %.2f)", seed, round, name, part)
		c := said[rng.IntN(len(said))]
		require.Equal(t, c.Messages, p.context(t, c.ID), "seed %d round %d (%s at %.2f)", seed, round, name, part)
		code, out, errs := turnledger(t, p, "projections", "verify")
		require.Equal(t, exitDone, code, "seed %d round %d (%s at %.2f): %s%s", seed, round, name, part, out, errs)
	}
	for _, name := range []string{"audit", "recent"} {
		require.Eventually(t, func() bool {
			code, _, _ := turnledger(t, p, "projections", "rebuild", name, "--yes")
			return code == exitDone
		}, 2*time.Minute, 100*time.Millisecond)
	}
	code, out, errs := turnledger(t, p, "projections", "verify")
	require.Equal(t, exitDone, code, "seed %d: %s%s", seed, out, errs)
	conn, err := pgx.Connect(t.Context(), pg.URL())
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	var schemas int
	require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from pg_namespace where nspname like 'turnledger%'").Scan(&schemas))
	require.Equal(t, 1, schemas)
	t.Logf("seed %d: %d rounds", seed, rounds)
}

// rebuilding waits until a rebuild has come through a part of the log, or has ended.
func (p *process) rebuilding(t testing.TB, name string, part float64) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, out, err := p.call(t.Context(), http.MethodGet, "/v1/projections", nil)
		require.NoError(t, err)
		for _, x := range out["projections"].([]any) {
			s := x.(map[string]any)
			if s["name"] == name && s["state"] == "rebuilding" {
				return seqOf(t, s["position"]) >= part*seqOf(t, s["head"])
			}
		}
		return true
	}, time.Minute, time.Millisecond)
}

func seqOf(t testing.TB, position any) float64 {
	t.Helper()
	at, err := events.ParsePosition(position.(string))
	require.NoError(t, err)
	return float64(at.Seq)
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
				require.NotEqual(t, "0:0", s["position"], "what it holds of the other log")
				require.Nil(t, s["lag_events"], "a position in another log is not level with this one")
				failed++
			}
		}
		return failed == 2
	}, 30*time.Second, 50*time.Millisecond)
	ready := p.must(t, http.StatusOK, http.MethodGet, "/readyz", nil)["checks"].(map[string]any)
	for check, view := range map[string]string{"redis": "recent", "postgres": "audit"} {
		require.Contains(t, ready[check].(map[string]any)["reason"], "turnledger projections rebuild "+view, "the store is not to blame")
	}
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
