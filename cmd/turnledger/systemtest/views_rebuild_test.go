package systemtest_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

//conformance:i80
func TestRebuildAndVerifyOverTheCommandLine(t *testing.T) {
	t.Parallel()
	pg, redis := pg.URL(t), redistest.Start(t)
	p := stack.Serve(t, []string{"TURNLEDGER_POSTGRES_URL=" + pg, "TURNLEDGER_REDIS_URL=" + redis.URL()})
	for i := range 3 {
		s := fmt.Sprint("s", i)
		p.LinkIdentity(t, s, "u")
		p.RecordTurn(t, s, "r0", "question 0", "answer 0")
	}
	p.WaitCaughtUp(t, "recent", "audit")
	for _, name := range []string{"recent", "audit"} {
		out := p.Done(t, "projections", "rebuild", name, "--yes")
		require.Contains(t, out, name+" is served from generation 2, after ")
	}
	require.Equal(t, stack.Exchanges(1), p.Context(t, "s0"))
	out := p.Done(t, "projections", "verify")
	require.Equal(t, "recent: 3 sessions looked at, 0 differences\naudit: 3 sessions looked at, 0 differences\n", out)
	out = p.Done(t, "projections", "list")
	require.Contains(t, out, "GENERATION")

	conn, err := pgx.Connect(t.Context(), pg)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(),
		"update turnledger.answers set answer_neutral = 'SECRET' "+
			"where final_position = (select min(final_position) from turnledger.answers)")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	code, out, errs := p.Run(t, "projections", "verify", "audit")
	require.Equal(t, stack.ExitFailed, code)
	require.Regexp(t, `audit  session s0  answers  view [0-9a-f]{16}  log [0-9a-f]{16}\n`+
		`audit: 3 sessions looked at, 1 differences`, out)
	require.Contains(t, errs, "projections rebuild")
	code, out, _ = p.Run(t, "projections", "verify", "audit", "--json")
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, out, `"result":{"name":"audit","sessions":3,"differences":1}`)
	require.NotContains(t, out+errs, "SECRET")
	out = p.Done(t, "projections", "rebuild", "audit", "--detach")
	require.Contains(t, out, "generation 3 of audit is being filled")
	hang.Until(t, func() bool {
		code, _, _ := p.Run(t, "projections", "verify", "audit", "--sample", "3")
		return code == stack.ExitDone
	})
	out = p.Done(t, "projections", "rebuild", "recent", "--yes", "--json")
	require.JSONEq(t, `{"name":"recent","generation":3,"served":true}`, out)

	cancelRebuild(t, p, pg)

	p.Must(t, http.StatusNotFound, http.MethodPost, "/v1/projections/nobody/rebuild", nil)
	p.Must(t, http.StatusNotFound, http.MethodDelete, "/v1/projections/nobody/rebuild", nil)
	p.Must(t, http.StatusNotFound, http.MethodPost, "/v1/projections/nobody/verify", nil)
	p.Must(t, http.StatusUnprocessableEntity, http.MethodPost, "/v1/projections/audit/verify?sample=x", nil)
	errs = p.Fails(t, "projections", "rebuild", "nobody", "--yes")
	require.Contains(t, errs, "not_found")
}

// cancelRebuild cancels a rebuild of the audit: the served tables stay, and another rebuild can begin.
func cancelRebuild(t *testing.T, p *stack.Process, pg string) {
	t.Helper()
	reader, err := pgx.Connect(t.Context(), pg)
	require.NoError(t, err)
	read, err := reader.Begin(t.Context())
	require.NoError(t, err)
	_, err = read.Exec(t.Context(), "select from turnledger.projection_checkpoints") // the swap waits for it
	require.NoError(t, err)
	listed := func() string {
		_, out, _ := p.Run(t, "projections", "list")
		return out
	}

	errs := p.Fails(t, "projections", "rebuild", "audit", "--cancel")
	require.Contains(t, errs, "not_found: no rebuild of the projection runs in this process")
	p.Done(t, "projections", "rebuild", "audit", "--detach")
	require.Contains(t, listed(), "rebuilding")
	out := p.Done(t, "projections", "rebuild", "audit", "--cancel")
	require.Contains(t, out, "generation 4 of audit is given up; the view is served as it was")
	require.Contains(t, listed(), "the rebuild was cancelled")
	require.Regexp(t, `audit +0 .* live +3 `, listed())
	require.NoError(t, reader.Close(t.Context()))
	p.Done(t, "projections", "rebuild", "audit", "--yes")
}

// The process is killed (-9) at any step of a rebuild: before, at and after the swap. The next start serves whole
// views, leaves nothing of the broken-off generation behind, and can rebuild again.
func TestKilledInARebuild(t *testing.T) {
	t.Parallel()
	rounds := 3
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		rounds = 40
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 3))
	pg, redis := pg.URL(t), redistest.Start(t)
	dir := stack.DataDir(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg, "TURNLEDGER_REDIS_URL=" + redis.URL()}
	p := stack.Start(t, env, "serve", "--data-dir", dir)
	file := stack.WriteConversations(t, rng, 0)
	p.Done(t, "import", file)
	said := stack.ReadConversations(t, []string{file})
	for _, c := range said {
		p.LinkIdentity(t, c.ID, "u")
	}
	p.WaitCaughtUp(t, "recent", "audit")
	for round := range rounds {
		name := []string{"audit", "recent"}[round%2]
		part := rng.Float64() * 1.2
		hang.Until(t, func() bool { // a store notices late that who rebuilt is gone
			status, _, err := p.Call(t.Context(), http.MethodPost, "/v1/projections/"+name+"/rebuild", nil)
			return err == nil && status == http.StatusAccepted
		})
		waitRebuild(t, p, name, part)
		p.Kill(t)
		p = stack.Start(t, env, "serve", "--data-dir", dir)
		p.WaitCaughtUp(t, "recent", "audit")
		require.Len(t, p.AuditedQuestions(t, "u"), stack.WrittenTurns, "seed %d round %d (%s at %.2f)", seed, round,
			name, part)
		c := said[rng.IntN(len(said))]
		require.Equal(t, c.Messages, p.Context(t, c.ID), "seed %d round %d (%s at %.2f)", seed, round, name, part)
		code, out, errs := p.Run(t, "projections", "verify")
		require.Equal(t, stack.ExitDone, code, "seed %d round %d (%s at %.2f): %s%s", seed, round, name, part, out,
			errs)
	}
	for _, name := range []string{"audit", "recent"} {
		hang.Until(t, func() bool {
			code, _, _ := p.Run(t, "projections", "rebuild", name, "--yes")
			return code == stack.ExitDone
		})
	}
	p.Done(t, "projections", "verify")
	conn, err := pgx.Connect(t.Context(), pg)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	var schemas int
	require.NoError(t, conn.QueryRow(t.Context(),
		"select count(*) from pg_namespace where nspname like 'turnledger%'").Scan(&schemas))
	require.Equal(t, 1, schemas)
	t.Logf("seed %d: %d rounds", seed, rounds)
}

// waitRebuild waits until a rebuild has come through a part of the log, or has ended.
func waitRebuild(t testing.TB, p *stack.Process, name string, part float64) {
	t.Helper()
	hang.Until(t, func() bool {
		_, out, err := p.Call(t.Context(), http.MethodGet, "/v1/projections", nil)
		require.NoError(t, err)
		for _, x := range out["projections"].([]any) {
			s := x.(map[string]any)
			if s["name"] == name && s["state"] == "rebuilding" {
				return seqOf(t, s["position"]) >= part*seqOf(t, s["head"])
			}
		}
		return true
	})
}

func seqOf(t testing.TB, position any) float64 {
	t.Helper()
	at, err := events.ParsePosition(position.(string))
	require.NoError(t, err)
	return float64(at.Seq)
}
