package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/services/client"
)

// troubled lets requests through to the API only after some have met trouble.
func troubled(times int32, trouble func(w http.ResponseWriter, r *http.Request, api http.Handler),
	seen *atomic.Int32) func(http.Handler) http.Handler {
	return func(api http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if seen.Add(1) <= times {
				trouble(w, r, api)
				return
			}
			api.ServeHTTP(w, r)
		})
	}
}

// drop does the work and loses the answer: the connection breaks.
func drop(_ http.ResponseWriter, r *http.Request, api http.Handler) {
	api.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// cut does the work and loses half of the answer.
func cut(w http.ResponseWriter, r *http.Request, api http.Handler) {
	done := httptest.NewRecorder()
	api.ServeHTTP(done, r)
	w.Header().Set("Content-Length", fmt.Sprint(done.Body.Len()))
	_, _ = w.Write(done.Body.Bytes()[:done.Body.Len()/2])
	panic(http.ErrAbortHandler)
}

// refuse breaks the connection before anything was done.
func refuse(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// hang does the work and never answers.
func hang(_ http.ResponseWriter, r *http.Request, api http.Handler) {
	api.ServeHTTP(httptest.NewRecorder(), r)
	<-r.Context().Done()
}

// status answers something else, with or without having done the work.
func status(code int, work bool) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, api http.Handler) {
		if work {
			api.ServeHTTP(httptest.NewRecorder(), r)
		} else {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		w.WriteHeader(code)
	}
}

var troubles = map[string]func(http.ResponseWriter, *http.Request, http.Handler){
	"a dropped answer":     drop,
	"half an answer":       cut,
	"a refused connection": refuse,
	"no answer in time":    hang,
	"429":                  status(429, false),
	"502 after the work":   status(502, true),
	"502 before the work":  status(502, false),
	"503 after the work":   status(503, true),
	"504 after the work":   status(504, true),
	"503 without the work": status(503, false),
}

// hasty makes a client that does not wait long where no answer comes.
func hasty(trouble string) func(*client.Config) {
	return func(cfg *client.Config) {
		if trouble == "no answer in time" {
			cfg.Attempt = time.Second
		}
	}
}

// throughTroubles runs a test with each trouble. Calls meet it until they call met, which checks that they did; calls
// behind it meet it anew.
func throughTroubles(t *testing.T, test func(t *testing.T, s *server, c *client.Client, met func())) {
	t.Helper()
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen atomic.Int32
			times := int32(3)
			if name == "no answer in time" {
				times = 1
			}
			s := start(t, troubled(times, trouble, &seen))
			test(t, s, s.client(hasty(name)), func() { require.GreaterOrEqual(t, seen.Swap(0), times+1) })
		})
	}
}

//conformance:h37
func TestATurnIsRecordedOnceWhateverHappens(t *testing.T) {
	t.Parallel()
	throughTroubles(t, func(t *testing.T, s *server, c *client.Client, met func()) {
		turn, err := c.StartTurn(t.Context(), client.Start{SessionID: "s", RequestID: "r", QuestionNeutral: "q"})
		require.NoError(t, err)
		met()
		must.Get(c.FinalizeTurn(t.Context(), client.Finalize{SessionID: "s", TurnID: turn.TurnID,
			AnswerNeutral: "a"}))(t)
		met()
		better := "better"
		must.Get(c.Correct(t.Context(), client.Correct{SessionID: "s", RequestID: "c", TurnID: turn.TurnID,
			AnswerNeutral: &better}))(t)
		met()
		must.Get(c.LinkSession(t.Context(), "ada", "s"))(t)
		met()
		require.Len(t, must.Get(c.ListRecentFinalizedTurns(t.Context(), "s", 10))(t), 1)
		met()
		must.Get(c.Redact(t.Context(), client.Redact{SessionID: "s", TurnID: turn.TurnID}))(t)
		require.Equal(t, 5, s.events("s"), "started, finalized, corrected, linked, redacted")
	})
}

func TestWhatMayNotBeSaidTwiceIsSentOnce(t *testing.T) {
	t.Parallel()
	better := "better"
	for name, call := range map[string]func(context.Context, *client.Client) error{
		"a start without request id": func(ctx context.Context, c *client.Client) error {
			_, err := c.StartTurn(ctx, client.Start{SessionID: "s", QuestionNeutral: "q"})
			return err
		},
		"a correction without request id": func(ctx context.Context, c *client.Client) error {
			_, err := c.Correct(ctx, client.Correct{SessionID: "s", TurnID: "t", AnswerNeutral: &better})
			return err
		},
		"a reset": func(ctx context.Context, c *client.Client) error {
			_, err := c.Reset(ctx, "s", "")
			return err
		},
	} {
		for trouble, does := range troubles {
			t.Run(name+" and "+trouble, func(t *testing.T) {
				t.Parallel()
				var seen atomic.Int32
				s := stub(t, troubled(1<<30, does, &seen))
				c := s.client(func(cfg *client.Config) {
					hasty(trouble)(cfg)
					cfg.Tries = 2
				})
				require.Error(t, call(t.Context(), c))
				want := int32(1)
				if trouble == "429" { // not looked at, and so not said
					want = 2
				}
				require.Equal(t, want, seen.Load())
			})
		}
	}
}

func TestWhatIsRefusedIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for _, code := range []int{400, 401, 403, 404, 409, 410, 413, 422, 500, 501} {
		var seen atomic.Int32
		s := stub(t, troubled(1<<30, status(code, false), &seen))
		_, err := s.client(nil).StartTurn(t.Context(), client.Start{SessionID: "s", RequestID: "r",
			QuestionNeutral: "q"})
		var p *client.Error
		require.ErrorAs(t, err, &p)
		require.Equal(t, code, p.Status)
		require.EqualValues(t, 1, seen.Load())
	}
}

func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	var seen atomic.Int32
	s := stub(t, troubled(1<<30, status(503, false), &seen))
	_, err := s.client(func(cfg *client.Config) { cfg.Tries = 3 }).Session(t.Context(), "s")
	var p *client.Error
	require.ErrorAs(t, err, &p)
	require.EqualValues(t, 3, seen.Load())

	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	c := must.Get(client.New(client.Config{URL: gone.URL, Tries: 2}))(t)
	_, err = c.Session(t.Context(), "a-session")
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), "a-session")
}

// The server says when to come back: not before, and not if that is too late.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	var seen atomic.Int32
	wait := "1"
	s := stub(t, troubled(1, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Retry-After", wait)
		w.WriteHeader(http.StatusTooManyRequests)
	}, &seen))
	began := time.Now()
	must.Get(s.client(nil).Session(t.Context(), "s"))(t)
	require.GreaterOrEqual(t, time.Since(began), time.Second)

	seen.Store(0)
	wait = time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	_, err := s.client(nil).Session(t.Context(), "s")
	var p *client.Error
	require.ErrorAs(t, err, &p)
	require.Equal(t, http.StatusTooManyRequests, p.Status)
	require.EqualValues(t, 1, seen.Load())
}

func TestTheCallerMayGiveUp(t *testing.T) {
	t.Parallel()
	var seen atomic.Int32
	s := stub(t, troubled(1<<30, hang, &seen))
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	go func() { // once the call is at the server
		for seen.Load() == 0 && pause.For(ctx, time.Millisecond) {
		}
		giveUp()
	}()
	_, err := s.client(nil).StartTurn(ctx, client.Start{SessionID: "s", RequestID: "r", QuestionNeutral: "q"})
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, seen.Load())
}

// line is an event as the server prints it; the text holds what looks like a position.
func line(seq int) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"e%d","source":"\",\"position\":\"7:7","type":"t","subject":"s","position":"0:%d","recordedat":"2026-11-21T08:00:00Z","data":{"position":"9:9"}}`+"\n", seq, seq)
}

// brokenLog is a server whose log has some events, and which breaks off after each few, in
// the middle of a line.
func brokenLog(held, atOnce int, asked *atomic.Int64) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			after := 0
			if from, err := events.ParsePositions(r.URL.Query().Get("from")); err == nil {
				after = int(from[0].Seq)
			}
			h := w.Header()
			h.Set("Turnledger-From", fmt.Sprintf("0:%d", after))
			h.Set("Turnledger-End", fmt.Sprintf("0:%d", held))
			h.Set("Trailer", "Turnledger-Position")
			for seq := after + 1; seq <= held; seq++ {
				_, _ = w.Write([]byte(line(seq) + "\n"))
				if seq-after == atOnce {
					_, _ = w.Write([]byte(line(seq + 1)[:40]))
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}
			}
			h.Set("Turnledger-Position", fmt.Sprintf("0:%d", held+3))
		})
	}
}

func TestEventsGoOnWhereTheyBrokeOff(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := stub(t, brokenLog(30, 7, &asked))
	reading := s.client(nil).Events(client.EventQuery{Types: []string{"a", "b"}})
	var got []uint64
	for e, err := range reading.All(t.Context()) {
		require.NoError(t, err)
		require.True(t, json.Valid(e.JSON))
		got = append(got, e.Position.Seq)
		passed, total := reading.Progress()
		require.Equal(t, []uint64{e.Position.Seq, 30}, []uint64{passed, total})
	}
	require.Len(t, got, 30)
	for i, seq := range got {
		require.Equal(t, uint64(i+1), seq)
	}
	require.Equal(t, int64(5), asked.Load())
	require.Equal(t, "0:33", reading.Position(), "what the query left out at the end is passed, too")
}

func TestEventsGiveUp(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	never := refusing(t, http.StatusServiceUnavailable, &asked)
	c := never.client(func(c *client.Config) { c.Tries = 3 })
	require.Equal(t, http.StatusServiceUnavailable, failure(t, c.Events(client.EventQuery{})).Status)
	require.Equal(t, int64(3), asked.Load())

	asked.Store(0)
	refused := refusing(t, http.StatusUnprocessableEntity, &asked)
	require.Equal(t, "some_code", failure(t, refused.client(nil).Events(client.EventQuery{})).Code)
	require.Equal(t, int64(1), asked.Load())
}

// refusing is a server that always answers with a problem.
func refusing(t *testing.T, status int, asked *atomic.Int64) *server {
	t.Helper()
	return stub(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"code":"some_code"}`))
		})
	})
}

func failure(t *testing.T, reading *client.Events) *client.Error {
	t.Helper()
	for _, err := range reading.All(t.Context()) {
		var p *client.Error
		require.ErrorAs(t, err, &p)
		return p
	}
	t.Fatal("no error")
	return nil
}

func TestEventsEndWithTheirReader(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	srv := stub(t, brokenLog(30, 100, &asked))
	reading := srv.client(nil).Events(client.EventQuery{})
	for e, err := range reading.All(t.Context()) {
		require.NoError(t, err)
		if e.Position.Seq == 4 {
			break
		}
	}
	require.Equal(t, "0:4", reading.Position())
	// A second All goes on after it.
	for e, err := range reading.All(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, uint64(5), e.Position.Seq)
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range reading.All(ctx) {
		require.ErrorIs(t, err, context.Canceled)
	}
}
