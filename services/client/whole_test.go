package client_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/natstest"
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
		st := natstest.Fold(s.t, s.log, id, conversation.Rules{})
		require.Equal(s.t, n, st.Finalized)
		require.Zero(s.t, st.Pending)
		for i, turn := range st.Turns {
			require.Equal(s.t, fmt.Sprint("r", i), turn.RequestID)
			require.Equal(s.t, fmt.Sprint("a", i), turn.Answer.AnswerNeutral)
		}
		require.Equal(s.t, 2*n, s.events(id), "each event is in the log once")
	}
}

func TestTurnsAreRecordedOnceWhateverHappens(t *testing.T) {
	t.Parallel()
	throughTroubles(t, func(t *testing.T, s *server, c *client.Client, met func()) {
		got, err := c.RecordTurns(t.Context(), wholes(10, "s", "t"))
		require.NoError(t, err)
		for _, r := range got {
			require.NoError(t, r.Err)
			require.Contains(t, []int{200, 201}, r.Status)
		}
		met()
		turn, err := c.RecordTurn(t.Context(), wholes(1, "one")[0])
		require.NoError(t, err)
		require.Equal(t, "finalized", turn.Status)
		s.requireWholes(10, "s", "t")
		s.requireWholes(1, "one")
	})
}

// Two clients send batches that overlap at the same time, and each of them twice.
func TestOverlappingBatchesOfTwoClients(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	all := wholes(40, "s", "t", "u")
	created := make([]atomic.Int32, len(all))
	var both sync.WaitGroup
	for range 2 {
		c := s.client(nil)
		for range 2 {
			both.Go(func() {
				got, err := c.RecordTurns(t.Context(), all)
				if err != nil {
					t.Error(err)
					return
				}
				for i, r := range got {
					if r.Err != nil || r.TurnID != events.TurnID(all[i].SessionID, all[i].RequestID).String() {
						t.Errorf("line %d: %+v", i, r)
					}
					if !r.Duplicate {
						created[i].Add(1)
					}
				}
			})
		}
	}
	both.Wait()
	for i := range created {
		require.EqualValues(t, 1, created[i].Load(), "line %d", i)
	}
	s.requireWholes(40, "s", "t", "u")
}

// A batch with a session that is erased meanwhile, and with lines that are refused: each answer is true.
func TestABatchWithASessionThatIsErasedMeanwhile(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := s.client(nil)
	_, err := c.RecordTurns(t.Context(), wholes(1, "erased", "kept"))
	require.NoError(t, err)
	all := wholes(400, "erased", "kept")
	bad := all[7]
	bad.Start.RequestID, bad.Answer = "bad", &client.Answer{AnswerTranslated: "only"}
	all[7] = bad
	var erasing sync.WaitGroup
	erasing.Go(func() {
		natstest.Append(t, s.log, &events.SessionErased{SessionID: "erased", ReceiptID: "0-1-a"})
	})
	got, err := c.RecordTurns(t.Context(), all)
	require.NoError(t, err)
	erasing.Wait()
	refused := 0
	for i, r := range got {
		switch {
		case i == 7:
			require.ErrorIs(t, r.Err, &client.Error{Code: "invalid_argument"})
		case all[i].SessionID == "kept":
			require.NoError(t, r.Err)
		case r.Err != nil:
			require.ErrorIs(t, r.Err, &client.Error{Code: "session_erased"})
			refused++
		default:
			require.Zero(t, refused, "a turn was recorded behind one that was refused for the erasure")
		}
	}
	for i, r := range must(c.RecordTurns(t.Context(), all)) {
		switch {
		case i == 7:
		case all[i].SessionID == "kept":
			require.True(t, r.Duplicate)
		default:
			require.ErrorIs(t, r.Err, &client.Error{Code: "session_erased"})
		}
	}
	st := natstest.Fold(t, s.log, "erased", conversation.Rules{})
	require.NotZero(t, st.Erased)
	require.Empty(t, st.Turns)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestRecordNewTurnsLeavesWhatStands(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := s.client(nil)
	_, err := c.StartTurn(t.Context(), client.Start{SessionID: "s", RequestID: "r0", QuestionNeutral: "another"})
	require.NoError(t, err)
	got, err := c.RecordNewTurns(t.Context(), wholes(2, "s"))
	require.NoError(t, err)
	require.Equal(t, 200, got[0].Status)
	require.True(t, got[0].Duplicate)
	require.Equal(t, 201, got[1].Status)
	st := natstest.Fold(t, s.log, "s", conversation.Rules{})
	require.Equal(t, 1, st.Pending)
	require.Equal(t, 1, st.Finalized)
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
	got, err := c.RecordTurns(t.Context(), append(wholes(600, "s"), wholes(2, "t")...))
	require.NoError(t, err)
	require.Equal(t, 201, got[0].Status)
	for _, r := range got[1:600] {
		require.Equal(t, 429, r.Status)
		require.ErrorIs(t, r.Err, &client.Error{Code: "rate_limited"})
	}
	s.requireWholes(2, "t")
	require.Less(t, int(sent.Load()), 600, "what comes behind refused turns is not sent")
}
