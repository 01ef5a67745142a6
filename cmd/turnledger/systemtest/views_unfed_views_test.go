package systemtest_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A process that feeds no view reports the positions of the views in the stores as not_fed. It offers no rebuild of
// them and has no metrics of them. A store that does not answer is never shown as a view without lag.
func TestAProcessTellsOfTheViewsThatOthersFeed(t *testing.T) {
	t.Parallel()
	nats, pg, rd := stack.FreeAddress(t), pg.Start(t), redistest.Start(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(), "TURNLEDGER_REDIS_URL=" + rd.URL(),
		"TURNLEDGER_PARTITIONS=2"}
	feeds := stack.Serve(t, append(stack.ServeNATS(nats), env...))
	writes := stack.Start(t, append(stack.JoinNATS(nats), env...), "serve", "--roles", "api")
	feeds.RecordTurn(t, "s", "r1", "question", "answer")
	feeds.LinkIdentity(t, "s", "u")
	feeds.WaitCaughtUp(t, "recent", "audit")

	list := func() map[string][]map[string]any {
		out := map[string][]map[string]any{}
		for _, x := range writes.Get(t, "/v1/projections")["projections"].([]any) {
			one := x.(map[string]any)
			out[one["name"].(string)] = append(out[one["name"].(string)], one)
		}
		return out
	}
	for name, partitions := range list() {
		require.Len(t, partitions, 2, name)
		for _, one := range partitions {
			require.Equal(t, "not_fed", one["state"], one)
			require.Equal(t, one["head"], one["position"], one)
			require.EqualValues(t, 1, one["generation"], one)
			require.Equal(t, false, one["rebuildable"], one)
		}
	}
	require.Len(t, list(), 2)
	require.NotContains(t, writes.Metrics(t), "turnledger_projection_lag")
	refused := writes.Must(t, http.StatusConflict, http.MethodPost, "/v1/projections/audit/rebuild", nil)
	require.Equal(t, "projection_not_fed", refused["code"])
	require.Contains(t, refused["detail"], "--roles audit")

	db, err := pgx.Connect(t.Context(), pg.URL())
	require.NoError(t, err)
	_, err = db.Exec(t.Context(),
		"alter table turnledger.questions add constraint poison check (question_neutral <> 'refused')")
	require.NoError(t, errors.Join(err, db.Close(t.Context())))
	writes.RecordTurn(t, "s", "r2", "refused", "answer")
	feeds.WaitCaughtUp(t, "audit")
	letters := writes.Get(t, "/v1/deadletters")["deadletters"]
	require.Len(t, letters, 1)
	require.Equal(t, feeds.Get(t, "/v1/deadletters")["deadletters"], letters)
	require.NotContains(t, writes.Metrics(t), "turnledger_projection_dead_letters{")

	require.NoError(t, pg.Stop(t.Context()))
	hang.Until(t, func() bool {
		one := list()["audit"][0]
		return one["state"] == "unknown" && one["head"] == nil && one["lag_events"] == nil && one["last_error"] != nil
	})
	require.Equal(t, "not_fed", list()["recent"][0]["state"])
	// While PostgreSQL is away no process says that an erasure is complete.
	id := writes.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath("s"), nil)["receipt_id"].(string)
	var receipt map[string]any
	hang.Until(t, func() bool {
		receipt = writes.Get(t, "/v1/receipts/"+id)
		return receipt["places"].([]any)[0].(map[string]any)["state"] == "done"
	})
	require.Equal(t, "running", receipt["state"], receipt)

	_, out, _ := writes.Run(t, "projections", "list")
	require.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 1+2+2, "a row is a line: %s", out)
}
