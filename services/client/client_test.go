package client_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	id, err := service.OnRequestStarted(ctx, client.Start{
		SessionID: "a/b", RequestID: "r1", IdentityID: "ada", QuestionNeutral: "q1",
		QuestionMessages: []json.RawMessage{json.RawMessage(`{"role":"user","content":"q1"}`)},
		Metadata:         map[string]any{"secret": 1},
	})
	require.NoError(t, err)
	require.Equal(t, events.TurnID("a/b", "r1").String(), id)
	require.NoError(t, service.OnRequestFinalized(ctx, client.Finalize{SessionID: "a/b", TurnID: id,
		AnswerNeutral: "a1"}))

	var store client.SessionStore = c
	turns, err := store.ListRecentFinalizedTurns(ctx, "a/b", 5)
	require.NoError(t, err)
	require.Len(t, turns, 1)
	got := turns[0]
	require.Equal(t, "a1", got.AnswerNeutral)
	require.Equal(t, "ada", got.IdentityID)
	require.Equal(t, "finalized", got.Status)
	require.Equal(t, 1, got.RecordVersion)
	require.JSONEq(t, `{"role":"user","content":"q1"}`, string(got.QuestionMessages[0]))
	require.WithinDuration(t, time.Now(), got.FinalizedAt, time.Hour)
	require.True(t, got.DeletedAt.IsZero())

	pairs, err := c.History(ctx, "a/b", 0)
	require.NoError(t, err)
	require.Equal(t, []client.Pair{{QuestionNeutral: "q1", AnswerNeutral: "a1"}}, pairs)
	built, err := c.Context(ctx, "a/b", client.ContextRequest{Message: "m"})
	require.NoError(t, err)
	require.Len(t, built.Messages, 3)
	built, err = c.Context(ctx, "a/b", client.ContextRequest{Message: "m", ConversationHistory: []json.RawMessage{}})
	require.NoError(t, err)
	require.Equal(t, "request", built.Source)
}

func TestTheOtherCalls(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := s.client(nil)
	ctx := t.Context()
	var users client.UserStore = c
	session, err := users.LinkSession(ctx, "ada", "s")
	require.NoError(t, err)
	require.Equal(t, "ada", session.IdentityID)
	turn, err := c.StartTurn(ctx, client.Start{SessionID: "s", RequestID: "r", QuestionNeutral: "q"})
	require.NoError(t, err)
	require.False(t, turn.Duplicate)
	_, err = c.FinalizeTurn(ctx, client.Finalize{SessionID: "s", TurnID: turn.TurnID, RequestID: "r",
		AnswerNeutral: "a"})
	require.NoError(t, err)
	better := "better"
	fixed, err := c.Correct(ctx, client.Correct{SessionID: "s", TurnID: turn.TurnID, RequestID: "c",
		AnswerNeutral: &better})
	require.NoError(t, err)
	require.Equal(t, 2, fixed.RecordVersion)
	page, err := c.Turns(ctx, "s", client.TurnQuery{Status: "all", Limit: 1})
	require.NoError(t, err)
	require.Equal(t, fixed.TurnID, page.Turns[0].TurnID)
	page, err = c.Turns(ctx, "s", client.TurnQuery{Status: "all", Limit: 1, Cursor: page.NextCursor})
	require.NoError(t, err)
	require.Equal(t, fixed.TurnID, page.Turns[0].ReplacedByTurnID)
	require.Empty(t, page.NextCursor)
	gone, err := c.Redact(ctx, client.Redact{SessionID: "s", TurnID: turn.TurnID, Reason: "asked"})
	require.NoError(t, err)
	require.Equal(t, "redacted", gone.Status)
	require.False(t, gone.DeletedAt.IsZero())
	session, err = c.Reset(ctx, "s", "new topic")
	require.NoError(t, err)
	require.Zero(t, session.Turns)
	session, err = c.Session(ctx, "nobody")
	require.NoError(t, err)
	require.False(t, session.Found)
	list, err := c.Projections(ctx)
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = users.IdentityTurns(ctx, "ada", client.IdentityQuery{Since: time.Now(), Limit: 3})
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
		_, err = c.Session(t.Context(), id)
		require.ErrorIs(t, err, &client.Error{Code: "invalid_argument"}, "%q", id)
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, u := range []string{"127.0.0.1:8480", "ftp://x", "http://", "://", "http://a b"} {
		_, err := client.New(client.Config{URL: u})
		require.ErrorIs(t, err, client.ErrURL, u)
	}
	s := start(t, func(h http.Handler) http.Handler { return http.StripPrefix("/history", h) })
	c := s.client(func(cfg *client.Config) { cfg.URL += "/history/" })
	session, err := c.Session(t.Context(), "a b/c")
	require.NoError(t, err)
	require.Equal(t, "a b/c", session.SessionID)
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
	c, err := client.New(client.Config{URL: page.URL})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Session(t.Context(), "s")
	require.ErrorIs(t, err, client.ErrAnswer)
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	big := s.client(nil)
	id, err := big.OnRequestStarted(t.Context(), client.Start{SessionID: "s", RequestID: "r",
		QuestionNeutral: strings.Repeat("q", 4000)})
	require.NoError(t, err)
	require.NoError(t, big.OnRequestFinalized(t.Context(), client.Finalize{SessionID: "s", TurnID: id,
		AnswerNeutral: "a"}))
	small := s.client(func(cfg *client.Config) { cfg.MaxAnswer = 1000 })
	_, err = small.History(t.Context(), "s", 1)
	require.ErrorIs(t, err, client.ErrAnswerTooLarge)
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
	_, err := c.Session(t.Context(), "s")
	require.NoError(t, err)
	turn, err := c.StartTurn(t.Context(), client.Start{SessionID: "s", RequestID: "r", QuestionNeutral: "q"})
	require.NoError(t, err)
	_, err = c.FinalizeTurn(t.Context(), client.Finalize{SessionID: "s", TurnID: turn.TurnID, AnswerNeutral: "a"})
	require.NoError(t, err)
	_, err = c.StartTurn(t.Context(), client.Start{SessionID: "s", RequestID: "r", QuestionNeutral: "q"})
	require.NoError(t, err)
	_, err = c.Turns(t.Context(), "s", client.TurnQuery{})
	require.NoError(t, err)
	_, err = c.Context(t.Context(), "s", client.ContextRequest{Message: "m"})
	require.NoError(t, err)
	_, err = c.IdentityTurns(t.Context(), "ada", client.IdentityQuery{})
	require.Error(t, err)
	require.Equal(t, []string{"GET ", "POST ", "POST ", "POST ", "GET 0:2", "POST 0:2", "GET 0:2"}, asked)
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := s.client(nil)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			id, err := c.OnRequestStarted(t.Context(), client.Start{SessionID: "s", RequestID: fmt.Sprint(i / 2),
				QuestionNeutral: "q"})
			if err == nil {
				err = c.OnRequestFinalized(t.Context(), client.Finalize{SessionID: "s", TurnID: id, AnswerNeutral: "a"})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	turns, err := c.ListRecentFinalizedTurns(t.Context(), "s", 1000)
	require.NoError(t, err)
	require.Len(t, turns, 50)
}
