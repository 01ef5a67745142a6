package read_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/write"
)

// reads counts the events that are read by their places, and calls before with each such read.
type reads struct {
	*jetlog.Log
	n      atomic.Int64
	before func()
}

func (l *reads) Some(ctx context.Context, partition int, seqs []uint64) ([]events.Recorded, error) {
	if l.n.Add(int64(len(seqs))); l.before != nil {
		l.before()
	}
	return l.Log.Some(ctx, partition, seqs)
}

// answeredTurns records turns whose texts end with their numbers.
func answeredTurns(t *testing.T, s process, session string, n int) (turns []services.Turn) {
	t.Helper()
	for i := range n {
		turn := must.Get(s.StartTurn(t.Context(), start(session, fmt.Sprint(i))))(t)
		must.Get(s.FinalizeTurn(t.Context(), finalize(session, fmt.Sprint(i))))(t)
		turns = append(turns, turn)
	}
	return turns
}

// listedTexts lists a session from its first turn on.
func listedTexts(t *testing.T, s process, session string) (all []string) {
	t.Helper()
	found, ok, err := s.TurnsBeside(t.Context(), services.BesideAsk{SessionID: session, Messages: 100})
	if err != nil {
		require.ErrorIs(t, err, decide.ErrSessionErased)
		return nil
	}
	require.True(t, ok)
	for _, turn := range found.Turns {
		all = append(all, turn.Question.QuestionNeutral)
		if turn.Answer != nil {
			all = append(all, turn.Answer.AnswerNeutral)
		}
	}
	return all
}

// TestWhatWasListedLatelyIsNotReadAgain: a page costs the log nothing the second time, and what came since is on it.
//
//conformance:o82
func TestWhatWasListedLatelyIsNotReadAgain(t *testing.T) {
	t.Parallel()
	log := &reads{Log: natstest.Log(t, 1)}
	s := run(t, log)
	answeredTurns(t, s, "s", 3)
	first := listedTexts(t, s, "s")
	require.Equal(t, []string{"q 0", "a 0", "q 1", "a 1", "q 2", "a 2"}, first)
	require.EqualValues(t, 6, log.n.Swap(0))
	require.Equal(t, first, listedTexts(t, s, "s"))
	require.Zero(t, log.n.Load())
	answeredTurns(t, s, "s", 4)
	require.Equal(t, append(first, "q 3", "a 3"), listedTexts(t, s, "s"))
}

// withdrawals take the answer "a 0", and perhaps more, away from a session.
var withdrawals = map[string]func(ctx context.Context, s process, turn services.Turn) error{
	"redacted": func(ctx context.Context, s process, turn services.Turn) error {
		_, err := s.RedactTurn(ctx, "s", decide.Redact{TurnID: turn.ID})
		return err
	},
	"corrected": func(ctx context.Context, s process, turn services.Turn) error {
		better := "better"
		_, err := s.CorrectTurn(ctx, decide.Correct{
			SessionID: "s", TurnID: turn.ID, RequestID: "c", AnswerNeutral: &better,
		})
		return err
	},
	"pruned": func(ctx context.Context, s process, turn services.Turn) error {
		_, err := s.PruneTurn(ctx, without("s", turn.ID, "p", "a 0"))
		return err
	},
	"erased": func(ctx context.Context, s process, _ services.Turn) error {
		_, err := s.EraseSession(ctx, "s", services.Erasure{})
		return err
	},
}

// TestWithdrawnTextsAreNotKept: texts that were listed are dropped, and listed no more, when they are withdrawn by this
// process or another one, whether or not the session is held in memory.
//
//conformance:o44
func TestWithdrawnTextsAreNotKept(t *testing.T) {
	t.Parallel()
	for name, withdraw := range withdrawals {
		for _, held := range []uint64{0, 1} { // by default, and no room for any session
			t.Run(fmt.Sprint(name, held), func(t *testing.T) {
				t.Parallel()
				log := natstest.Log(t, 1)
				cfg := write.Config{Policy: policy, StateBytes: held}
				mine, other := runWith(t, log, cfg), runWith(t, log, cfg)
				turn := answeredTurns(t, mine, "s", 2)[0]
				for _, s := range []process{mine, other} {
					require.Contains(t, listedTexts(t, s, "s"), "a 0")
					require.Contains(t, s.Listed("s"), "a 0")
				}
				require.NoError(t, withdraw(t.Context(), mine, turn))
				for _, s := range []process{mine, other} {
					require.NotContains(t, listedTexts(t, s, "s"), "a 0")
					require.NotContains(t, s.Listed("s"), "a 0")
				}
			})
		}
	}
}

// TestTextsThatAreWithdrawnWhileTheyAreReadAreNotKept: a reader has chosen its turns, and reads them from the log when
// one is redacted.
//
//conformance:o44
func TestTextsThatAreWithdrawnWhileTheyAreReadAreNotKept(t *testing.T) {
	t.Parallel()
	log := &reads{Log: natstest.Log(t, 1)}
	s := run(t, log)
	turn := answeredTurns(t, s, "s", 2)[0]
	redacted := false
	log.before = func() {
		if !redacted {
			redacted = true
			must.Get(s.RedactTurn(t.Context(), "s", decide.Redact{TurnID: turn.ID}))(t)
		}
	}
	listedTexts(t, s, "s")
	require.True(t, redacted)
	require.NotContains(t, s.Listed("s"), "a 0")
	require.Equal(t, []string{"q 1", "a 1"}, listedTexts(t, s, "s"))
	require.NotContains(t, s.Listed("s"), "a 0")
}

// TestListedTextsAreBounded: neither one long session nor many sessions take more than their room.
func TestListedTextsAreBounded(t *testing.T) {
	t.Parallel()
	s := run(t, natstest.Log(t, 1))
	for n := range 30 {
		session := fmt.Sprint("s", n)
		for i := range 4 {
			c := start(session, fmt.Sprint(i))
			c.Question.QuestionNeutral = strings.Repeat("q", 200<<10)
			must.Get(s.StartTurn(t.Context(), c))(t)
		}
		_, ok, err := s.TurnsBeside(t.Context(), services.BesideAsk{SessionID: session, Messages: 100})
		require.NoError(t, err)
		require.True(t, ok)
		require.Less(t, len(s.Listed(session)), 3, "of four, which are 400 KiB each with what was decoded of them")
	}
	weight, most := s.ListedBytes()
	require.LessOrEqual(t, weight, most)
	require.Greater(t, weight, most/2)
}
