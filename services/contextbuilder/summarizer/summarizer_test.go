package summarizer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/servicetest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder/summarizer"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/write"
)

// model answers as its function does, and counts its calls.
type model struct {
	answer func(prompt string) (string, services.Finish, error)
	calls  atomic.Int32
}

func (*model) Name() string            { return "small" }
func (*model) Format() services.Format { return services.OpenAI }
func (m *model) Answer(
	_ context.Context, p services.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	m.calls.Add(1)
	text, why, err := m.answer(message.Parse(p.Messages[1]).Text())
	part := services.AnswerPart{Kind: services.PartText, Text: text}
	emit(services.AnswerPiece{AnswerPart: part})
	return services.ModelAnswer{Parts: []services.AnswerPart{part}, Finish: why}, err
}

func says(text string) func(string) (string, services.Finish, error) {
	return func(string) (string, services.Finish, error) { return text, services.FinishStop, nil }
}

type world struct {
	*testing.T
	log *jetlog.Log
	servicetest.Services
	rules   session.Rules
	session string
	turns   []uuid.UUID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	rules := session.Rules{SessionTTL: 24 * time.Hour}
	log := natstest.Log(t, 1)
	return &world{T: t, log: log, rules: rules, session: "s", Services: servicetest.Start(t, log, servicetest.Config{
		History: write.Config{Rules: rules}, Reader: read.Config{Rules: rules},
	})}
}

func (w *world) record(n int, translated string) {
	w.Helper()
	for range n {
		i := len(w.turns) + 1
		request := fmt.Sprint("r", i)
		q := events.Question{QuestionNeutral: fmt.Sprint("Question ", i), QuestionTranslated: translated}
		must.Get(w.History.StartTurn(w.Context(), decide.Start{SessionID: w.session, RequestID: request,
			Question: q, Answer: &events.Answer{AnswerNeutral: fmt.Sprint("Answer ", i)}}))(w)
		id := events.TurnID(w.session, request)
		w.turns = append(w.turns, id)
	}
}

func (w *world) handler(m *model, c summarizer.Config) *summarizer.Handler {
	c.Model, c.Sessions, c.Summaries, c.Pause = m, w.Reader, w.History, time.Millisecond
	return summarizer.New(c)
}

// feed hands a handler all events of the session, as a runner would.
func (w *world) feed(h *summarizer.Handler) {
	w.Helper()
	judge := projections.NewJudge(w.log, w.rules, 0)
	var batch []projections.Judged
	for e, err := range w.log.Session(w.Context(), w.session, 0, 1<<40) {
		require.NoError(w, err)
		j := must.Get(judge.Judge(w.Context(), e))(w)
		batch = append(batch, j)
	}
	require.NoError(w, h.Handle(w.Context(), batch))
}

func (w *world) standing() []session.Summary {
	w.Helper()
	return must.Get(w.Reader.Read(w.Context(), services.Ask{SessionID: w.session, AllTurns: true}))(w).State.Standing()
}

// A branch is summarised with the turns that it shares, as soon as it has a turn of its own, again when it is due by
// its own turns, and anew when a shared turn was redacted.
func TestABranchIsSummarised(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := &model{answer: says("Summary")}
	h := w.handler(m, summarizer.Config{})
	w.record(25, "")
	must.Get(w.History.ForkSession(t.Context(),
		decide.ForkSession{SessionID: "s", RequestID: "f", ChildID: "b"}))(t)
	w.session = "b"
	w.record(1, "")
	w.feed(h)
	require.Equal(t, w.turns[15], w.standing()[0].Through)
	w.record(9, "")
	w.feed(h)
	require.Len(t, w.standing(), 1)
	w.record(1, "")
	w.feed(h)
	require.Len(t, w.standing(), 2)
	require.Equal(t, 26, w.standing()[1].Turns, "25 are shared")
	must.Get(w.History.RedactTurn(t.Context(), "s", decide.Redact{TurnID: w.turns[20]}))(t)
	require.Len(t, w.standing(), 1)
	w.record(1, "")
	w.feed(w.handler(m, summarizer.Config{}))
	require.Len(t, w.standing(), 2)
	require.Equal(t, 26, w.standing()[1].Turns)
}

// One summary is made when twenty turns are not covered, of all but the last ten, and the next extends it.
//
//conformance:h69
func TestASummaryIsMadeOfAllButTheLastTen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var asked []string
	m := &model{answer: func(p string) (string, services.Finish, error) {
		asked = append(asked, p)
		return fmt.Sprint("Summary ", len(asked)), services.FinishStop, nil
	}}
	h := w.handler(m, summarizer.Config{})
	w.record(19, "")
	w.feed(h)
	require.Empty(t, w.standing())
	w.record(1, "Fråga")
	w.feed(h)
	require.Len(t, w.standing(), 1)
	require.Equal(t, w.turns[9], w.standing()[0].Through)
	require.Equal(t, 10, w.standing()[0].Turns)
	require.Equal(t, "small", w.standing()[0].Fact.Model)
	require.Empty(t, w.standing()[0].Fact.SummaryTranslated)
	require.Contains(t, asked[0], "Answer 10")
	require.NotContains(t, asked[0], "Answer 11")
	w.feed(h)
	w.feed(w.handler(m, summarizer.Config{})) // another process
	require.Len(t, asked, 1, "it is made once")

	w.record(10, "")
	w.feed(h)
	require.Len(t, w.standing(), 2)
	require.Equal(t, w.turns[19], w.standing()[1].Through)
	require.Contains(t, asked[1], "Summary 1")
	require.NotContains(t, asked[1], "Answer 10")
	require.Len(t, asked, 3, "one more for the other language")
	require.Contains(t, asked[2], "Fråga")
	require.Equal(t, "Summary 3", w.standing()[1].Fact.SummaryTranslated)
}

// A model that fails or lies leaves no summary and no text in the log of the process; the next turn asks again.
func TestABadModelLeavesNoSummary(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(string) (string, services.Finish, error){
		"fails":          func(string) (string, services.Finish, error) { return "", "", errors.New("down") },
		"empty":          says("  "),
		"huge":           says(strings.Repeat("SECRET ", 10_000)),
		"cut off":        func(string) (string, services.Finish, error) { return "SECRET", services.FinishLength, nil },
		"another script": says("Пользователь спросил о многом"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.record(20, "")
			m := &model{answer: answer}
			var out bytes.Buffer
			h := w.handler(m, summarizer.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
			w.feed(h)
			require.Empty(t, w.standing())
			require.Equal(t, int32(3), m.calls.Load(), "the tries are bounded")
			require.Contains(t, out.String(), "is not summarised")
			must.Lack(t, out.String(), "SECRET", "Question")
			w.feed(h)
			require.Equal(t, int32(3), m.calls.Load(), "nothing new was said")
			m.answer = says("All well.")
			w.record(1, "")
			w.feed(h)
			require.Len(t, w.standing(), 1)
		})
	}
}

// hanging never answers.
type hanging struct{ calls atomic.Int32 }

func (*hanging) Name() string            { return "hangs" }
func (*hanging) Format() services.Format { return services.OpenAI }
func (m *hanging) Answer(
	ctx context.Context, _ services.Prompt, _ func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	m.calls.Add(1)
	<-ctx.Done()
	return services.ModelAnswer{}, ctx.Err()
}

// A model that hangs is asked once, so that it holds up the partition for the time of one call; the next turn asks
// again.
func TestAModelThatHangsIsAskedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.record(20, "translated")
	m := &hanging{}
	h := summarizer.New(summarizer.Config{Model: m, Sessions: w.Reader, Summaries: w.History,
		Timeout: time.Millisecond, Pause: time.Millisecond})
	w.feed(h)
	require.Equal(t, int32(1), m.calls.Load())
	w.record(1, "")
	w.feed(h)
	require.Equal(t, int32(2), m.calls.Load())
}

// A turn that is redacted while the model writes is in no summary.
func TestATurnRedactedWhileTheModelWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.record(30, "")
	var once sync.Once
	m := &model{}
	m.answer = func(p string) (string, services.Finish, error) {
		once.Do(func() {
			must.Get(w.History.RedactTurn(w.Context(), "s", decide.Redact{TurnID: w.turns[4]}))(w)
		})
		return fmt.Sprint("About ", strings.Contains(p, `"Answer 5"`)), services.FinishStop, nil
	}
	w.feed(w.handler(m, summarizer.Config{}))
	require.Len(t, w.standing(), 1)
	require.Equal(t, "About false", w.standing()[0].Fact.SummaryNeutral)
	require.Equal(t, 19, w.standing()[0].Turns)
	require.Equal(t, 1, w.recorded(), "the one made of the redacted turn is not in the log")
}

// Old sessions are left as they are until they go on, also where the effect begins anew.
func TestOldTurnsAskForNoSummary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.record(20, "")
	m := &model{answer: says("x")}
	later := func() time.Time { return time.Now().Add(2 * time.Hour) }
	w.feed(w.handler(m, summarizer.Config{Now: later, Oldest: time.Hour}))
	require.Zero(t, m.calls.Load())
}

// A model is given at most fifty turns a call, so that a long session is summarised in steps.
func TestALongSessionIsSummarisedInSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.record(75, "")
	m := &model{answer: says("Summary")}
	w.feed(w.handler(m, summarizer.Config{}))
	require.Len(t, w.standing(), 2)
	require.Equal(t, []int{50, 65}, []int{w.standing()[0].Turns, w.standing()[1].Turns})
	require.Equal(t, int32(2), m.calls.Load())
}

// Once a summary is void, the next one does not wait for the turn at which a longer one would have been due.
func TestAVoidSummaryIsMadeAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.handler(&model{answer: says("Summary")}, summarizer.Config{})
	w.record(20, "")
	w.feed(h)
	must.Get(w.History.RedactTurn(t.Context(), "s", decide.Redact{TurnID: w.turns[4]}))(t)
	require.Empty(t, w.standing())
	w.record(1, "")
	w.feed(h)
	require.Len(t, w.standing(), 1)
	require.Equal(t, 10, w.standing()[0].Turns)
}

// Two processes whose models write of one session at the same time make one summary, whichever is first.
func TestTwoModelsWriteAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.record(20, "")
	var writing, all sync.WaitGroup
	writing.Add(2)
	for n := range 2 {
		m := &model{answer: func(string) (string, services.Finish, error) {
			writing.Done()
			writing.Wait()
			return fmt.Sprint("Summary ", n), services.FinishStop, nil
		}}
		done := func(made bool) { assert.True(t, made) }
		all.Go(func() { w.feed(w.handler(m, summarizer.Config{Done: done})) })
	}
	all.Wait()
	require.Len(t, w.standing(), 1)
	require.Equal(t, 1, w.recorded())
}

// recorded returns how many summaries the log holds.
func (w *world) recorded() (n int) {
	w.Helper()
	for e, err := range w.log.Session(w.Context(), w.session, 0, 1<<40) {
		require.NoError(w, err)
		if e.Type == events.TypeSessionSummarized {
			n++
		}
	}
	return n
}

// Where a summary of just these turns was void once, the next one is a request of its own.
func TestASummaryIsMadeAgainOfTurnsWhoseSummaryWasVoid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.record(20, "")
	for n := range 3 {
		w.feed(w.handler(&model{answer: says(fmt.Sprint("Summary ", n))}, summarizer.Config{}))
		standing := w.standing()
		require.Len(t, standing, 1)
		require.Equal(t, fmt.Sprint("Summary ", n), standing[0].Fact.SummaryNeutral)
		natstest.Append(t, w.log, &events.SessionSummarized{SessionID: "s", Void: true,
			RequestID: standing[0].Fact.RequestID})
		require.Empty(t, w.standing())
	}
}

// A call and its result are never on two sides of a summary's end, nor is a turn without an answer within it.
func TestASummaryEndsBeforeACallWhoseResultIsLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	say := func(request, question, answer string) uuid.UUID {
		must.Get(w.History.StartTurn(w.Context(), decide.Start{SessionID: "s", RequestID: request,
			Question: events.Question{QuestionNeutral: "q", QuestionMessages: []byte(question)},
			Answer:   &events.Answer{AnswerNeutral: "a", AnswerMessages: []byte(answer)}}))(t)
		return events.TurnID("s", request)
	}
	w.record(8, "")
	say("calls", `[{"role":"user","content":"find it"}]`, `[{"role":"assistant","content":null,"tool_calls":[`+
		`{"id":"c1","type":"function","function":{"name":"find","arguments":"{}"}}]}]`)
	w.record(1, "")
	say("results", `[{"role":"tool","tool_call_id":"c1","content":"found"}]`, `[{"role":"assistant","content":"ok"}]`)
	w.record(9, "")
	w.feed(w.handler(&model{answer: says("All well.")}, summarizer.Config{}))
	require.Len(t, w.standing(), 1)
	require.Equal(t, w.turns[7], w.standing()[0].Through)
}
