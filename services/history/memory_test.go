package history_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services/history"
)

// TestMemoryIsBoundedByWhatWaitsForAnAnswer holds that the weight of what is held counts
// the questions in it, and that a question goes with its answer: whether the service saw both come,
// or read them from the log, and also where another version took the turn's place.
//
//conformance:i85
func TestMemoryIsBoundedByWhatWaitsForAnAnswer(t *testing.T) {
	t.Parallel()
	const sessions, turns, length = 5, 10, 20_000
	log := natstest.Log(t, 1)
	live := run(t, log)
	ctx := t.Context()
	each := func(f func(session, request string)) {
		for i := range sessions * turns {
			f(fmt.Sprint("s", i%sessions), fmt.Sprint(i))
		}
	}
	each(func(session, request string) {
		c := start(session, request)
		c.Question.QuestionNeutral = strings.Repeat("q", length)
		_, err := live.StartTurn(ctx, c)
		require.NoError(t, err)
	})
	read := func() *history.Service {
		s := run(t, log)
		for i := range sessions {
			_, err := s.LinkSession(ctx, fmt.Sprint("s", i), "ada", "")
			require.NoError(t, err)
		}
		return s
	}
	for name, s := range map[string]*history.Service{"live": live, "read": read()} {
		weight, texts := s.InMemory()
		require.Equal(t, sessions*turns*length, texts, name)
		require.GreaterOrEqual(t, weight, uint64(texts), "%s: the bound does not see the questions", name)
	}
	words := "better"
	each(func(session, request string) {
		f := finalize(session, request)
		f.Answer.AnswerNeutral = strings.Repeat("a", length)
		turn, err := live.FinalizeTurn(ctx, f)
		require.NoError(t, err)
		require.Len(t, turn.Question.QuestionNeutral, length, "the writer of an answer is shown both halves")
		_, err = live.CorrectTurn(ctx, conversation.Correct{SessionID: session, TurnID: turn.ID, RequestID: "c" +
			request, AnswerNeutral: &words})
		require.NoError(t, err)
	})
	for name, s := range map[string]*history.Service{"live": live, "read": read()} {
		weight, texts := s.InMemory()
		require.Zero(t, texts, name)
		require.Less(t, weight, uint64(sessions*turns*1000), name)
	}
}

// TestAWriteAfterTheLastEventWasErased: the server's last sequence of a session goes back
// when its last event is deleted, and what the service states as its expectation follows it.
func TestAWriteAfterTheLastEventWasErased(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	log := natstest.LogOn(t, server, 1)
	js, err := jetstream.New(natstest.Connect(t, server))
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), events.StreamName(0))
	require.NoError(t, err)
	s := run(t, log)
	ctx := t.Context()
	_, err = s.StartTurn(ctx, start("s", "first"))
	require.NoError(t, err)
	gone, err := s.StartTurn(ctx, start("s", "second"))
	require.NoError(t, err)
	require.NoError(t, stream.SecureDeleteMsg(ctx, gone.Position.Seq))
	linked, err := s.LinkSession(ctx, "s", "ada", "")
	require.NoError(t, err)
	require.Equal(t, "ada", linked.Identity)
	redacted, err := s.RedactTurn(ctx, "s", conversation.Redact{TurnID: events.TurnID("s", "first")})
	require.NoError(t, err)
	require.Equal(t, conversation.Redacted, redacted.Status)
}
