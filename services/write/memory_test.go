package write_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/write"
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
		must.Get(live.StartTurn(ctx, c))(t)
	})
	read := func() *write.Service {
		s := run(t, log)
		for i := range sessions {
			must.Get(s.LinkSession(ctx, fmt.Sprint("s", i), "ada", ""))(t)
		}
		return s
	}
	for name, s := range map[string]*write.Service{"live": live, "read": read()} {
		weight, texts := s.InMemory()
		require.Equal(t, sessions*turns*length, texts, name)
		require.GreaterOrEqual(t, weight, uint64(texts), "%s: the bound does not see the questions", name)
	}
	words := "better"
	each(func(session, request string) {
		f := finalize(session, request)
		f.Answer.AnswerNeutral = strings.Repeat("a", length)
		turn := must.Get(live.FinalizeTurn(ctx, f))(t)
		require.Len(t, turn.Question.QuestionNeutral, length, "the writer of an answer is shown both halves")
		must.Get(live.CorrectTurn(ctx, decide.Correct{SessionID: session, TurnID: turn.ID, RequestID: "c" +
			request, AnswerNeutral: &words}))(t)
	})
	for name, s := range map[string]*write.Service{"live": live, "read": read()} {
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
	js := must.Get(jetstream.New(natstest.Connect(t, server)))(t)
	stream := must.Get(js.Stream(t.Context(), events.StreamName(0)))(t)
	s := run(t, log)
	ctx := t.Context()
	must.Get(s.StartTurn(ctx, start("s", "first")))(t)
	gone := must.Get(s.StartTurn(ctx, start("s", "second")))(t)
	require.NoError(t, stream.SecureDeleteMsg(ctx, gone.Position.Seq))
	linked := must.Get(s.LinkSession(ctx, "s", "ada", ""))(t)
	require.Equal(t, "ada", linked.Identity)
	redacted := must.Get(s.RedactTurn(ctx, "s", decide.Redact{TurnID: events.TurnID("s", "first")}))(t)
	require.Equal(t, session.Redacted, redacted.Status)
}
