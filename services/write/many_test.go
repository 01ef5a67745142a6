package write_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// whole is a start that brings its answer.
func wholeTurn(session, request string) decide.Start {
	c := start(session, request)
	c.Answer = &events.Answer{AnswerNeutral: "a " + request}
	return c
}

func TestAStartWithItsAnswerIsOneEvent(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := run(t, log)
	turn := must.Get(s.StartTurn(t.Context(), wholeTurn("s", "r")))(t)
	require.Equal(t, session.Finalized, turn.Status)
	require.Equal(t, "q r", turn.Question.QuestionNeutral)
	require.Equal(t, "a r", turn.Answer.AnswerNeutral)
	require.False(t, turn.Duplicate)
	require.False(t, turn.Existed)
	require.EqualValues(t, 1, turn.Position.Seq)

	again := must.Get(s.StartTurn(t.Context(), decide.Start{SessionID: "s", RequestID: "r",
		Question: events.Question{QuestionNeutral: "other"}, Answer: &events.Answer{AnswerNeutral: "other"}}))(t)
	require.True(t, again.Duplicate)
	require.Equal(t, "q r", again.Question.QuestionNeutral)
	require.Equal(t, "a r", again.Answer.AnswerNeutral)
	require.Equal(t, turn.Position, again.Position)
	require.EqualValues(t, 1, head(t, log))
}

func head(t *testing.T, log *jetlog.Log) uint64 {
	t.Helper()
	return must.Get(log.Head(t.Context(), 0))(t).Seq
}

func TestAWholeTurnFinalizesAPendingOne(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := run(t, log)
	first := start("s", "r")
	first.Question.TranslateChat = true
	must.Get(s.StartTurn(t.Context(), first))(t)
	c := wholeTurn("s", "r")
	c.Question.QuestionNeutral = "other"
	turn := must.Get(s.StartTurn(t.Context(), c))(t)
	require.Equal(t, session.Finalized, turn.Status)
	require.False(t, turn.Duplicate)
	require.True(t, turn.Existed)
	require.Equal(t, "q r", turn.Question.QuestionNeutral)
	require.Equal(t, "a r", turn.Answer.AnswerNeutral)
	require.Equal(t, "a r", turn.Answer.AnswerTranslated, "the question that stands asked for a translation")
	require.EqualValues(t, 2, head(t, log))
}

func TestAWholeTurnOfARedactedReplacedOrForeignOne(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := run(t, log)
	ctx := t.Context()
	for _, r := range []string{"redacted", "replaced"} {
		must.Get(s.StartTurn(ctx, wholeTurn("s", r)))(t)
	}
	must.Get(s.RedactTurn(ctx, "s", decide.Redact{TurnID: events.TurnID("s", "redacted")}))(t)
	text := "corrected"
	must.Get(s.CorrectTurn(ctx, decide.Correct{SessionID: "s", RequestID: "correction",
		TurnID: events.TurnID("s", "replaced"), AnswerNeutral: &text}))(t)
	before := head(t, log)
	for r, status := range map[string]session.Status{
		"redacted": session.Redacted, "replaced": session.Replaced,
	} {
		turn := must.Get(s.StartTurn(ctx, wholeTurn("s", r)))(t)
		require.Equal(t, status, turn.Status)
		require.True(t, turn.Duplicate)
	}
	must.Fail(s.StartTurn(ctx, wholeTurn("s", "correction")))(t, decide.ErrRequestIDInUse)
	require.Equal(t, before, head(t, log))

	must.Get(s.LinkSession(ctx, "s", "ada", ""))(t)
	foreign := wholeTurn("s", "foreign")
	foreign.IdentityID = "bob"
	must.Fail(s.StartTurn(ctx, foreign))(t, decide.ErrLinkedElsewhere)
	require.Nil(t, natstest.Fold(t, log, "s", session.Rules{}).Turn(events.TurnID("s", "foreign")))
}

// lines returns n whole turns of each session, by turns.
func turnsOf(n int, sessions ...string) (out []decide.Start) {
	for i := range n {
		for _, s := range sessions {
			out = append(out, wholeTurn(s, fmt.Sprint("r", i)))
		}
	}
	return out
}

func TestManyTurnsAtOnce(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 4)
	s := run(t, log)
	commands := turnsOf(30, "a", "b", "c", "d", "e")
	first := s.StartTurns(t.Context(), commands)
	for i, o := range first {
		require.NoError(t, o.Err)
		require.Equal(t, events.TurnID(commands[i].SessionID, commands[i].RequestID), o.Turn.ID)
		require.Equal(t, session.Finalized, o.Turn.Status)
		require.False(t, o.Turn.Duplicate)
		require.False(t, o.Turn.Existed)
	}
	for _, sessionID := range []string{"a", "b", "c", "d", "e"} {
		st := natstest.Fold(t, log, sessionID, session.Rules{})
		require.Equal(t, 30, st.Finalized)
		for i, turn := range st.Turns {
			require.Equal(t, fmt.Sprint("r", i), turn.RequestID, "the order of the lines is that of the turns")
		}
	}
	for i, o := range s.StartTurns(t.Context(), commands) {
		require.NoError(t, o.Err)
		require.True(t, o.Turn.Duplicate)
		require.Equal(t, first[i].Turn.Position, o.Turn.Position)
	}
	// A process that holds none of them in memory.
	for i, o := range run(t, log).StartTurns(t.Context(), commands) {
		require.NoError(t, o.Err)
		require.True(t, o.Turn.Duplicate)
		require.Equal(t, first[i].Turn.Position, o.Turn.Position)
	}
	for k, n := range heads(t, log) {
		require.LessOrEqual(t, n, uint64(30*5), "partition %d", k)
	}
	total := uint64(0)
	for _, n := range heads(t, log) {
		total += n
	}
	require.EqualValues(t, 30*5, total)
}

func heads(t *testing.T, log *jetlog.Log) (out []uint64) {
	t.Helper()
	for k := range log.Partitions() {
		at := must.Get(log.Head(t.Context(), k))(t)
		out = append(out, at.Seq)
	}
	return out
}

func TestLinesOfABatchStandByThemselves(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := run(t, log)
	ctx := t.Context()
	must.Get(s.LinkSession(ctx, "bobs", "bob", ""))(t)
	must.Get(s.StartTurn(ctx, start("gone", "r")))(t)
	must.Get(s.EraseSession(ctx, "gone", services.Erasure{}))(t)
	must.Get(s.StartTurn(ctx, start("s", "pending")))(t)

	linked := func(sessionID, request, identity string) decide.Start {
		c := wholeTurn(sessionID, request)
		c.IdentityID = identity
		return c
	}
	empty := wholeTurn("s", "empty")
	empty.Answer = &events.Answer{}
	huge := wholeTurn("s", "huge")
	huge.Answer.AnswerNeutral = strings.Repeat("x", 9<<20)
	// What is too large here is no text, so that it is tried together with its neighbours.
	hugeName := wholeTurn("s", "huge name")
	hugeName.Question.PipelineName = huge.Answer.AnswerNeutral
	commands := []decide.Start{
		wholeTurn("s", "1"),              // 0
		empty,                            // 1
		wholeTurn("s", "1"),              // 2: the same again
		start("s", "2"),                  // 3: without an answer
		wholeTurn("s", "2"),              // 4: with it
		linked("bobs", "1", "ada"),       // 5
		linked("bobs", "2", "ada"),       // 6
		wholeTurn("bobs", "3"),           // 7
		wholeTurn("gone", "x"),           // 8
		huge,                             // 9
		wholeTurn("s", "3"),              // 10
		wholeTurn("s", "pending"),        // 11
		linked("new", "1", "ada"),        // 12
		linked("new", "2", "ada"),        // 13
		linked("new", "3", "bob"),        // 14
		wholeTurn("bad\x00session", "1"), // 15
		hugeName,                         // 16
		wholeTurn("s", "4"),              // 17
	}
	got := s.StartTurns(ctx, commands)
	ok := func(i int, duplicate, stood bool) {
		t.Helper()
		require.NoError(t, got[i].Err)
		require.Equal(t, duplicate, got[i].Turn.Duplicate)
		require.Equal(t, stood, got[i].Turn.Existed)
	}
	ok(0, false, false)
	require.ErrorIs(t, got[1].Err, decide.ErrInvalid)
	ok(2, true, true)
	ok(3, false, false)
	ok(4, false, true)
	require.ErrorIs(t, got[5].Err, decide.ErrLinkedElsewhere)
	require.ErrorIs(t, got[6].Err, decide.ErrLinkedElsewhere)
	ok(7, false, false)
	require.ErrorIs(t, got[8].Err, decide.ErrSessionErased)
	require.ErrorIs(t, got[9].Err, jetlog.ErrTooLarge)
	ok(10, false, false)
	ok(11, false, true)
	ok(12, false, false)
	ok(13, false, false)
	require.ErrorIs(t, got[14].Err, decide.ErrLinkedElsewhere)
	require.ErrorIs(t, got[15].Err, decide.ErrInvalid)
	require.ErrorIs(t, got[16].Err, jetlog.ErrTooLarge)
	ok(17, false, false)
	require.Equal(t, "ada", got[13].Turn.IdentityID)
	st := natstest.Fold(t, log, "s", session.Rules{})
	require.Equal(t, 5, st.Finalized)
	require.Zero(t, st.Pending)
}

// Several callers of two processes record overlapping batches. Each turn is recorded once, and exactly one caller
// learns that its call recorded the turn. In each session the turns keep the order of each batch.
func TestOverlappingBatchesOfTwoProcesses(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	a, b := run(t, log), run(t, log)
	commands := turnsOf(20, "a", "b", "c")
	var mu sync.Mutex
	recorded := map[int]int{}
	var all sync.WaitGroup
	for i := range 8 {
		s := a
		if i%2 == 0 {
			s = b
		}
		from := 3 * (i % 4) // each batch begins a little later
		all.Go(func() {
			for k, o := range s.StartTurns(context.WithoutCancel(t.Context()), commands[from:]) {
				if o.Err != nil {
					t.Error(o.Err)
					return
				}
				if !o.Turn.Duplicate {
					mu.Lock()
					recorded[from+k]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	for i := range commands {
		require.Equal(t, 1, recorded[i], "line %d", i)
	}
	require.Equal(t, 60, natstest.Fold(t, log, "a", session.Rules{}).Finalized+
		natstest.Fold(t, log, "b", session.Rules{}).Finalized+
		natstest.Fold(t, log, "c", session.Rules{}).Finalized)
}

// Of many sessions that are new the log is asked once, and of those that it knows one by one.
func TestNewSessionsOfABatchAreAskedForTogether(t *testing.T) {
	t.Parallel()
	log := &asked{Log: natstest.Log(t, 1)}
	s := runOn(t, log)
	batch := func(name string) (commands []decide.Start) {
		for i := range 100 {
			// One turn alone is a plain append, which asks nothing.
			commands = append(commands, wholeTurn(fmt.Sprint(name, i), "r"), wholeTurn(fmt.Sprint(name, i), "r2"))
		}
		return commands
	}
	for _, o := range s.StartTurns(t.Context(), batch("a")) {
		require.NoError(t, o.Err)
		require.False(t, o.Turn.Duplicate)
	}
	require.Zero(t, log.times.Load())
	for _, o := range runOn(t, log).StartTurns(t.Context(), append(batch("a"), batch("b")...)) {
		require.NoError(t, o.Err)
		require.Equal(t, strings.HasPrefix(o.Turn.SessionID, "a"), o.Turn.Duplicate)
	}
	require.EqualValues(t, 200, log.times.Load())
}

// asked counts the questions about single sessions.
type asked struct {
	*jetlog.Log
	times atomic.Int32
}

func (a *asked) Seen(ctx context.Context, sessionID string) (uint64, error) {
	a.times.Add(1)
	return a.Log.Seen(ctx, sessionID)
}
