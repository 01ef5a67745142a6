package systemtest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// Texts leave all disks and all answers with a redaction, and with the session or the identity that they belong to,
// those that branches share, too. What the branches have themselves stays.
//
//conformance:h64
func TestNoByteOfAnErasedTextIsLeft(t *testing.T) {
	t.Parallel()
	d, env := newStorage(t)
	env = append(env, "TURNLEDGER_PARTITIONS=4")
	p := stack.Start(t, env, "serve", "--data-dir", d.nats)
	p.LinkIdentity(t, "s", "alice")
	p.RecordTurn(t, "s", "r0", "KEPT-0", "KEPT-0")
	turn := p.RecordTurn(t, "s", "r1", "SECRET-A one", "SECRET-A two")
	summarize := func(session, through, text string) {
		t.Helper()
		p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(session)+"/summaries", map[string]any{
			"request_id": through, "through_turn_id": through, "summary_neutral": text, "summary_translated": text})
	}
	fork := func(session, branch string) {
		t.Helper()
		p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(session)+"/fork",
			map[string]any{"request_id": branch, "session_id": branch})
		p.RecordTurn(t, branch, "own", "KEPT-"+branch, "KEPT-"+branch)
	}
	fork("s", "s-branch")
	fork("s-branch", "s-twig")
	summarize("s", turn, "SECRET-E sum") // void with the correction
	corrected := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+turn+"/correct",
		map[string]any{"request_id": "c1", "answer_neutral": "SECRET-A three"})["turn_id"].(string)
	summarize("s", corrected, "SECRET-F sum") // void with the redaction
	describe := func(session, title, value string) {
		t.Helper()
		p.Must(t, http.StatusOK, http.MethodPatch, stack.SessionPath(session),
			map[string]any{"title": title, "metadata": map[string]any{"note": value}})
	}
	describe("s", "SECRET-D title", "SECRET-D value")
	describe("t", "SECRET-B title", "SECRET-B value")
	describe("u", "SECRET-C title", "SECRET-C value")
	summarize("t", p.RecordTurn(t, "t", "r1", "SECRET-B one", "SECRET-B two"), "SECRET-G sum")
	fork("t", "t-branch")
	p.LinkIdentity(t, "t", "bob")
	p.RecordTurn(t, "u", "r1", "SECRET-C one", "SECRET-C two")
	p.LinkIdentity(t, "u", "carol")
	p.WaitCaughtUp(t, "recent", "audit")
	d.flush(t)
	secrets := []string{"SECRET-A", "SECRET-B", "SECRET-C", "SECRET-D"}
	summaries := []string{"SECRET-E", "SECRET-F", "SECRET-G"}
	holding := d.storesHolding(append(summaries, secrets...)...)
	for _, secret := range summaries[1:] {
		require.Equal(t, []string{"nats"}, holding[secret], "no view holds a summary")
	}
	for _, secret := range secrets {
		require.ElementsMatch(t, []string{"nats", "redis", "postgres"}, holding[secret],
			"the search finds what there is")
	}

	found := func(query string) []any {
		t.Helper()
		return p.Must(t, http.StatusOK, http.MethodPost, "/v1/search", map[string]any{"query": query})["hits"].([]any)
	}
	for _, secret := range secrets[:3] {
		require.NotEmpty(t, found(secret))
	}

	branches := map[string]string{"s-branch": "SECRET-A", "s-twig": "SECRET-A", "t-branch": "SECRET-B"}
	for branch, secret := range branches {
		for name, answer := range answersOf(t, p, branch) {
			require.Equal(t, name != "events", strings.Contains(answer, secret), "%s of %s", name, branch)
		}
	}
	describe("s", "KEPT-0 title", "") // its eraser's work is done before that of the redaction
	gone := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+turn+"/redact",
		map[string]any{"reason": "asked to"})
	code, out, errs := p.Run(t, "erase", "t", "--wait")
	require.Equal(t, stack.ExitDone, code, errs)
	require.Contains(t, out, "session t, complete")
	identity := p.Must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/carol",
		map[string]any{"reason": "left", "redacted_by": "ops"})
	require.Len(t, waitReceipt(t, p, identity["receipt_id"].(string))["places"], 3)
	waitReceipt(t, p, url.PathEscape(gone["position"].(string)))
	p.WaitCaughtUp(t, "recent", "audit")
	d.flush(t)
	before := turnsJSON(t, p, "s")
	nothing := func() {
		t.Helper()
		all := append(slices.Clone(secrets), summaries...)
		holding := d.storesHolding(append(all, "KEPT-0")...)
		for _, secret := range all {
			require.Empty(t, holding[secret])
			require.NotContains(t, p.Log.String()+p.Out.String(), secret)
			require.Empty(t, found(secret))
		}
		require.NotEmpty(t, holding["KEPT-0"])
		require.NotEmpty(t, found("KEPT-0"))
		require.Equal(t, before, turnsJSON(t, p, "s"), "the tombstone is the same as before")
		for branch, secret := range branches {
			for name, answer := range answersOf(t, p, branch) {
				require.NotContains(t, answer, secret, "%s of %s", name, branch)
				require.Contains(t, answer, "KEPT-"+branch, "%s of %s", name, branch)
			}
		}
		require.Equal(t, "session_erased", p.Must(t, http.StatusGone, http.MethodPost, stack.SessionPath("u")+"/turns",
			map[string]any{"request_id": "r9", "question_neutral": "q"})["code"])
		p.Done(t, "projections", "verify")
		out = p.Done(t, "export", "--identity", "alice")
		require.Contains(t, out, "KEPT-0")
		require.NotContains(t, out, "SECRET")
	}
	nothing()
	for _, name := range []string{"recent", "audit"} {
		p.Done(t, "projections", "rebuild", name, "--yes")
	}
	p.Stop(t)
	p = stack.Start(t, env, "serve", "--data-dir", d.nats)
	p.WaitCaughtUp(t, "recent", "audit")
	d.flush(t)
	nothing()
	again := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns",
		map[string]any{"request_id": "r1", "question_neutral": "SECRET-A one"})
	require.Equal(t, "redacted", again["status"], "a late retry brings nothing back")
	nothing()
}

// kill -9 in the middle of erasures: the next process ends them.
func TestKilledWhileItErases(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	dir := stack.DataDir(t)
	p := stack.Start(t, nil, "serve", "--data-dir", dir)
	for i := range 40 {
		p.RecordTurn(t, "s", fmt.Sprint("r", i), "SECRET question", "SECRET answer")
	}
	for i := range 5 {
		p.RecordTurn(t, "kept", fmt.Sprint("r", i), "KEPT question", "KEPT answer")
	}
	id := p.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath("s"), nil)["receipt_id"].(string)
	for range 4 {
		<-time.After(time.Duration(rng.IntN(300)) * time.Millisecond)
		p.Kill(t)
		p = stack.Start(t, nil, "serve", "--data-dir", dir)
	}
	places := waitReceipt(t, p, id)["places"].([]any)
	require.Equal(t, "log", places[0].(map[string]any)["place"])
	require.Empty(t, (&storage{nats: dir}).storesHolding("SECRET"))
	require.Len(t, p.Context(t, "kept"), 10)
	require.Empty(t, p.Context(t, "s"))
}

// answersOf returns all that a session says of its turns, by the kind of question.
func answersOf(t *testing.T, p *stack.Process, session string) map[string]string {
	t.Helper()
	path := stack.SessionPath(session)
	out := map[string]string{
		"context": fmt.Sprint(p.BuildContext(t, session, map[string]any{"message": "now", "max_messages": 100})),
		"turns":   fmt.Sprint(p.Get(t, path+"/turns?status=all")),
		"history": fmt.Sprint(p.Get(t, path+"/history")),
		"events":  readEvents(t, p.URL, "session_id="+session),
	}
	for name, args := range map[string][]string{
		"explain": {"explain", session, events.TurnID(session, "own").String(), "--text"},
		"folded":  {"replay", "--turns", "--session", session},
	} {
		said := p.Done(t, args...)
		out[name] = said
	}
	return out
}

// waitReceipt waits until an erasure is complete.
func waitReceipt(t testing.TB, p *stack.Process, id string) map[string]any {
	t.Helper()
	var out map[string]any
	hang.Until(t, func() bool {
		out = p.Get(t, "/v1/receipts/"+id)
		return out["state"] == "complete"
	}, "%v", out)
	return out
}

// turnsJSON returns a session's turns as JSON, without what an answer has beside them.
func turnsJSON(t testing.TB, p *stack.Process, id string) string {
	t.Helper()
	return string(must.Get(json.Marshal(p.Get(t, stack.SessionPath(id)+"/turns?status=all")["turns"]))(t))
}

// receiptPlace returns what a receipt says of a place.
func receiptPlace(t testing.TB, receipt map[string]any, name string) map[string]any {
	t.Helper()
	for _, x := range receipt["places"].([]any) {
		if place := x.(map[string]any); place["place"] == name {
			return place
		}
	}
	t.Fatalf("the receipt has no place %s: %v", name, receipt)
	return nil
}

// storage names the folders of a deployment's stores.
type storage struct {
	nats, redis, postgres string
	redisURL, postgresURL string
}

func newStorage(t *testing.T) (*storage, []string) {
	t.Helper()
	pg, redis := pg.Start(t), redistest.Start(t)
	d := &storage{
		nats: filepath.Join(stack.DataDir(t), "d"), postgres: filepath.Dir(pg.LogFile()),
		redis:    filepath.Dir(strings.TrimPrefix(redis.URL(), "unix://")),
		redisURL: redis.URL(), postgresURL: pg.URL(),
	}
	return d, []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(), "TURNLEDGER_REDIS_URL=" + redis.URL()}
}

func (d *storage) sql(t *testing.T) *pgx.Conn {
	t.Helper()
	return must.Get(pgx.Connect(t.Context(), d.postgresURL))(t)
}

// flush writes to disk what the stores hold in memory, and cleans up as their operators do.
func (d *storage) flush(t *testing.T) {
	t.Helper()
	conn := d.sql(t)
	// As docs/erasure.md asks of the operator.
	for _, statement := range []string{"vacuum (full, analyze) turnledger.questions, turnledger.answers, " +
		"turnledger.sessions, turnledger.event_ledger",
		"checkpoint"} {
		must.Get(conn.Exec(t.Context(), statement))(t)
	}
	require.NoError(t, conn.Close(t.Context()))
	c := must.Get(rueidis.NewClient(rueidis.MustParseURL(d.redisURL)))(t)
	defer c.Close()
	require.NoError(t, c.Do(t.Context(), c.B().Save().Build()).Error())
}

// storesHolding names the stores whose files hold each of the texts. PostgreSQL's WAL is left out: it holds what was
// written until it is recycled.
func (d *storage) storesHolding(texts ...string) map[string][]string {
	out := map[string][]string{}
	for name, dir := range map[string]string{"nats": d.nats, "redis": d.redis, "postgres": d.postgres} {
		for text := range natstest.HoldingEach(texts, []string{dir}, "pg_wal") {
			out[text] = append(out[text], name)
		}
	}
	return out
}

func TestErasureOverTheCommandLine(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	p.RecordTurn(t, "forgotten", "r1", "question", "answer")
	require.Contains(t, p.Fails(t, "erase", "nobody"), "session_not_found")
	require.Contains(t, p.Fails(t, "erase", "--receipt", "0-0-x"), "not_found")
	out := p.Done(t, "erase", "forgotten", "--reason", "asked to", "--by", "ops")
	id := strings.Fields(out)[1]
	out = p.Done(t, "erase", "--receipt", id, "--wait", "--json")
	var r map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Subset(t, r, map[string]any{"state": "complete", "session_id": "forgotten"})
	out = p.Done(t, "retention", "--dry-run")
	require.Equal(t, "would go: 0 anonymous sessions with 0 events, 0 turns of 0 linked sessions\n", out)
}

// firstTries is how often a verb asks a server that has not answered yet.
const firstTries = 8

// `erase --wait` goes on when the server is restarted meanwhile.
func TestEraseWaitOutlastsARestart(t *testing.T) {
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
	code, out, errs := stack.Run(t, "erase", "--receipt", "0-1-a", "--wait", "--url", server.URL)
	require.Equal(t, stack.ExitDone, code, errs)
	require.Contains(t, out, "session s, complete")
}

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
		must.Get(db.Exec(t.Context(), statement))(t)
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
	for _, secret := range []string{"QUOKKA", "NUMBAT"} {
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

	nc := must.Get(nats.Connect("nats://" + address))(t)
	defer nc.Close()
	js := must.Get(jetstream.New(nc))(t)
	var subjects []string
	for info := range js.ListStreams(t.Context()).Info() {
		stream := must.Get(js.Stream(t.Context(), info.Config.Name))(t)
		all := must.Get(stream.Info(t.Context(), jetstream.WithSubjectFilter(">")))(t)
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
