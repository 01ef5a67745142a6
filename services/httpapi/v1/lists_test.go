package v1_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// lister remembers what it was asked.
type lister struct {
	asked services.SessionsAsk
	page  services.SessionPage
	err   error
}

func (l *lister) Sessions(_ context.Context, ask services.SessionsAsk) (services.SessionPage, error) {
	l.asked = ask
	return l.page, l.err
}

func withLister(l *lister) setting { return func(c *config) { c.Lists = l } }

func TestListOfSessions(t *testing.T) {
	t.Parallel()
	head := session.Head{Identity: "ada", CreatedAt: time.Unix(1, 0), LastActive: time.Unix(2, 5)}
	head.Finalized = 2
	head.HeldDescription = session.DescribedBy(session.Description{DescribedAt: 3, Title: "T"})
	l := &lister{page: services.SessionPage{NextCursor: "next", Sessions: []projections.ListedSession{
		{SessionID: "s", Head: head, Position: events.Position{Seq: 7}, LastTurn: &projections.LastTurn{
			TurnID: events.TurnID("s", "r"), Status: session.Finalized, Question: "q", Answer: "a"}},
		{SessionID: "t", Head: session.Head{CreatedAt: time.Unix(1, 0)}},
	}}}
	s := start(t, withLister(l))
	got := s.ok(http.StatusOK, "GET", "/v1/sessions?identity_id=ada&since=2026-01-02T03:04:05Z"+
		"&until=2026-01-03T03:04:05Z&limit=1000&cursor=c&min_position=0:1", nil)
	for _, text := range []string{"title", "metadata"} {
		a := s.do("GET", "/v1/sessions?"+text+"=x", nil)
		requireProblem(t, a, http.StatusUnprocessableEntity, "invalid_argument", text)
		require.Contains(t, string(a.raw), "POST /v1/sessions/query")
	}
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.Equal(t, services.SessionsAsk{SessionFilter: projections.SessionFilter{IdentityID: "ada", Since: since,
		Until: since.AddDate(0, 0, 1)}, Limit: 200, Cursor: "c", MinPosition: []events.Position{{Seq: 1}}}, l.asked)
	require.Equal(t, "next", got["next_cursor"])
	first, second := got["sessions"].([]any)[0].(map[string]any), got["sessions"].([]any)[1].(map[string]any)
	require.Equal(t, map[string]any{"turn_id": events.TurnID("s", "r").String(), "status": "finalized",
		"question_neutral": "q", "answer_neutral": "a"}, first["last_turn"])
	require.Equal(t, []any{"s", "ada", "T", 2.0, "0:7"},
		[]any{first["session_id"], first["identity_id"], first["title"], first["turns"], first["position"]})
	require.Nil(t, second["last_turn"])
	require.NotContains(t, first, "duplicate")

	s.ok(http.StatusOK, "POST", "/v1/sessions/query", map[string]any{"title": "t", "metadata": map[string]any{"k": "v"},
		"since": "2026-01-02T03:04:05Z"})
	require.Equal(t, services.SessionsAsk{Limit: 50, SessionFilter: projections.SessionFilter{Since: since, Title: "t",
		Metadata: map[string]string{"k": "v"}}}, l.asked)
	s.ok(http.StatusOK, "POST", "/v1/sessions/query?min_position=0:1", map[string]any{"identity_id": "ada",
		"until": "2026-01-03T03:04:05Z", "limit": 7, "cursor": "c"})
	require.Equal(t, services.SessionsAsk{SessionFilter: projections.SessionFilter{IdentityID: "ada",
		Until: since.AddDate(0, 0, 1)}, Limit: 7, Cursor: "c", MinPosition: []events.Position{{Seq: 1}}}, l.asked)
	for _, path := range []string{"?limit=0", "?since=x", "?min_position=x"} {
		require.Equal(t, http.StatusUnprocessableEntity, s.do("GET", "/v1/sessions"+path, nil).status, path)
	}
	for _, texts := range []string{`{"k":null}`, `{"k":1}`, `["k"]`, `"k"`} {
		a := s.do("POST", "/v1/sessions/query", `{"metadata":`+texts+`}`)
		requireProblem(t, a, http.StatusUnprocessableEntity, "invalid_argument", "metadata")
		require.Contains(t, string(a.raw), "whose values are strings", texts)
	}
	l.err = services.ErrBehind
	requireProblem(t, s.do("GET", "/v1/sessions", nil), http.StatusServiceUnavailable, "audit_unavailable")
	s = start(t)
	requireProblem(t, s.do("GET", "/v1/sessions", nil), http.StatusServiceUnavailable, "audit_unavailable")
}

// A list of one identity needs context:read, one across identities events:read; a bound key is shown its own.
func TestCallsAcrossSessionsNeedOneOfTwoScopes(t *testing.T) {
	t.Parallel()
	l, f, near, callers := &lister{}, &searcher{}, &similar{}, ring{}
	for _, set := range []access.Scopes{0, writes, reads, follows, operates, reads | follows, scopes} {
		for _, own := range []string{"", "ada"} {
			callers[fmt.Sprint(set, own)] = access.Caller{Scopes: set, IdentityID: own}
		}
	}
	s, _ := guarded(t, maps.Clone(callers), withLister(l), func(c *config) { c.Search, c.Similar = f, near })
	for key, c := range callers {
		for _, asked := range []string{"", "ada", "bob"} {
			allowed, want, query, of := c.Scopes&reads != 0, asked, "?identity_id="+asked, `"identity_id":"`+asked+`"`
			switch {
			case c.IdentityID != "":
				allowed, want = allowed && (asked == "" || asked == c.IdentityID), c.IdentityID
			case asked == "":
				allowed = c.Scopes&follows != 0
			}
			if asked == "" {
				query, of = "", `"limit":1`
			}
			for call, body := range map[string]string{"GET /v1/sessions" + query: "",
				"POST /v1/sessions/query": "{" + of + "}", "POST /v1/search": `{"query":"q",` + of + "}",
				"POST /v1/similar": `{"question":"q",` + of + "}"} {
				what := fmt.Sprint(call, body, c.Scopes.Names(), " bound to ", c.IdentityID)
				method, path, _ := strings.Cut(call, " ")
				a := s.as(key, method, path, body)
				if allowed {
					require.Equal(t, http.StatusOK, a.status, what)
					require.Equal(t, want, l.asked.IdentityID+f.asked.IdentityID+near.asked.IdentityID, what)
				} else {
					requireProblem(t, a, http.StatusForbidden, "forbidden")
					require.Zero(t, l.asked, what)
					require.Zero(t, f.asked, what)
					require.Zero(t, near.asked, what)
				}
				l.asked, f.asked, near.asked = services.SessionsAsk{}, services.SearchAsk{}, services.SimilarAsk{}
			}
		}
	}
}

// counter remembers what it was asked.
type counter struct {
	asked services.CountsAsk
	page  services.CountsPage
}

func (c *counter) Counts(_ context.Context, ask services.CountsAsk) (services.CountsPage, error) {
	c.asked = ask
	return c.page, nil
}

func TestStats(t *testing.T) {
	t.Parallel()
	pipeline, ms := "support", 1.5
	c := &counter{page: services.CountsPage{Counts: []projections.Counts{
		{Start: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), By: &pipeline, Started: 6, Finalized: 3, Redacted: 1,
			Corrected: 1, Pending: 2, Sessions: 4, Identities: 5, AnswerP50: &ms},
	}, Positions: []events.Position{{Partition: 1, Seq: 7}, {Seq: 5}}, LagEvents: 3}}
	now := time.Date(2026, 5, 31, 12, 30, 0, 0, time.UTC)
	s := start(t, func(cfg *config) { cfg.Counts, cfg.Now = c, func() time.Time { return now } })
	require.Equal(t, map[string]any{"position": "0:5,1:7", "lag_events": 3.0, "buckets": []any{map[string]any{
		"start": "2026-01-02T00:00:00Z", "by": "support", "started": 6.0, "finalized": 3.0, "redacted": 1.0,
		"corrected": 1.0, "pending": 2.0, "sessions": 4.0, "identities": 5.0, "answer_ms_p50": 1.5,
		"answer_ms_p95": nil}}}, s.ok(http.StatusOK, "GET", "/v1/stats?min_position=0:1", nil))
	first := []events.Position{{Seq: 1}}
	require.Equal(t, services.CountsAsk{MinPosition: first, CountsFilter: projections.CountsFilter{
		Since: time.Date(2026, 5, 2, 0, 0, 0, 0, time.UTC), Until: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC),
		By: projections.ByNone}}, c.asked, "30 days, today included")
	s.ok(http.StatusOK, "GET", "/v1/stats?bucket=hour&by=repository&since=2026-01-01T00:00:00Z"+
		"&until=2026-01-02T01:00:00Z", nil)
	require.Equal(t, projections.CountsFilter{Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Until: time.Date(2026, 1, 2, 1, 0, 0, 0, time.UTC), Hour: true, By: projections.ByRepository},
		c.asked.CountsFilter)
	for query, field := range map[string]string{"bucket=week": "bucket", "by=session_id": "by",
		"since=2000-01-01T00:00:00Z&bucket=hour": "since", "since=1990-01-01T00:00:00Z": "since", "until=x": "until"} {
		a := s.do("GET", "/v1/stats?"+query, nil)
		requireProblem(t, a, http.StatusUnprocessableEntity, "invalid_argument", field)
	}
	// 10,000 buckets are the most, also where the first is not whole, and in the answer.
	for query, status := range map[string]int{
		"until=2026-02-21T16:00:00Z&since=2025-01-01T00:00:00Z": http.StatusOK,
		"until=2026-02-21T16:00:00Z&since=2025-01-01T00:00:01Z": http.StatusOK,
		"until=2026-02-21T16:00:01Z&since=2025-01-01T00:00:00Z": http.StatusUnprocessableEntity,
		"until=2026-02-21T16:30:00Z&since=2025-01-01T00:59:00Z": http.StatusUnprocessableEntity,
	} {
		require.Equal(t, status, s.do("GET", "/v1/stats?bucket=hour&"+query, nil).status, query)
	}
	s.ok(http.StatusOK, "GET", "/v1/stats?bucket=hour", nil)
	require.Equal(t, [2]time.Time{time.Date(2026, 5, 2, 0, 0, 0, 0, time.UTC), time.Date(2026, 5, 31, 13, 0, 0, 0,
		time.UTC)}, [2]time.Time{c.asked.Since, c.asked.Until}, "up to the end of the hour")
	c.page.Counts = make([]projections.Counts, projections.MostCounts)
	s.ok(http.StatusOK, "GET", "/v1/stats", nil)
	c.page.Counts = make([]projections.Counts, projections.MostCounts+1)
	requireProblem(t, s.do("GET", "/v1/stats", nil), http.StatusUnprocessableEntity, "invalid_argument", "by")
}

func TestStatsNeedOneOfTwoScopes(t *testing.T) {
	t.Parallel()
	callers := ring{}
	for set := range scopes + 1 {
		callers[fmt.Sprint("free", set)] = access.Caller{Name: "free", Scopes: set}
		callers[fmt.Sprint("bound", set)] = access.Caller{Name: "bound", Scopes: set, IdentityID: "ada"}
	}
	s, _ := guarded(t, callers, func(cfg *config) { cfg.Counts = &counter{} })
	for set := range scopes + 1 {
		want := http.StatusForbidden
		if set&(follows|operates) != 0 {
			want = http.StatusOK
		}
		require.Equal(t, want, s.as(fmt.Sprint("free", set), "GET", "/v1/stats", nil).status, set.Names())
		require.Equal(t, http.StatusForbidden, s.as(fmt.Sprint("bound", set), "GET", "/v1/stats", nil).status)
	}
}

// searcher remembers what it was asked.
type searcher struct {
	asked services.SearchAsk
	page  services.SearchPage
	err   error
}

func (f *searcher) Search(_ context.Context, ask services.SearchAsk) (services.SearchPage, error) {
	f.asked = ask
	return f.page, f.err
}

func TestSimilar(t *testing.T) {
	t.Parallel()
	turn := events.TurnID("s", "r")
	f := &similar{hits: []services.SimilarHit{{
		Hit: projections.Hit{SessionID: "s", IdentityID: "ada", TurnID: turn, Half: projections.QuestionHalf,
			CreatedAt: time.Unix(1, 0).UTC(), Position: events.Position{Seq: 3}, Score: 0.5,
			Snippet: "a quark?"},
		Question: "a quark?", Answer: "a particle"}}}
	s := start(t, func(c *config) { c.Similar = f })
	got := s.ok(http.StatusOK, "POST", "/v1/similar?min_position=0:1",
		`{"question":"quarks","identity_id":"ada","limit":1000,"min_score":0.1}`)
	require.Equal(t, services.SimilarAsk{Question: "quarks", IdentityID: "ada", Limit: 100, MinScore: 0.1,
		MinPosition: []events.Position{{Seq: 1}}}, f.asked)
	require.Equal(t, map[string]any{"hits": []any{map[string]any{"session_id": "s", "turn_id": turn.String(),
		"identity_id": "ada", "half": "question", "created_at": "1970-01-01T00:00:01Z", "position": "0:3",
		"score": 0.5, "snippet": "a quark?", "question_neutral": "a quark?", "answer_neutral": "a particle"}}}, got)
	requireProblem(t, s.do("POST", "/v1/similar", `{}`), http.StatusUnprocessableEntity, "invalid_argument",
		"question")
	f.err = fmt.Errorf("%w: %w", services.ErrIndex, projections.ErrEmbedder)
	requireProblem(t, s.do("POST", "/v1/similar", `{"question":"q"}`), http.StatusServiceUnavailable,
		"index_unavailable")
	without := start(t)
	requireProblem(t, without.do("POST", "/v1/similar", `{"question":"q"}`), http.StatusServiceUnavailable,
		"index_unavailable")
}

// similar answers with hits, or an error.
type similar struct {
	asked services.SimilarAsk
	hits  []services.SimilarHit
	err   error
}

func (f *similar) Similar(_ context.Context, ask services.SimilarAsk) ([]services.SimilarHit, error) {
	f.asked = ask
	return f.hits, f.err
}

func TestSearch(t *testing.T) {
	t.Parallel()
	turn := events.TurnID("s", "r")
	f := &searcher{page: services.SearchPage{Mode: services.SearchWords, Lag: 4, NextCursor: "next",
		Positions: []events.Position{{Seq: 7}},
		Hits: []projections.Hit{{SessionID: "s", IdentityID: "ada", TurnID: turn, Half: projections.AnswerHalf,
			CreatedAt: time.Unix(1, 0).UTC(), Position: events.Position{Seq: 3}, Score: 0.5, Snippet: "a quark"}}}}
	s := start(t, func(c *config) { c.Search = f })
	got := s.ok(http.StatusOK, "POST", "/v1/search?min_position=0:1", `{"query":"quark","in":"answer","identity_id":"ada",
		"session_id":"s","since":"2026-01-02T03:04:05Z","until":"2026-01-03T03:04:05Z","language":"neutral","limit":1000,
		"min_score":0.1,"cursor":"c","mode":"words"}`)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.Equal(t, services.SearchAsk{SearchFilter: projections.SearchFilter{Query: "quark", IdentityID: "ada",
		SessionID: "s", In: projections.AnswerHalf, Language: "neutral",
		Period:   projections.Period{Since: since, Until: since.AddDate(0, 0, 1)},
		MinScore: 0.1}, Mode: services.SearchWords, Limit: 100, Cursor: "c",
		MinPosition: []events.Position{{Seq: 1}}}, f.asked)
	require.Equal(t, map[string]any{"mode": "words", "position": "0:7", "lag_events": 4.0, "next_cursor": "next",
		"hits": []any{map[string]any{"session_id": "s", "turn_id": turn.String(), "identity_id": "ada",
			"half": "answer", "created_at": "1970-01-01T00:00:01Z", "position": "0:3", "score": 0.5,
			"snippet": "a quark"}}}, got)
	f.page = services.SearchPage{Mode: services.SearchWords}
	got = s.ok(http.StatusOK, "POST", "/v1/search", `{"query":"quark"}`)
	require.Equal(t, map[string]any{"mode": "words", "position": "", "lag_events": 0.0, "next_cursor": nil,
		"hits": []any{}}, got)
	require.Equal(t, 10, f.asked.Limit)
	for body, field := range map[string]string{`{"query":"q","mode":"x"}`: "mode", `{"query":"q","in":"x"}`: "in",
		`{"query":"q","language":"x"}`: "language", `{"query":"q","since":"x"}`: "since", `{}`: "query"} {
		requireProblem(t, s.do("POST", "/v1/search", body), http.StatusUnprocessableEntity, "invalid_argument", field)
	}
	for body, why := range map[string]string{
		`{"query":"q","since":"2026-01-01"}`: "must be a time such as",
		`{"query":"q","min_score":"x"}`:      "must be a number",
		`{"query":7}`:                        "must be a string",
	} {
		require.Contains(t, string(s.do("POST", "/v1/search", body).raw), why, body)
	}
	f.err = &decide.Invalid{Field: "query", Why: "must have a word to search for"}
	requireProblem(t, s.do("POST", "/v1/search", `{"query":"?"}`), http.StatusUnprocessableEntity, "invalid_argument",
		"query")
	for _, err := range []error{services.ErrNoIndex, projections.ErrEmbedder, projections.ErrOtherModel,
		projections.ErrSomeAnonymous, projections.ErrUnavailable} {
		f.err = fmt.Errorf("%w: %w", services.ErrIndex, err)
		for _, mode := range []string{"meaning", "hybrid"} {
			requireProblem(t, s.do("POST", "/v1/search", `{"query":"q","mode":"`+mode+`"}`),
				http.StatusServiceUnavailable, "index_unavailable")
			require.Equal(t, services.SearchMode(mode), f.asked.Mode)
		}
	}
	for _, err := range []error{projections.ErrUnavailable, services.ErrBehind} {
		f.err = err
		a := s.do("POST", "/v1/search", `{"query":"q"}`)
		requireProblem(t, a, http.StatusServiceUnavailable, "audit_unavailable")
	}
	f.err = errors.Join(projections.ErrUnavailable, projections.ErrOutdated)
	a := s.do("POST", "/v1/search", `{"query":"q"}`)
	requireProblem(t, a, http.StatusServiceUnavailable, "audit_unavailable")
	require.Contains(t, string(a.raw), "turnledger projections rebuild audit")
}

// filed are receipts by their ids.
type filed map[string]services.Receipt

func (f filed) Receipt(_ context.Context, id string) (services.Receipt, error) {
	r, ok := f[id]
	if !ok {
		return r, services.ErrNoReceipt
	}
	r.ID = id
	return r, nil
}

func (f filed) Receipts(_ context.Context, ask services.ReceiptsAsk) (services.ReceiptPage, error) {
	out := services.ReceiptPage{NextCursor: "0:3"}
	if ask.Cursor == "0:3" {
		out.NextCursor = ""
	}
	for _, id := range slices.Sorted(maps.Keys(f))[:ask.Limit] {
		r, err := f.Receipt(context.Background(), id)
		if err != nil {
			return out, err
		}
		out.Receipts = append(out.Receipts, r)
	}
	return out, nil
}

func TestReceiptsAreListed(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{}, func(c *config) {
		list := filed{}
		for i := range 300 {
			list[fmt.Sprintf("%03d", i)] = services.Receipt{SessionID: "s", TurnID: "t"}
		}
		c.Receipts = list
	})
	for query, want := range map[string]int{"": 50, "?limit=3": 3, "?limit=9999": 200} {
		a := s.as("all", "GET", "/v1/receipts"+query, nil)
		require.Equal(t, http.StatusOK, a.status)
		require.Len(t, a.body["receipts"], want)
		require.Equal(t, "0:3", a.body["next_cursor"])
		require.Equal(t, s.as("all", "GET", "/v1/receipts/000", nil).body, a.body["receipts"].([]any)[0])
	}
	require.Nil(t, s.as("all", "GET", "/v1/receipts?cursor=0:3", nil).body["next_cursor"])
}

func TestKeysAreListedWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	ada := "ada"
	s, _ := guarded(t, ring{}, func(c *config) {
		c.Keys = func() ([]access.Key, error) {
			return []access.Key{{Prefix: "tl_abc", Name: "ops", Scopes: []string{"admin"},
				IdentityID: &ada, State: "active"}}, nil
		}
	})
	a := s.as("all", "GET", "/v1/keys", nil)
	require.Equal(t, map[string]any{"prefix": "tl_abc", "name": "ops", "scopes": []any{"admin"}, "identity_id": "ada",
		"created_at": "0001-01-01T00:00:00Z", "expires_at": nil, "revoked_at": nil, "state": "active"},
		a.body["keys"].([]any)[0])
}

// A key that is bound to an identity reads the receipts of that identity and of its
// sessions; any other looks like none.
func TestABoundKeyReadsItsOwnReceipts(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{}, func(c *config) {
		c.Receipts = filed{
			"session":   {SessionID: "own"},
			"turn":      {SessionID: "own", TurnID: "6f1d1d0e-8a55-5c0e-9d1b-0c7a3d2f4b10"},
			"identity":  {IdentityID: "ada"},
			"foreign":   {SessionID: "foreign"},
			"forged":    {SessionID: "foreign", IdentityID: "ada"},
			"anonymous": {SessionID: "anonymous"},
			"bob":       {IdentityID: "bob"},
		}
	})
	for session, identity := range map[string]string{"own": "ada", "foreign": "bob", "anonymous": ""} {
		require.Equal(t, http.StatusCreated, s.as("all", "POST", "/v1/sessions/"+session+"/turns", `{"request_id":"r","question_neutral":"q"}`).status)
		if identity != "" {
			require.Equal(t, http.StatusOK, s.as("all", "PUT", "/v1/sessions/"+session+"/identity",
				map[string]any{"identity_id": identity}).status)
		}
	}
	for _, id := range []string{"session", "turn", "identity"} {
		require.Equal(t, http.StatusOK, s.as("ada", "GET", "/v1/receipts/"+id, nil).status, id)
	}
	unknown := s.as("ada", "GET", "/v1/receipts/unknown", nil)
	requireProblem(t, unknown, http.StatusNotFound, "not_found")
	for _, id := range []string{"foreign", "forged", "anonymous", "bob"} {
		require.Equal(t, http.StatusOK, s.as("all", "GET", "/v1/receipts/"+id, nil).status, id)
		a := s.as("ada", "GET", "/v1/receipts/"+id, nil)
		requireProblem(t, a, http.StatusNotFound, "not_found")
		require.Equal(t, string(unknown.raw), string(a.raw), id)
	}
}

// letterbox is a queue of one letter, which is applied when it is retried unless it is
// stubborn.
type letterbox struct {
	letter   projections.DeadLetter
	stubborn bool
	err      error
}

func (b *letterbox) Name() string { return "audit" }

func (b *letterbox) DeadLetters(context.Context) ([]projections.DeadLetter, error) {
	return []projections.DeadLetter{b.letter}, b.err
}

func (b *letterbox) RetryDeadLetter(_ context.Context, at events.Position) (projections.Retried, error) {
	if at != b.letter.Position {
		return projections.Retried{}, projections.ErrNoDeadLetter
	}
	b.letter.Attempts++
	return projections.Retried{DeadLetter: b.letter, Applied: !b.stubborn}, b.err
}

func (b *letterbox) DropDeadLetter(_ context.Context, at events.Position, d projections.Drop) (projections.DeadLetter,
	error) {
	if at != b.letter.Position {
		return projections.DeadLetter{}, projections.ErrNoDeadLetter
	}
	b.letter.Dropped = &d
	return b.letter, b.err
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	box := &letterbox{letter: projections.DeadLetter{
		Projection: "audit", Position: events.Position{Partition: 1, Seq: 4}, EventID: "e",
		Type: events.TypeTurnStarted, SessionID: "s",
		Reason: "refused", Attempts: 1, ParkedAt: now,
	}, stubborn: true}
	s := bare(t, func(c *config) {
		c.DeadLetters = []projections.DeadLetterQueue{box}
		c.v1Config.Now = func() time.Time { return now.Add(time.Hour) }
	})
	row := map[string]any{
		"projection": "audit", "position": "1:4", "event_id": "e", "type": events.TypeTurnStarted, "session_id": "s",
		"state":  "waiting",
		"reason": "refused", "attempts": 1.0, "parked_at": "2026-03-01T12:00:00Z", "dropped_at": nil, "dropped_by": nil,
		"drop_reason": nil,
	}
	const path = "/v1/deadletters/audit/1:4"
	for _, q := range []string{"", "?projection=audit"} {
		require.Equal(t, map[string]any{"deadletters": []any{row}}, s.ok(http.StatusOK, "GET", "/v1/deadletters"+q,
			nil))
	}
	require.Equal(t, row, s.ok(http.StatusOK, "GET", path, nil))
	row["attempts"] = 2.0
	require.Equal(t, row, s.ok(http.StatusOK, "POST", path+"/retry", nil), "refused again")
	row["state"], row["dropped_at"] = "dropped", "2026-03-01T13:00:00Z"
	row["dropped_by"], row["drop_reason"] = "ada", "a lie"
	require.Equal(t, row, s.ok(http.StatusOK, "POST", path+"/drop", map[string]any{"reason": "a lie",
		"dropped_by": "ada"}))
	box.stubborn = false
	require.Equal(t, "applied", s.ok(http.StatusOK, "POST", path+"/retry", nil)["state"])

	requireProblem(t, s.do("POST", path+"/drop", map[string]any{"dropped_by": "ada"}), http.StatusUnprocessableEntity,
		"invalid_argument", "reason")
	for _, other := range []string{"audit/1:5", "audit/x", "recent/1:4"} {
		requireProblem(t, s.do("POST", "/v1/deadletters/"+other+"/retry", nil), http.StatusNotFound, "not_found")
		requireProblem(t, s.do("POST", "/v1/deadletters/"+other+"/drop", map[string]any{"reason": "r"}),
			http.StatusNotFound, "not_found")
		requireProblem(t, s.do("GET", "/v1/deadletters/"+other, nil), http.StatusNotFound, "not_found")
	}
	requireProblem(t, s.do("GET", "/v1/deadletters?projection=recent", nil), http.StatusNotFound, "not_found")
	box.err = errors.New("the store is away")
	requireProblem(t, s.do("GET", "/v1/deadletters", nil), http.StatusServiceUnavailable, "projection_unavailable")
	requireProblem(t, s.do("POST", path+"/retry", nil), http.StatusServiceUnavailable, "projection_unavailable")
	box.err = jetlog.ErrUnavailable
	requireProblem(t, s.do("POST", path+"/retry", nil), http.StatusServiceUnavailable, "log_unavailable")
}
