package client_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/client"
)

//conformance:h55 h56
func TestATurnThroughThePorts(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := s.client(nil)
	ctx := t.Context()
	var service client.HistoryService = c
	id := must.Get(service.OnRequestStarted(ctx, client.Start{
		SessionID: "a/b", RequestID: "r1", IdentityID: "ada", QuestionNeutral: "q1",
		QuestionMessages: []json.RawMessage{json.RawMessage(`{"role":"user","content":"q1"}`)},
		Metadata:         map[string]any{"secret": 1},
	}))(t)
	require.Equal(t, events.TurnID("a/b", "r1").String(), id)
	require.NoError(t, service.OnRequestFinalized(ctx, client.Finalize{SessionID: "a/b", TurnID: id,
		AnswerNeutral: "a1"}))

	var store client.SessionStore = c
	turns := must.Get(store.ListRecentFinalizedTurns(ctx, "a/b", 5))(t)
	require.Len(t, turns, 1)
	got := turns[0]
	require.Equal(t, "a1", got.AnswerNeutral)
	require.Equal(t, "ada", got.IdentityID)
	require.Equal(t, "finalized", got.Status)
	require.Equal(t, 1, got.RecordVersion)
	require.JSONEq(t, `{"role":"user","content":"q1"}`, string(got.QuestionMessages[0]))
	require.WithinDuration(t, time.Now(), got.FinalizedAt, time.Hour)
	require.True(t, got.DeletedAt.IsZero())

	pairs := must.Get(c.History(ctx, "a/b", 0))(t)
	require.Equal(t, []client.Pair{{QuestionNeutral: "q1", AnswerNeutral: "a1"}}, pairs)
	built := must.Get(c.Context(ctx, "a/b", client.ContextRequest{Message: "m"}))(t)
	require.Len(t, built.Messages, 3)
	built, err := c.Context(ctx, "a/b", client.ContextRequest{Message: "m", ConversationHistory: []json.RawMessage{}})
	require.NoError(t, err)
	require.Equal(t, "request", built.Source)
}

func TestTheOtherCalls(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := s.client(nil)
	ctx := t.Context()
	var users client.UserStore = c
	require.Equal(t, "ada", must.Get(users.LinkSession(ctx, "ada", "s"))(t).IdentityID)
	turn := must.Get(c.StartTurn(ctx, client.Start{SessionID: "s", RequestID: "r", QuestionNeutral: "q"}))(t)
	require.False(t, turn.Duplicate)
	must.Get(c.FinalizeTurn(ctx, client.Finalize{SessionID: "s", TurnID: turn.TurnID, RequestID: "r",
		AnswerNeutral: "a"}))(t)
	better := "better"
	fixed := must.Get(c.Correct(ctx, client.Correct{SessionID: "s", TurnID: turn.TurnID, RequestID: "c",
		AnswerNeutral: &better}))(t)
	require.Equal(t, 2, fixed.RecordVersion)
	page := must.Get(c.Turns(ctx, "s", client.TurnQuery{Status: "all", Limit: 1}))(t)
	require.Equal(t, fixed.TurnID, page.Turns[0].TurnID)
	page = must.Get(c.Turns(ctx, "s", client.TurnQuery{Status: "all", Limit: 1, Cursor: page.NextCursor}))(t)
	require.Equal(t, fixed.TurnID, page.Turns[0].ReplacedByTurnID)
	require.Empty(t, page.NextCursor)
	gone := must.Get(c.Redact(ctx, client.Redact{SessionID: "s", TurnID: turn.TurnID, Reason: "asked"}))(t)
	require.Equal(t, "redacted", gone.Status)
	require.False(t, gone.DeletedAt.IsZero())
	require.Zero(t, must.Get(c.Reset(ctx, "s", "new topic"))(t).Turns)
	require.False(t, must.Get(c.Session(ctx, "nobody"))(t).Found)
	require.Empty(t, must.Get(c.Projections(ctx))(t))
	_, err := users.IdentityTurns(ctx, "ada", client.IdentityQuery{Since: time.Now(), Limit: 3})
	require.ErrorIs(t, err, &client.Error{Code: "audit_unavailable"})
}

func TestErrorsHaveTheirCode(t *testing.T) {
	t.Parallel()
	c := start(t, nil).client(nil)
	_, err := c.StartTurn(t.Context(), client.Start{SessionID: "s", QuestionNeutral: "q"})
	var p *client.Error
	require.ErrorAs(t, err, &p)
	require.Equal(t, http.StatusUnprocessableEntity, p.Status)
	require.Equal(t, "invalid_argument", p.Code)
	require.Equal(t, []client.Field{{Field: "request_id", Detail: "is required, in the body or as the header " +
		"Idempotency-Key"}}, p.Fields)
	require.ErrorContains(t, err, "start turn: invalid_argument: ")

	_, err = c.FinalizeTurn(t.Context(), client.Finalize{SessionID: "s", TurnID: "x", AnswerNeutral: "a"})
	require.ErrorIs(t, err, &client.Error{Code: "turn_not_started"})
	require.NotErrorIs(t, err, &client.Error{Code: "turn_not_found"})
	for _, id := range []string{"", ".", "..", "a\x00"} {
		must.Fail(c.Session(t.Context(), id))(t, &client.Error{Code: "invalid_argument"}, "%q", id)
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, u := range []string{"127.0.0.1:8480", "ftp://x", "http://", "://", "http://a b"} {
		must.Fail(client.New(client.Config{URL: u}))(t, client.ErrURL, u)
	}
	s := start(t, func(h http.Handler) http.Handler { return http.StripPrefix("/history", h) })
	c := s.client(func(cfg *client.Config) { cfg.URL += "/history/" })
	require.Equal(t, "a b/c", must.Get(c.Session(t.Context(), "a b/c"))(t).SessionID)
}

func TestTheKeyIsSentAndNotFurther(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		t.Error("the redirect was followed")
	}))
	defer elsewhere.Close()
	var sent string
	s := stub(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent = r.Header.Get("Authorization")
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		})
	})
	_, err := s.client(func(cfg *client.Config) { cfg.Key = "secret" }).Session(t.Context(), "s")
	var p *client.Error
	require.ErrorAs(t, err, &p)
	require.Equal(t, http.StatusTemporaryRedirect, p.Status)
	require.Equal(t, "Bearer secret", sent)
}

func TestWhatIsNotTurnledgerIsAnError(t *testing.T) {
	t.Parallel()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = w.Write([]byte("<html>"))
	}))
	defer page.Close()
	c := must.Get(client.New(client.Config{URL: page.URL}))(t)
	defer c.Close()
	must.Fail(c.Session(t.Context(), "s"))(t, client.ErrAnswer)
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	big := s.client(nil)
	id := must.Get(big.OnRequestStarted(t.Context(), client.Start{SessionID: "s", RequestID: "r",
		QuestionNeutral: strings.Repeat("q", 4000)}))(t)
	require.NoError(t, big.OnRequestFinalized(t.Context(), client.Finalize{SessionID: "s", TurnID: id,
		AnswerNeutral: "a"}))
	small := s.client(func(cfg *client.Config) { cfg.MaxAnswer = 1000 })
	must.Fail(small.History(t.Context(), "s", 1))(t, client.ErrAnswerTooLarge)
}

// With ReadYourWrites every read names the newest position that a write on a session
// of its partition was answered with.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	s := start(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked = append(asked, r.Method+" "+r.URL.Query().Get("min_position"))
			mu.Unlock()
			h.ServeHTTP(w, r)
		})
	})
	c := s.client(func(cfg *client.Config) { cfg.ReadYourWrites = true })
	must.Get(c.Session(t.Context(), "s"))(t)
	turn := must.Get(c.StartTurn(t.Context(), client.Start{SessionID: "s", RequestID: "r", QuestionNeutral: "q"}))(t)
	must.Get(c.FinalizeTurn(t.Context(), client.Finalize{SessionID: "s", TurnID: turn.TurnID, AnswerNeutral: "a"}))(t)
	must.Get(c.StartTurn(t.Context(), client.Start{SessionID: "s", RequestID: "r", QuestionNeutral: "q"}))(t)
	must.Get(c.Turns(t.Context(), "s", client.TurnQuery{}))(t)
	must.Get(c.Context(t.Context(), "s", client.ContextRequest{Message: "m"}))(t)
	require.Error(t, must.Err(c.IdentityTurns(t.Context(), "ada", client.IdentityQuery{})))
	require.Equal(t, []string{"GET ", "POST ", "POST ", "POST ", "GET 0:2", "POST 0:2", "GET 0:2"}, asked)
}

func TestBranches(t *testing.T) {
	t.Parallel()
	c := start(t, nil).client(nil)
	ctx := t.Context()
	var turns []string
	for _, r := range []string{"1", "2", "3"} {
		turn := must.Get(c.StartTurn(ctx, client.Start{SessionID: "s", RequestID: r, QuestionNeutral: "q" + r}))(t)
		must.Get(c.FinalizeTurn(ctx, client.Finalize{SessionID: "s", TurnID: turn.TurnID, AnswerNeutral: "a"}))(t)
		turns = append(turns, turn.TurnID)
	}
	made := must.Get(c.Fork(ctx, client.Fork{SessionID: "s", RequestID: "f", TurnID: turns[1]}))(t)
	require.Equal(t, events.BranchID("s", "f"), made.SessionID)
	require.Equal(t, &client.ForkedFrom{SessionID: "s", TurnID: turns[1]}, made.ForkedFrom)
	require.False(t, made.Duplicate)
	again := must.Get(c.Fork(ctx, client.Fork{SessionID: "s", RequestID: "f", Branch: "other"}))(t)
	require.Equal(t, []any{made.SessionID, true}, []any{again.SessionID, again.Duplicate})
	before, err := c.Fork(ctx, client.Fork{SessionID: "s", RequestID: "g", BeforeTurnID: turns[1], Branch: "before"})
	require.NoError(t, err)
	require.Equal(t, []string{"before", turns[0]}, []string{before.SessionID, before.ForkedFrom.TurnID})
	empty := must.Get(c.Fork(ctx, client.Fork{SessionID: "s", RequestID: "h", BeforeTurnID: turns[0]}))(t)
	require.Equal(t, &client.ForkedFrom{SessionID: "s"}, empty.ForkedFrom)
	_, err = c.Fork(ctx, client.Fork{SessionID: "s", RequestID: "i", Branch: "before"})
	require.ErrorIs(t, err, &client.Error{Code: "session_exists"})
	must.Fail(c.Fork(ctx, client.Fork{SessionID: "s"}))(t, &client.Error{Code: "invalid_argument"})

	title := "Branch"
	described := must.Get(c.Describe(ctx, client.Describe{SessionID: made.SessionID, Title: &title}))(t)
	require.Equal(t, []any{"Branch", made.ForkedFrom}, []any{described.Title, described.ForkedFrom})
	page := must.Get(c.Turns(ctx, made.SessionID, client.TurnQuery{}))(t)
	require.Len(t, page.Turns, 2)
	require.Equal(t, []any{"s", turns[0], true},
		[]any{page.Turns[0].SessionID, page.Turns[0].TurnID, page.Turns[0].Inherited})
	_, err = c.Redact(ctx, client.Redact{SessionID: made.SessionID, TurnID: turns[0]})
	require.ErrorIs(t, err, &client.Error{Code: "turn_inherited"})
	var refused *client.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, &client.Origin{SessionID: "s", TurnID: turns[0]}, refused.Origin)
	require.ErrorContains(t, err, "(session s, turn "+turns[0]+")")
	_, err = c.Sessions(ctx, client.SessionQuery{IdentityID: "ada"})
	require.ErrorIs(t, err, &client.Error{Code: "audit_unavailable"}, "there is no PostgreSQL")
}
