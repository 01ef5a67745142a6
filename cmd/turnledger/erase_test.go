package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/recent/redis/redistest"
)

// disks are where a deployment keeps what it was told.
type disks struct {
	nats, redis, postgres string
	redisURL, postgresURL string
}

func newDisks(t *testing.T) (*disks, []string) {
	t.Helper()
	pg, redis := pgtest.Start(t), redistest.Start(t)
	d := &disks{
		nats: filepath.Join(dataDir(t), "d"), postgres: filepath.Dir(pg.LogFile()), redis: filepath.Dir(strings.TrimPrefix(redis.URL(), "unix://")),
		redisURL: redis.URL(), postgresURL: pg.URL(),
	}
	return d, []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(), "TURNLEDGER_REDIS_URL=" + redis.URL()}
}

func (d *disks) sql(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.postgresURL)
	require.NoError(t, err)
	return conn
}

// settle writes to the disks what the stores hold in memory, and cleans up as they do.
func (d *disks) settle(t *testing.T) {
	t.Helper()
	conn := d.sql(t)
	// What docs/erasure.md tells the operator.
	for _, statement := range []string{"vacuum (full, analyze) turnledger.questions, turnledger.answers", "checkpoint"} {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, conn.Close(t.Context()))
	c, err := rueidis.NewClient(rueidis.MustParseURL(d.redisURL))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Do(t.Context(), c.B().Save().Build()).Error())
}

// holding names the stores whose files hold a text. PostgreSQL's WAL is left out: it
// holds what was written until it is recycled.
func (d *disks) holding(t *testing.T, text string) (out []string) {
	t.Helper()
	for name, dir := range map[string]string{"nats": d.nats, "redis": d.redis, "postgres": d.postgres} {
		if len(natstest.Holding(t, text, []string{dir}, "pg_wal")) > 0 {
			out = append(out, name)
		}
	}
	return out
}

// receipt waits until an erasure is complete.
func (p *process) receipt(t testing.TB, id string) map[string]any {
	t.Helper()
	var out map[string]any
	require.Eventually(t, func() bool {
		out = p.must(t, http.StatusOK, http.MethodGet, "/v1/receipts/"+id, nil)
		return out["state"] == "complete"
	}, 30*time.Second, 20*time.Millisecond, "%v", out)
	return out
}

// tombstones gives a session's turns as JSON, but for what the answer alone has.
func (p *process) tombstones(t testing.TB, id string) string {
	t.Helper()
	raw, err := json.Marshal(p.must(t, http.StatusOK, http.MethodGet, session(id)+"/turns?status=all", nil)["turns"])
	require.NoError(t, err)
	return string(raw)
}

func TestNoByteOfAnErasedTextIsLeft(t *testing.T) {
	t.Parallel()
	d, env := newDisks(t)
	p := start(t, env, "serve", "--data-dir", d.nats)
	p.must(t, http.StatusOK, http.MethodPut, session("s")+"/identity", map[string]any{"identity_id": "alice"})
	p.turn(t, "s", "r0", "KEPT-0", "KEPT-0")
	turn := p.turn(t, "s", "r1", "SECRET-A one", "SECRET-A two")
	p.must(t, http.StatusOK, http.MethodPost, session("s")+"/turns/"+turn+"/correct", map[string]any{"request_id": "c1", "answer_neutral": "SECRET-A three"})
	p.turn(t, "t", "r1", "SECRET-B one", "SECRET-B two")
	p.must(t, http.StatusOK, http.MethodPut, session("t")+"/identity", map[string]any{"identity_id": "bob"})
	p.turn(t, "u", "r1", "SECRET-C one", "SECRET-C two")
	p.must(t, http.StatusOK, http.MethodPut, session("u")+"/identity", map[string]any{"identity_id": "carol"})
	p.caughtUp(t, "recent", "audit")
	d.settle(t)
	secrets := []string{"SECRET-A", "SECRET-B", "SECRET-C"}
	for _, secret := range secrets {
		require.ElementsMatch(t, []string{"nats", "redis", "postgres"}, d.holding(t, secret), "the search finds what there is")
	}

	gone := p.must(t, http.StatusOK, http.MethodPost, session("s")+"/turns/"+turn+"/redact", map[string]any{"reason": "asked to"})
	code, out, errs := said(t, "erase", "t", "--wait", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, "session t, complete")
	identity := p.must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/carol", map[string]any{"reason": "left", "redacted_by": "ops"})
	require.Len(t, p.receipt(t, identity["receipt_id"].(string))["places"], 3)
	p.receipt(t, url.PathEscape(gone["position"].(string)))
	p.caughtUp(t, "recent", "audit")
	d.settle(t)
	before := p.tombstones(t, "s")
	nothing := func() {
		t.Helper()
		for _, secret := range secrets {
			require.Empty(t, d.holding(t, secret))
			require.NotContains(t, p.log.String()+p.out.String(), secret)
		}
		require.NotEmpty(t, d.holding(t, "KEPT-0"))
		require.Equal(t, before, p.tombstones(t, "s"), "the tombstone is the same as before")
		require.Equal(t, "session_erased", p.must(t, http.StatusGone, http.MethodPost, session("u")+"/turns", map[string]any{"request_id": "r9", "question_neutral": "q"})["code"])
		code, out, errs := said(t, "projections", "verify", "--url", p.url)
		require.Equal(t, exitDone, code, out+errs)
		code, out, errs = said(t, "export", "--identity", "alice", "--url", p.url)
		require.Equal(t, exitDone, code, errs)
		require.Contains(t, out, "KEPT-0")
		require.NotContains(t, out, "SECRET")
	}
	nothing()
	for _, name := range []string{"recent", "audit"} {
		code, _, errs := said(t, "projections", "rebuild", name, "--yes", "--url", p.url)
		require.Equal(t, exitDone, code, errs)
	}
	p.stop(t)
	p = start(t, env, "serve", "--data-dir", d.nats)
	p.caughtUp(t, "recent", "audit")
	d.settle(t)
	nothing()
	again := p.must(t, http.StatusOK, http.MethodPost, session("s")+"/turns", map[string]any{"request_id": "r1", "question_neutral": "SECRET-A one"})
	require.Equal(t, "redacted", again["status"], "a late retry brings nothing back")
	nothing()
}

// kill -9 in the middle of erasures: the next process ends them.
func TestKilledWhileItErases(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	dir := dataDir(t)
	p := start(t, nil, "serve", "--data-dir", dir)
	for i := range 40 {
		p.turn(t, "s", fmt.Sprint("r", i), "SECRET question", "SECRET answer")
	}
	for i := range 5 {
		p.turn(t, "kept", fmt.Sprint("r", i), "KEPT question", "KEPT answer")
	}
	id := p.must(t, http.StatusAccepted, http.MethodDelete, session("s"), nil)["receipt_id"].(string)
	for range 4 {
		<-time.After(time.Duration(rng.IntN(300)) * time.Millisecond)
		p.kill(t)
		p = start(t, nil, "serve", "--data-dir", dir)
	}
	places := p.receipt(t, id)["places"].([]any)
	require.Equal(t, "log", places[0].(map[string]any)["place"])
	require.Empty(t, (&disks{nats: dir}).holding(t, "SECRET"))
	require.Len(t, p.context(t, "kept"), 10)
	require.Empty(t, p.context(t, "s"))
}

func TestErasureOverTheCommandLine(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	p.turn(t, "s", "r1", "question", "answer")
	for _, args := range [][]string{{"erase"}, {"erase", "s", "--identity", "alice"}} {
		code, _, errs := said(t, append(args, "--url", p.url)...)
		require.Equal(t, exitUsage, code, errs)
	}
	code, _, errs := said(t, "erase", "nobody", "--url", p.url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "session_not_found")
	code, _, errs = said(t, "erase", "--receipt", "0-0-x", "--url", p.url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "not_found")
	code, out, errs := said(t, "erase", "s", "--reason", "asked to", "--by", "ops", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	id := strings.Fields(out)[1]
	code, out, errs = said(t, "erase", "--receipt", id, "--wait", "--json", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	var r map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, "complete", r["state"])
	require.Equal(t, "s", r["session_id"])
	code, out, errs = said(t, "retention", "--dry-run", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	require.Equal(t, "would go: 0 anonymous sessions with 0 events, 0 turns of 0 linked sessions\n", out)
}

// A server that is restarted doesn't end the wait for an erasure.
func TestWhoWaitsForAnErasureOutlastsARestart(t *testing.T) {
	t.Parallel()
	asked := atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		state := "complete"
		switch n := asked.Add(1); {
		case n == 1:
			state = "running"
		case n < firstTries+3:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintf(w, `{"receipt_id":"0-1-a","kind":"session","session_id":"s","state":%q}`, state)
	}))
	t.Cleanup(server.Close)
	code, out, errs := said(t, "erase", "--receipt", "0-1-a", "--wait", "--url", server.URL)
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, "session s, complete")
}
