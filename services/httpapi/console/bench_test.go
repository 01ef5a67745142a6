package console_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
)

// long records a session of many turns.
func (s *stack) long(session string, turns int) {
	s.t.Helper()
	const atOnce = 1000
	text := strings.Repeat("Some words of a conversation. ", 12)
	for n := 0; n < turns; n += atOnce {
		var list []decide.Start
		for i := n; i < min(n+atOnce, turns); i++ {
			list = append(list, decide.Start{
				SessionID: session, RequestID: fmt.Sprint(i), Answer: &events.Answer{AnswerNeutral: text},
				Question: events.Question{QuestionNeutral: fmt.Sprintf("question %d of many: %s", i, text)},
			})
		}
		for _, out := range s.services.History.StartTurns(s.t.Context(), list) {
			require.NoError(s.t, out.Err)
		}
	}
}

// longPages are pages of a long session: the newest turns, old ones, and an explanation in the middle.
func longPages(turns int) map[string]string {
	middle := events.TurnID("long", fmt.Sprint(turns/2)).String()
	return map[string]string{
		"newest": "/console/sessions/long", "older": "/console/sessions/long?before=" + middle,
		"position":    "/console/sessions/long?at=0:" + fmt.Sprint(turns/2),
		"explanation": "/console/sessions/long/turns/" + middle,
	}
}

// A session of many turns has pages of a bounded size, which lead through all of it.
func TestALongSession(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	const turns = 600 // more than the recent view keeps
	s.long("long", turns)
	pages := longPages(turns)
	for name, path := range pages {
		a := s.page(path, "")
		require.Equal(t, http.StatusOK, a.status, name)
		require.LessOrEqual(t, len(a.body), mostPage, name)
	}
	require.Contains(t, s.page(pages["newest"], "").body, "question 599 of many")
	require.Contains(t, s.page(pages["older"], "").body, "question 299 of many")
	require.Contains(t, s.page(pages["position"], "").body, "question 299 of many")
	require.Contains(t, s.page(pages["explanation"], "").body, "of 600")
}

// BenchmarkPages measures pages of a session of 5,000 turns: each for the first time, and again; the newest page also
// after another turn came. The floor is what a first page can't do without: the session's events, read and decoded.
func BenchmarkPages(b *testing.B) {
	s := start(b, nil)
	const turns = 5000
	s.long("long", turns)
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			n := 0
			for _, err := range s.log.Session(b.Context(), "long", 0, math.MaxUint64) {
				require.NoError(b, err)
				n++
			}
			require.GreaterOrEqual(b, n, 2*turns)
		}
	})
	measure := func(name, path string, before func()) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				before()
				b.StartTimer()
				require.Equal(b, http.StatusOK, s.page(path, "").status)
			}
		})
	}
	more := turns
	for name, path := range longPages(turns) {
		measure(name+"/first", path, s.forget)
		measure(name+"/again", path, func() {})
	}
	measure("newest/live", "/console/sessions/long", func() {
		more++
		s.turn("long", fmt.Sprint(more), "one more", "an answer")
	})
}
