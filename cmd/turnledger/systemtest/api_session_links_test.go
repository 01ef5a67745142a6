package systemtest_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A caller who asks for a session of another identity is refused, and the attempt is recorded: the
// identity, the time, and the address as a hash, which is the same in every process, after a restart and
// after a rebuild. Neither a text nor the key is recorded.
func TestARefusedLinkIsKeptForTheSecurityAudit(t *testing.T) {
	t.Parallel()
	nats, pg, dir := stack.FreeAddress(t), pg.URL(t), stack.DataDir(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg, "TURNLEDGER_REDIS_URL="}
	first := func() *stack.Process {
		return stack.Start(t, append(stack.ServeNATS(nats), env...), "serve", "--data-dir", dir)
	}
	a := first()
	b := stack.Start(t, append(stack.JoinNATS(nats), env...), "serve", "--roles", "api,context")
	a.RecordTurn(t, "s", "r1", "KEPT text", "KEPT answer")
	a.LinkIdentity(t, "s", "alice")
	refused := func(p *stack.Process, identity string) {
		t.Helper()
		out := p.Must(t, http.StatusConflict, http.MethodPut, stack.SessionPath("s")+"/identity",
			map[string]any{"identity_id": identity})
		require.Equal(t, "session_linked_elsewhere", out["code"])
	}
	refused(a, "bob")
	refused(b, "carol")
	out := b.Must(t, http.StatusConflict, http.MethodPost, stack.SessionPath("s")+"/turns",
		map[string]any{"request_id": "r2", "question_neutral": "SECRET", "identity_id": "dave"})
	require.Equal(t, "session_linked_elsewhere", out["code"])
	b.Stop(t)
	a.Stop(t)
	a = first()
	refused(a, "erin")
	a.WaitCaughtUp(t, "audit")

	rows := func() (who, hashes []string) {
		conn, err := pgx.Connect(t.Context(), pg)
		require.NoError(t, err)
		defer func() { _ = conn.Close(t.Context()) }()
		found, err := conn.Query(t.Context(),
			`select identity_id, source_hash from turnledger.security_events
			where session_id = 's' and recorded_at > now() - interval '1 hour' order by seq`)
		require.NoError(t, err)
		for found.Next() {
			var identity, hash string
			require.NoError(t, found.Scan(&identity, &hash))
			who, hashes = append(who, identity), append(hashes, hash)
		}
		require.NoError(t, found.Err())
		return who, hashes
	}
	check := func() {
		t.Helper()
		who, hashes := rows()
		require.Equal(t, []string{"bob", "carol", "dave", "erin"}, who)
		require.Regexp(t, "^[0-9a-f]{16}$", hashes[0])
		for _, hash := range hashes {
			require.Equal(t, hashes[0], hash, "all came from one address")
		}
	}
	check()
	a.Done(t, "projections", "rebuild", "audit", "--yes")
	check()
	events := a.Done(t, "replay")
	require.Equal(t, 4, strings.Count(events, `"turnledger.session.link_refused.v1"`))
	require.NotContains(t, events, "SECRET")
	require.NotContains(t, events, "127.0.0.1")
	require.Empty(t, natstest.Holding(t, "SECRET", []string{filepath.Join(dir, "nats")}))
}

// While one process links a session, another begins turns in it, and a third one links it to the same user, too. The
// audit tables get every turn, in order.
func TestALinkAndStartsRaceFromSeveralProcesses(t *testing.T) {
	t.Parallel()
	nats := stack.FreeAddress(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(t)}
	ps := []*stack.Process{stack.Serve(t, append(stack.ServeNATS(nats), env...))}
	for range 2 {
		ps = append(ps, stack.Start(t, append(stack.JoinNATS(nats), env...), "serve", "--roles", "api,context"))
	}
	for round := range 4 {
		id, identity := fmt.Sprint("s", round), fmt.Sprint("user-", round)
		const before, during = 30, 20
		for n := range before {
			ps[n%3].RecordTurn(t, id, fmt.Sprint("r", n), "question", "answer")
		}
		var wg sync.WaitGroup
		call := func(p *stack.Process, want int, method, path string, body map[string]any) {
			wg.Go(func() {
				if status, out, err := p.Call(t.Context(), method, path, body); err != nil || status != want {
					t.Error(method, path, status, out, err)
				}
			})
		}
		for n := range during {
			body := map[string]any{"request_id": fmt.Sprint("d", n), "question_neutral": "question"}
			if n%4 == 0 {
				body["identity_id"] = identity // a login with the start
			}
			call(ps[n%3], http.StatusCreated, http.MethodPost, stack.SessionPath(id)+"/turns", body)
			if n == during/2 {
				call(ps[0], http.StatusOK, http.MethodPut, stack.SessionPath(id)+"/identity",
					map[string]any{"identity_id": identity})
				call(ps[1], http.StatusOK, http.MethodPut, stack.SessionPath(id)+"/identity",
					map[string]any{"identity_id": identity})
			}
		}
		wg.Wait()
		order := func(out map[string]any) (ids []string) {
			for _, x := range out["turns"].([]any) {
				ids = append(ids, x.(map[string]any)["turn_id"].(string))
			}
			return ids
		}
		want := order(ps[2].Get(t, stack.SessionPath(id)+"/turns?status=all&limit=1000"))
		require.Len(t, want, before+during)
		got := order(ps[0].Get(t, "/v1/identities/"+identity+"/turns?limit=1000"))
		require.Equal(t, want, got, "round %d", round)
	}
}
