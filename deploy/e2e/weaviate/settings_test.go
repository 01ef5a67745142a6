package weaviate_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
)

// An index of anonymous sessions, without texts, and of so many characters. A branch's shared turns are in it once, a
// reset takes nothing out of it, a correction does; and what was just written is found by who names its position.
func TestTheSettingsOfTheIndex(t *testing.T) {
	t.Parallel()
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	p := stack.Serve(t, environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg.URL(t), "TURNLEDGER_INDEX_ANONYMOUS=true",
		"TURNLEDGER_INDEX_TEXT=false", "TURNLEDGER_EMBED_MAX_CHARS=100"), "--roles", everyRole)
	found := func(path string, ask body) []any {
		return p.Must(t, http.StatusOK, http.MethodPost, path, ask)["hits"].([]any)
	}
	hidden := p.RecordTurn(t, "anonymous", "1", "where is the hidden treasure", "Under the oak of the garden.")
	p.LinkIdentity(t, "s", "ada")
	long := strings.Repeat("bicycle ", 20)
	tyre := p.RecordTurn(t, "s", "1", long+"zebra", "With two levers and a pump.")
	branch := p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath("s")+"/fork", body{"request_id": "f"})
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/reset", body{})
	p.WaitCaughtUp(t, "index", "audit")

	hit := found("/v1/search", body{"query": "the hidden treasure", "mode": "meaning"})[0].(body)
	require.Equal(t, hidden, hit["turn_id"])
	require.Contains(t, hit, "identity_id")
	require.Nil(t, hit["identity_id"], "its session is anonymous")
	require.Equal(t, "where is the hidden treasure", hit["snippet"], "from the log")
	require.False(t, holdsBytes(t, w.Dir(), "treasure"), "no file of Weaviate has a text")
	hit = found("/v1/similar", body{"question": long[:100]})[0].(body)
	require.Equal(t, tyre, hit["turn_id"])
	require.InDelta(t, 1, hit["score"], 1e-4, "of the first 100 characters")
	require.Equal(t, "s", hit["session_id"], "the origin, and not its branch")
	page, err := w.Client().Page(t.Context(), "TurnledgerTurns", [16]byte{}, 100)
	require.NoError(t, err)
	require.Len(t, page, 3, "two turns, and the probe")
	ask := body{"query": long, "mode": "meaning", "session_id": branch["session_id"]}
	require.Empty(t, found("/v1/search", ask), "the branch has no turn of its own")

	corrected := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+tyre+"/correct",
		body{"request_id": "c", "question_neutral": "how do I ride a horse"})
	hits := found("/v1/similar?min_position="+corrected["position"].(string), body{"question": "riding a horse"})
	require.Equal(t, corrected["turn_id"], hits[0].(body)["turn_id"], "at once, by its position")
	for _, h := range hits {
		require.NotEqual(t, tyre, h.(body)["turn_id"])
	}
	refused := p.Must(t, http.StatusServiceUnavailable, http.MethodPost, "/v1/search?min_position=0:100000",
		body{"query": "a horse", "mode": "meaning"})
	require.Equal(t, "position_not_reached", refused["code"])
	code, out, errs := p.Run(t, "projections", "verify", "index")
	require.Equal(t, stack.ExitDone, code, out+errs)
}
