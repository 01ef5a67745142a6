package systemtest_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A process that is killed while the server writes can leave half a record at the end of the last block; that record
// was never acknowledged. The next start cuts it off. Everything that was acknowledged is there, in order, and
// writes go on at the same place.
func TestATornLastBlockLosesNothing(t *testing.T) {
	t.Parallel()
	seed := stack.Seed(t)
	rng := rand.New(rand.NewPCG(seed, seed))
	dir := stack.DataDir(t)
	said := 0
	for round := range 3 {
		p := stack.Start(t, nil, "serve", "--data-dir", dir, "--roles", "api,context")
		if round > 0 {
			require.Equal(t, stack.Exchanges(said), p.Context(t, "s"), "round %d", round)
		}
		for range 1 + rng.IntN(3) {
			p.RecordExchange(t, "s", said)
			said++
		}
		p.Kill(t)
		blocks := must.Get(filepath.Glob(filepath.Join(dir, "nats", "jetstream", "*", "streams", "TURNS-0", "msgs",
			"*.blk")))(t)
		require.NotEmpty(t, blocks)
		slices.SortFunc(blocks, func(a, b string) int { return len(a) - len(b) })
		raw := must.Get(os.ReadFile(blocks[len(blocks)-1]))(t)
		require.NotEmpty(t, raw)
		// A whole record would be an event, though one that was never acknowledged.
		torn := raw[:1+rng.IntN(min(len(raw), 60))]
		if rng.IntN(2) == 0 {
			torn = []byte(fmt.Sprintf("%0*d", 1+rng.IntN(400), 0))
		}
		f := must.Get(os.OpenFile(blocks[len(blocks)-1], os.O_APPEND|os.O_WRONLY, 0))(t)
		must.Get(f.Write(torn))(t)
		require.NoError(t, f.Close())
	}
	p := stack.Start(t, nil, "serve", "--data-dir", dir, "--roles", "api,context")
	require.Equal(t, stack.Exchanges(said), p.Context(t, "s"))
	p.RecordExchange(t, "s", said)
	p.Stop(t)
}

// A second process on a data directory does not start, and says what to do. The first one goes on; once it was killed,
// another one can start.
func TestTwoProcessesOnOneDataDirectory(t *testing.T) {
	t.Parallel()
	dir := stack.DataDir(t)
	first := stack.Start(t, nil, "serve", "--data-dir", dir)
	first.RecordExchange(t, "s", 0)
	for _, verb := range []string{"serve", "dev"} {
		second := stack.Launch(t, nil, verb, "--data-dir", dir)
		require.Error(t, second.Cmd.Wait(), verb)
		require.Equal(t, stack.ExitFailed, second.Cmd.ProcessState.ExitCode(), "%s: %s", verb, second.Log)
		require.Contains(t, second.Log.String(), "in use by another process", verb)
		require.Contains(t, second.Log.String(), "TURNLEDGER_DATA_DIR", verb)
	}
	first.RecordExchange(t, "s", 1)
	first.Kill(t)
	third := stack.Start(t, nil, "serve", "--data-dir", dir)
	require.Equal(t, stack.Exchanges(2), third.Context(t, "s"))
}

// Redis stops and comes back empty, and then PostgreSQL stops.
func TestWithAStoreStoppedTheNextContextIsRight(t *testing.T) {
	t.Parallel()
	redis, pg := redistest.Start(t), pg.Start(t)
	p := stack.Serve(t, []string{"TURNLEDGER_REDIS_URL=" + redis.URL(), "TURNLEDGER_POSTGRES_URL=" + pg.URL()})
	p.LinkIdentity(t, "s", "u")
	p.RecordExchange(t, "s", 0)
	p.WaitCaughtUp(t, "recent", "audit")
	require.Equal(t, stack.Questions(1), p.AuditedQuestions(t, "u"))
	require.Equal(t, "ok", p.Get(t, "/readyz")["status"])
	redis.Stop()
	hang.Until(t, func() bool { return p.Get(t, "/readyz")["status"] == "degraded" }, "it stays ready, and tells")
	check := p.Get(t, "/readyz")["checks"].(map[string]any)["redis"].(map[string]any)
	require.Equal(t, "Redis does not answer, or may not be used", check["reason"], "and never its address")
	require.Contains(t, p.Metrics(t), `turnledger_dependency_up{dependency="redis"} 0`)
	require.Contains(t, p.Metrics(t), `turnledger_dependency_up{dependency="log"} 1`)
	p.RecordExchange(t, "s", 1)
	p.RecordExchange(t, "s", 2)
	redis.Restart(redistest.Empty)
	p.RecordExchange(t, "s", 3)
	p.WaitCaughtUp(t, "recent", "audit")
	require.Equal(t, stack.Exchanges(4), p.Context(t, "s"))

	require.NoError(t, pg.Stop(t.Context()))
	p.RecordExchange(t, "s", 4)
	out := p.Must(t, http.StatusServiceUnavailable, http.MethodGet, "/v1/identities/u/turns", nil)
	require.Equal(t, "audit_unavailable", out["code"])
	require.NoError(t, pg.Restart(t.Context()))
	p.WaitCaughtUp(t, "audit")
	require.Equal(t, stack.Questions(5), p.AuditedQuestions(t, "u"))
}

// The projectors are a process of their own here, and are killed. The other process tells of their views, and offers no
// rebuild of them.
func TestWithTheProjectorsStoppedTheNextContextIsRight(t *testing.T) {
	t.Parallel()
	redis, pg := redistest.Start(t), pg.URL(t)
	nats := stack.FreeAddress(t)
	views := []string{"TURNLEDGER_REDIS_URL=" + redis.URL(), "TURNLEDGER_POSTGRES_URL=" + pg}
	api := stack.Serve(t, append(views, stack.ServeNATS(nats)...), "--roles", "api,context")
	outside := append(views, stack.JoinNATS(nats)...)
	projectors := stack.Start(t, outside, "serve", "--roles", "recent,audit")
	api.LinkIdentity(t, "s", "u")
	api.RecordExchange(t, "s", 0)
	projectors.WaitCaughtUp(t, "recent", "audit")
	require.Equal(t, []string{"audit", "recent"}, viewsIn(t, api, "not_fed"))
	refused := api.Must(t, http.StatusConflict, http.MethodPost, "/v1/projections/audit/rebuild", nil)
	require.Equal(t, "projection_not_fed", refused["code"])
	projectors.Kill(t)
	api.RecordExchange(t, "s", 1)
	api.RecordExchange(t, "s", 2)
	projectors = stack.Start(t, outside, "serve", "--roles", "recent,audit")
	projectors.WaitCaughtUp(t, "recent", "audit")
	require.Equal(t, stack.Exchanges(3), api.Context(t, "s"))
	require.Equal(t, stack.Questions(3), api.AuditedQuestions(t, "u"))
}

// gate lets clients into a NATS server while it is open, and counts those that it turned away.
type refuser struct {
	closed  atomic.Bool
	refused atomic.Int64
}

// Check implements natsserver.Authentication.
func (d *refuser) Check(natsserver.ClientAuthentication) bool {
	if d.closed.Load() {
		d.refused.Add(1)
	}
	return !d.closed.Load()
}

// NATS refuses the process's credentials for a while, as after a wrong change of the password, and is then mended. The
// process, which was turned away many times and logged it, comes back without a restart.
func TestAProcessThatNATSRefusedComesBack(t *testing.T) {
	t.Parallel()
	d := &refuser{}
	ns := stack.StartNATS(t, natsserver.Options{CustomClientAuthentication: d})
	p := stack.Start(t, []string{"TURNLEDGER_NATS_LISTEN=",
		"TURNLEDGER_NATS_URL=nats://u:SECRET@" + ns.Addr().String()}, "serve", "--roles", "api,context")
	p.RecordExchange(t, "s", 0)

	d.closed.Store(true)
	clients := must.Get(ns.Connz(nil))(t)
	require.NotEmpty(t, clients.Conns)
	for _, c := range clients.Conns {
		_ = ns.DisconnectClientByID(c.Cid) // it may be gone by itself
	}
	hang.Until(t, func() bool { return d.refused.Load() >= 5 }, "%s", p.Log)
	hang.Until(t, func() bool {
		status, out, err := p.Call(t.Context(), http.MethodGet, "/readyz", nil)
		if err != nil || status != http.StatusServiceUnavailable {
			return false
		}
		reason, _ := out["checks"].(map[string]any)["log"].(map[string]any)["reason"].(string)
		return strings.Contains(reason, "NATS does not let this process in")
	}, "%s", p.Log)
	d.closed.Store(false)
	p.WaitReady(t)
	p.RecordExchange(t, "s", 1)
	p.Stop(t)
	require.NotContains(t, p.Log.String(), "SECRET")
}
