package systemtest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// What people write in titles, metadata, summaries, searches and reasons is in no log, error, metric, trace, dead
// letter or subject, also where a call or a view fails with it. A title that was replaced and metadata that was taken
// away leave every disk.
func TestNothingOperatorsSeeHoldsWhatPeopleWrite(t *testing.T) {
	t.Parallel()
	traces := &printed.Buffer{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		_, _ = traces.Write(body)
	}))
	defer receiver.Close()
	address := stack.FreeAddress(t)
	d, env := newStorage(t)
	env = append(append(env, stack.ServeNATS(address)...), "OTEL_EXPORTER_OTLP_ENDPOINT="+receiver.URL)
	p := stack.Start(t, env, "serve", "--data-dir", d.nats)
	path := stack.SessionPath("s")
	var errs []string
	refused := func(status int, method, path string, body any) {
		t.Helper()
		errs = append(errs, fmt.Sprint(p.Must(t, status, method, path, body)))
	}
	verb := func(code int, args ...string) {
		t.Helper()
		got, out, err := p.Run(t, args...)
		require.Equal(t, code, got, out+err)
		errs = append(errs, err)
	}
	describe := func(session, title string, note any) {
		t.Helper()
		p.Must(t, http.StatusOK, http.MethodPatch, stack.SessionPath(session),
			map[string]any{"title": title, "metadata": map[string]any{"note": note}})
	}
	db := d.sql(t)
	defer func() { _ = db.Close(t.Context()) }()
	sql := func(statement string) {
		t.Helper()
		_, err := db.Exec(t.Context(), statement)
		require.NoError(t, err)
	}

	p.LinkIdentity(t, "s", "ada")
	turn := p.RecordTurn(t, "s", "r1", "SENTINEL question", "SENTINEL answer")
	gone := p.RecordTurn(t, "s", "r2", "SENTINEL question", "SENTINEL answer")
	describe("s", "QUOKKA", "NUMBAT")
	p.Must(t, http.StatusCreated, http.MethodPost, path+"/summaries",
		map[string]any{"request_id": "m", "through_turn_id": turn, "summary_neutral": "SENTINEL summary"})
	p.Must(t, http.StatusCreated, http.MethodPost, path+"/fork", map[string]any{"request_id": "f", "turn_id": turn})
	p.Must(t, http.StatusOK, http.MethodPost, path+"/turns/"+gone+"/redact",
		map[string]any{"reason": "SENTINEL reason"})
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("other")+"/reset",
		map[string]any{"reason": "SENTINEL reason"})
	p.WaitCaughtUp(t, "recent", "audit")
	d.flush(t)
	holding := d.storesHolding("QUOKKA", "NUMBAT")
	for _, secret := range []string{"QUOKKA", "NUMBAT"} { // Redis compresses words that repeat others
		require.ElementsMatch(t, []string{"nats", "redis", "postgres"}, holding[secret], "it is found")
	}
	hits := p.Must(t, http.StatusOK, http.MethodPost, "/v1/search", map[string]any{"query": `"sentinel question"`})
	require.Len(t, hits["hits"], 1)
	list := p.Must(t, http.StatusOK, http.MethodPost, "/v1/sessions/query",
		map[string]any{"title": "quok", "metadata": map[string]any{"note": "NUMBAT"}})
	require.Len(t, list["sessions"], 1)

	// Calls and verbs that are refused.
	long := strings.Repeat("SENTINEL ", 2000)
	refused(http.StatusUnprocessableEntity, http.MethodPatch, path, map[string]any{"title": long})
	refused(http.StatusUnprocessableEntity, http.MethodPatch, path,
		map[string]any{"metadata": map[string]any{"k": long}})
	refused(http.StatusUnprocessableEntity, http.MethodPost, path+"/summaries",
		map[string]any{"request_id": "n", "through_turn_id": turn, "summary_neutral": "SENTINEL", "created_by": long})
	refused(http.StatusUnprocessableEntity, http.MethodPost, "/v1/search", map[string]any{"query": "-SENTINEL"})
	refused(http.StatusUnprocessableEntity, http.MethodPost, "/v1/search",
		map[string]any{"query": "SENTINEL", "cursor": "BAD"})
	refused(http.StatusServiceUnavailable, http.MethodPost, "/v1/search",
		map[string]any{"query": "SENTINEL", "mode": "meaning"})
	verb(stack.ExitUsage, "sessions", "describe", "s", "--title", long)
	verb(stack.ExitUsage, "search", "--", "-SENTINEL")
	verb(stack.ExitUsage, "sessions", "list", "--title", "SENTINEL", "--cursor", "BAD")

	// A view that is refused a title, and a search and a list that fail in the tables.
	sql("alter table turnledger.sessions add constraint poison check (title <> 'SENTINEL poison')")
	describe("poisoned", "SENTINEL poison", "SENTINEL")
	p.WaitCaughtUp(t, "audit")
	letters := p.Get(t, "/v1/deadletters")["deadletters"].([]any)
	require.NotEmpty(t, letters)
	sql("alter table turnledger.questions rename to away")
	refused(http.StatusServiceUnavailable, http.MethodPost, "/v1/search", map[string]any{"query": "SENTINEL"})
	refused(http.StatusServiceUnavailable, http.MethodPost, "/v1/sessions/query", map[string]any{"title": "SENTINEL"})
	verb(stack.ExitFailed, "search", "SENTINEL")
	sql("alter table turnledger.away rename to questions")

	describe("s", "KEPT title", "") // "" takes the value away
	hang.Until(t, func() bool {
		d.flush(t)
		return len(d.storesHolding("QUOKKA", "NUMBAT")) == 0
	}, "replaced words stay on a disk")
	require.NotEmpty(t, d.storesHolding("KEPT title"))

	nc, err := nats.Connect("nats://" + address)
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	var subjects []string
	for info := range js.ListStreams(t.Context()).Info() {
		stream, err := js.Stream(t.Context(), info.Config.Name)
		require.NoError(t, err)
		all, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		require.NoError(t, err)
		for subject := range all.State.Subjects {
			subjects = append(subjects, subject)
		}
	}
	require.NotEmpty(t, subjects)
	metrics := p.Metrics(t)
	require.Contains(t, metrics, "search_words")
	p.Stop(t)
	require.Contains(t, traces.String(), "search_words")
	for where, text := range map[string]string{
		"logs": p.Log.String() + p.Out.String(), "errors": strings.Join(errs, "\n"), "metrics": metrics,
		"traces": traces.String(), "dead letters": fmt.Sprint(letters), "subjects": strings.Join(subjects, "\n"),
	} {
		require.NotEmpty(t, text, where)
		for _, word := range []string{"sentinel", "quok", "numbat"} {
			require.NotContains(t, strings.ToLower(text), word, where)
		}
	}
}
