package client_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/client"
)

// wholes returns n whole turns of each session, by turns.
func wholes(n int, sessions ...string) (out []client.WholeTurn) {
	for i := range n {
		for _, s := range sessions {
			out = append(out, client.WholeTurn{
				Start:  client.Start{SessionID: s, RequestID: fmt.Sprint("r", i), QuestionNeutral: fmt.Sprint("q", i)},
				Answer: &client.Answer{AnswerNeutral: fmt.Sprint("a", i)},
			})
		}
	}
	return out
}

// requireWholes holds the log against so many turns of each session, each once and in order.
func (s *server) requireWholes(n int, sessions ...string) {
	s.t.Helper()
	for _, id := range sessions {
		st := natstest.Fold(s.t, s.log, id, session.Rules{})
		require.Equal(s.t, n, st.Finalized)
		require.Zero(s.t, st.Pending)
		for i, turn := range st.Turns {
			require.Equal(s.t, fmt.Sprint("r", i), turn.RequestID)
			require.Equal(s.t, fmt.Sprint("a", i), turn.Answer.AnswerNeutral)
		}
		require.Equal(s.t, n, s.events(id), "each turn is in the log once")
	}
}

func TestTurnsAreRecordedOnceWhateverHappens(t *testing.T) {
	t.Parallel()
	throughTroubles(t, func(t *testing.T, s *server, c *client.Client, met func()) {
		got := must.Get(c.RecordTurns(t.Context(), wholes(10, "s", "t")))(t)
		for _, r := range got {
			require.NoError(t, r.Err)
			require.Contains(t, []int{200, 201}, r.Status)
		}
		met()
		require.Equal(t, "finalized", must.Get(c.RecordTurn(t.Context(), wholes(1, "one")[0]))(t).Status)
		s.requireWholes(10, "s", "t")
		s.requireWholes(1, "one")
	})
}

// A read after RecordTurns names the newest position of its session's turns, and each turn says which metadata it did
// not keep.
func TestWhatRecordTurnsLearned(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	s := start(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Store(r.URL.Query().Get("min_position"))
			h.ServeHTTP(w, r)
		})
	})
	c := s.client(func(cfg *client.Config) { cfg.ReadYourWrites = true })
	turns := wholes(2, "s", "t")
	turns[3].Metadata = map[string]any{"unknown": "x"}
	got := must.Get(c.RecordTurns(t.Context(), turns))(t)
	require.Empty(t, got[2].DroppedMetadata)
	require.Equal(t, []string{"unknown"}, got[3].DroppedMetadata)
	for session, newest := range map[string]client.Recorded{"s": got[2], "t": got[3]} {
		must.Get(c.Turns(t.Context(), session, client.TurnQuery{}))(t)
		at := must.Get(events.ParsePosition(newest.Position))(t)
		require.GreaterOrEqual(t, must.Get(events.ParsePosition(asked.Load().(string)))(t).Seq, at.Seq, session)
	}
}

func TestRecordNewTurnsLeavesWhatStands(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := s.client(nil)
	must.Get(c.StartTurn(t.Context(), client.Start{SessionID: "s", RequestID: "r0", QuestionNeutral: "another"}))(t)
	got := must.Get(c.RecordNewTurns(t.Context(), wholes(2, "s")))(t)
	require.Equal(t, 200, got[0].Status)
	require.True(t, got[0].Duplicate)
	require.Equal(t, 201, got[1].Status)
	st := natstest.Fold(t, s.log, "s", session.Rules{})
	require.Equal(t, 1, st.Pending)
	require.Equal(t, 1, st.Finalized)
}

// A line that says when it may come again is not sent before, and not at all if that is too late.
func TestALineSaysWhenItMayComeAgain(t *testing.T) {
	t.Parallel()
	var sent atomic.Int32
	wait := "1"
	s := start(t, func(api http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if sent.Add(1) == 1 {
				_, _ = io.WriteString(w, `{"http_status":429,"code":"rate_limited","retry_after":`+wait+`}`)
				return
			}
			api.ServeHTTP(w, r)
		})
	})
	began := time.Now()
	got := must.Get(s.client(nil).RecordTurns(t.Context(), wholes(1, "s")))(t)
	require.Equal(t, 201, got[0].Status)
	require.GreaterOrEqual(t, time.Since(began), time.Second)

	sent.Store(0)
	wait = "3600"
	got = must.Get(s.client(nil).RecordTurns(t.Context(), wholes(1, "s")))(t)
	require.ErrorIs(t, got[0].Err, &client.Error{Code: "rate_limited"})
	require.EqualValues(t, 1, sent.Load())
}

// Where a request gets no answer in the end, the turns that were answered keep their answers, also those that an
// earlier try of it brought. A request with many turns may take longer than another call.
func TestARequestOfManyWithoutAnswer(t *testing.T) {
	t.Parallel()
	var sent atomic.Int32
	s := start(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			switch sent.Add(1) {
			case 1:
				<-time.After(time.Second)
				_, _ = io.WriteString(w, strings.Repeat(`{"http_status":201}`, 500))
			case 2:
				_, _ = io.WriteString(w, strings.Repeat(`{"http_status":201}`, 499)+
					`{"http_status":429,"code":"rate_limited"}`)
			default:
				panic(http.ErrAbortHandler)
			}
		})
	})
	c := s.client(func(cfg *client.Config) { cfg.Tries, cfg.Attempt = 2, 700*time.Millisecond })
	got, err := c.RecordTurns(t.Context(), wholes(1100, "s"))
	require.Error(t, err)
	for i, r := range got {
		switch {
		case i < 999:
			require.NoError(t, r.Err)
			require.Equal(t, 201, r.Status)
		case i == 999:
			require.ErrorIs(t, r.Err, &client.Error{Code: "rate_limited"})
		default:
			require.ErrorIs(t, err, r.Err)
			require.Zero(t, r.Status)
		}
	}
}

// Turns that are together larger than a request may be, or more, go in several.
func TestLargeTurnsGoInSeveralRequests(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	turns := wholes(12, "s")
	for i := range turns {
		turns[i].AnswerNeutral = strings.Repeat("x", 900<<10)
	}
	turns = append(turns, wholes(1100, "t")...)
	got := must.Get(s.client(nil).RecordTurns(t.Context(), turns))(t)
	for i, r := range got {
		require.Equal(t, 201, r.Status, i)
	}
	st := natstest.Fold(t, s.log, "s", session.Rules{})
	for i, turn := range st.Turns {
		require.Equal(t, fmt.Sprint("r", i), turn.RequestID)
	}
}

// Where the patience ends with turns that are refused for the moment, no later turn of their session is sent, and the
// other sessions go on.
func TestNoTurnComesBeforeARefusedOne(t *testing.T) {
	t.Parallel()
	var sent atomic.Int32
	s := start(t, func(api http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			var others []byte
			for line := range bytes.Lines(body) {
				switch {
				case !bytes.Contains(line, []byte(`"session_id":"s"`)):
					others = append(others, line...)
				case sent.Add(1) == 1:
					_, _ = io.WriteString(w, `{"http_status":201}`)
				default:
					_, _ = io.WriteString(w, `{"http_status":429,"code":"rate_limited"}`)
				}
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(others)), int64(len(others))
			api.ServeHTTP(w, r)
		})
	})
	c := s.client(func(cfg *client.Config) { cfg.Tries = 1 })
	got := must.Get(c.RecordTurns(t.Context(), append(wholes(600, "s"), wholes(2, "t")...)))(t)
	require.Equal(t, 201, got[0].Status)
	for _, r := range got[1:600] {
		require.Equal(t, 429, r.Status)
		require.ErrorIs(t, r.Err, &client.Error{Code: "rate_limited"})
	}
	s.requireWholes(2, "t")
	require.Less(t, int(sent.Load()), 600, "what comes behind refused turns is not sent")
}
