package contextbuilder_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/write"
)

var rules = session.Rules{SessionTTL: 24 * time.Hour}

func builder(log *jetlog.Log, view read.View) *contextbuilder.Builder {
	r := read.New(log, read.Config{View: view, Rules: rules, Deadline: time.Second})
	return contextbuilder.NewBuilder(r, contextbuilder.Config{})
}

func texts(t must.TB, r services.Context) []string {
	raw := must.Get(json.Marshal(r.Messages))(t)
	var list []struct{ Role, Content string }
	require.NoError(t, json.Unmarshal(raw, &list))
	out := make([]string, len(list))
	for i, m := range list {
		out[i] = m.Role + ": " + m.Content
	}
	return out
}

//conformance:i18
func TestBuildContextSeesPreviousTurns(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	logtest.Turn(t, log, "s", "r1", "Who is Donald Trump?", "Donald Trump is a politician.")
	r := must.Get(builder(log, nil).Build(t.Context(), services.ContextRequest{SessionID: "s",
		Message: "who are his children", SystemPrompt: "Be brief."}))(t)
	require.Equal(t, []string{"system: Be brief.", "user: Who is Donald Trump?",
		"assistant: Donald Trump is a politician.", "user: who are his children"}, texts(t, r))
	require.Equal(t, 2, r.HistoryMessages)
	require.True(t, r.SessionFound)
}

//conformance:h3 h58
func TestAPromptIsInOneLanguage(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	for i, translated := range []string{"Kim on jest?", ""} {
		id := events.TurnID("s", fmt.Sprint(i))
		natstest.Append(t, log, &events.TurnStarted{TurnID: id, SessionID: "s", RequestID: fmt.Sprint(i),
			Question: events.Question{QuestionNeutral: "Who is he?", QuestionTranslated: translated}})
		natstest.Append(t, log, &events.TurnFinalized{TurnID: id, SessionID: "s",
			Answer: events.Answer{AnswerNeutral: "Nobody.", AnswerTranslated: "Nikim."}})
	}
	build := func(lang services.Language) []string {
		r := must.Get(builder(log, nil).Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "now",
			Language: lang}))(t)
		return texts(t, r)
	}
	neutral := build(services.Neutral)
	require.Len(t, neutral, 5)
	require.NotContains(t, strings.Join(neutral, " "), "Nikim")
	require.Equal(t, neutral, build(""))
	translated := build(services.Translated)
	require.Contains(t, translated[0], "Kim on jest?")
	require.Contains(t, translated[1], "Nikim.")
	require.Contains(t, translated[2], "Who is he?", "what has no translation stays as it is")
}

//conformance:i22 f6
func TestBuildOfAnUnknownSessionMakesNothing(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	r := must.Get(builder(log, nil).Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "hi"}))(t)
	require.False(t, r.SessionFound)
	require.Equal(t, []string{"user: hi"}, texts(t, r))
	require.Zero(t, must.Get(log.Head(t.Context(), 0))(t).Seq)
}

// brokenView is a view whose backend is down; lostView has been emptied.
type brokenView struct{ read.View }

func (brokenView) Load(context.Context, string, int, int) (recent.Snapshot, error) {
	return recent.Snapshot{}, errors.New("connection refused")
}

type lostView struct{ read.View }

func (lostView) Load(context.Context, string, int, int) (recent.Snapshot, error) {
	return recent.Snapshot{Applied: events.Position{Seq: 1 << 40}}, nil
}

func TestABrokenViewIsNeverNoHistory(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	logtest.Turn(t, log, "s", "r1", "q", "a")
	for _, view := range []read.View{brokenView{}, lostView{}} {
		r, err := builder(log, view).Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "next"})
		require.NoError(t, err)
		require.Equal(t, 2, r.HistoryMessages)
		require.Equal(t, services.FromLog, r.Source)
	}
}

func TestAPositionThatTheLogDoesNotHold(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := logtest.Turn(t, log, "s", "r1", "q", "a")
	b := builder(log, nil)
	must.Get(b.Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "m",
		MinPosition: []events.Position{at}}))(t)
	at.Seq++
	must.Fail(b.Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "m",
		MinPosition: []events.Position{at}}))(t, services.ErrPositionNotReached)
}

func TestAsOfShowsThePastWithTodaysRedactions(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	logtest.Turn(t, log, "s", "r1", "q1", "a1")
	then := logtest.Turn(t, log, "s", "r2", "q2", "a2")
	logtest.Turn(t, log, "s", "r3", "q3", "a3")
	b := builder(log, nil)
	req := services.ContextRequest{SessionID: "s", Message: "m", AsOf: &services.AsOf{Position: &then}}
	r := must.Get(b.Build(t.Context(), req))(t)
	require.Equal(t, []string{"user: q1", "assistant: a1", "user: q2", "assistant: a2", "user: m"}, texts(t, r))
	natstest.Append(t, log, &events.TurnRedacted{TurnID: events.TurnID("s", "r1"), SessionID: "s"})
	r = must.Get(b.Build(t.Context(), req))(t)
	require.Equal(t, []string{"user: q2", "assistant: a2", "user: m"}, texts(t, r))
	require.Zero(t, r.DroppedTurns, "the window left nothing out")
}

func TestTheTurnBeingAnsweredIsLeftOut(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	for i := range 30 {
		logtest.Turn(t, log, "s", fmt.Sprint(i), fmt.Sprint("q", i), fmt.Sprint("a", i))
	}
	at := logtest.Turn(t, log, "s", "now", "asked now", "")
	for _, b := range []*contextbuilder.Builder{builder(log, nil), builder(log, fed(t, log, at))} {
		for _, pending := range []bool{false, true} {
			r := must.Get(b.Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "asked now",
				TurnID: events.TurnID("s", "now"), IncludePending: pending}))(t)
			require.Equal(t, 20, r.HistoryMessages)
			require.Equal(t, 10, r.HistoryTurns)
			require.Equal(t, 20, r.DroppedTurns)
			require.NotContains(t, texts(t, r)[:20], "user: asked now")
		}
	}
	b := builder(log, nil)
	r := must.Get(b.Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "m", TurnID: events.TurnID("s",
		"1")}))(t)
	require.Equal(t, []string{"user: q0", "assistant: a0", "user: m"}, texts(t, r))
}

//conformance:i32
func TestBadRequests(t *testing.T) {
	t.Parallel()
	b := builder(natstest.Log(t, 1), nil)
	for name, req := range map[string]services.ContextRequest{
		"no message":   {SessionID: "s"},
		"no session":   {Message: "m"},
		"small window": {SessionID: "s", Message: "m", MaxMessages: 1},
		"language":     {SessionID: "s", Message: "m", Language: "polish"},
		"format":       {SessionID: "s", Message: "m", Format: "xml"},
	} {
		must.Fail(b.Build(t.Context(), req))(t, decide.ErrInvalid, name)
	}
}

// A silence is over when somebody asks, be it answered yet or not.
func TestAQuestionEndsASilence(t *testing.T) {
	t.Parallel()
	at := func(minutes int) time.Time { return time.Date(2026, 1, 1, 10, minutes, 0, 0, time.UTC) }
	state := session.New("s", rules)
	seq := uint64(0)
	fold := func(minutes int, f events.Fact) {
		seq++
		c := state.Fold(events.Recorded{ID: f.EventID(), SessionID: "s", Fact: f, Position: events.Position{Seq: seq},
			Time: at(minutes)})
		require.True(t, c.Kind.ChangesView())
	}
	fold(0, &events.TurnStarted{TurnID: events.TurnID("s", "a"), SessionID: "s", RequestID: "a"})
	fold(0, &events.TurnFinalized{TurnID: events.TurnID("s", "a"), SessionID: "s"})
	fold(20, &events.TurnStarted{TurnID: events.TurnID("s", "pending"), SessionID: "s", RequestID: "pending"})
	fold(45, &events.TurnStarted{TurnID: events.TurnID("s", "now"), SessionID: "s", RequestID: "now"})
	for _, c := range []struct {
		turn string
		now  int
		idle time.Duration
		want int
	}{
		{"now", 46, 30 * time.Minute, 1},
		{"now", 200, 30 * time.Minute, 1}, // the answer takes its time
		{"", 46, 30 * time.Minute, 1},
		{"", 80, 30 * time.Minute, 0},
		{"now", 46, 22 * time.Minute, 0},
	} {
		req := services.ContextRequest{}
		if c.turn != "" {
			req.TurnID = events.TurnID("s", c.turn)
		}
		turns, shown, silent := contextbuilder.Asked(req, services.Reading{State: state}, c.idle, at(c.now))
		require.Len(t, turns, c.want, "%+v", c)
		require.Equal(t, 1, shown)
		require.Equal(t, 1-c.want, silent)
	}
}

// A summary of turns that are no longer shown, here before a silence, is in no prompt.
func TestASummaryOfTurnsBeforeASilenceIsNotShown(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	logtest.Turn(t, log, "s", "r1", "one", "1")
	d := decide.Summarize{
		ThroughTurnID: events.TurnID("s", "r1"),
		Summary:       events.SessionSummarized{SessionID: "s", RequestID: "m", SummaryNeutral: "of one"},
	}.On(natstest.Fold(t, log, "s", rules))
	require.NoError(t, d.Err)
	natstest.Append(t, log, d.Facts...)
	pause.For(t.Context(), 400*time.Millisecond) // the log's clock makes the silence
	logtest.Turn(t, log, "s", "r2", "two", "2")
	logtest.Turn(t, log, "s", "r3", "three", "3")
	for idle, want := range map[time.Duration]bool{0: true, 300 * time.Millisecond: false} {
		got := must.Get(builder(log, nil).Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "m",
			MaxMessages: 2, Summary: true, IdleTimeout: &idle}))(t)
		require.Equal(t, want, got.Summary != nil, idle)
	}
}

// The call of a tool's result is found however far back it stands, whether the view
// answers or the log.
func TestACallFarBackIsNeverCutFromItsResult(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	turn := func(request string, answer events.Answer) events.Position {
		id := events.TurnID("s", request)
		natstest.Append(t, log, &events.TurnStarted{TurnID: id, SessionID: "s", RequestID: request,
			Question: events.Question{QuestionNeutral: request}})
		return natstest.Append(t, log, &events.TurnFinalized{TurnID: id, SessionID: "s", Answer: answer})
	}
	turn("far", events.Answer{AnswerMessages: []byte(`[{"role":"assistant","content":null,"tool_calls":[{"id":"call_9","type":"function","function":{"name":"f","arguments":"{}"}}]}]`)})
	for i := range 40 {
		turn(fmt.Sprint("plain", i), events.Answer{AnswerNeutral: "ok"})
	}
	head := turn("late", events.Answer{AnswerMessages: []byte(`[{"role":"tool","tool_call_id":"call_9","content":"sun"},{"role":"assistant","content":"It is sunny."}]`)})
	viewed, bare := builder(log, fed(t, log, head)), builder(log, nil)
	for _, most := range []int{2, 4, 20, 60} {
		ask := services.ContextRequest{SessionID: "s", Message: "thanks", MaxMessages: most}
		want := must.Get(bare.Build(t.Context(), ask))(t)
		got := must.Get(viewed.Build(t.Context(), ask))(t)
		require.Equal(t, services.FromView, got.Source)
		require.Equal(t, want.Messages, got.Messages, "max_messages %d", most)
		require.Equal(t, "far", got.Messages[0].Text())
	}
}

// at builds with a clock that stands so far ahead.
func at(t testing.TB, r *read.Reader, ahead time.Duration, req services.ContextRequest) services.Context {
	t.Helper()
	b := contextbuilder.NewBuilder(r, contextbuilder.Config{Now: func() time.Time { return time.Now().Add(ahead) }})
	req.Message = "now"
	return must.Get(b.Build(t.Context(), req))(t)
}

// TestASilenceEndsAnAnonymousSession also before anything is recorded after it: the
// prompt of the first question behind the silence shows nothing of what was before.
//
//conformance:h54
func TestASilenceEndsAnAnonymousSession(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	logtest.Turn(t, log, "s", "r", "q0", "a0")
	natstest.Append(t, log, &events.SessionLinked{SessionID: "linked", IdentityID: "ada"})
	last := logtest.Turn(t, log, "linked", "r", "q0", "a0")
	for name, view := range map[string]read.View{"view": fed(t, log, last), "log": nil} {
		reader := read.New(log, read.Config{View: view, Rules: rules})
		for ahead, want := range map[time.Duration][]string{rules.SessionTTL - time.Minute: exchange(0, 1),
			rules.SessionTTL + time.Minute: exchange(0, 0)} {
			require.Equal(t, want, texts(t, at(t, reader, ahead, services.ContextRequest{SessionID: "s"})),
				"%s, %s ahead", name, ahead)
			require.Equal(t, exchange(0, 1), texts(t, at(t, reader, ahead,
				services.ContextRequest{SessionID: "linked"})), "%s, %s ahead, linked", name, ahead)
		}
	}
}

// TestAnOlderTurnIsAnsweredAgain holds that the history of any turn is what was before it,
// also where it is older than what a view gives for a prompt.
func TestAnOlderTurnIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	const turns = 40
	log, recorded := logtest.Turns(t, turns)
	view := fed(t, log, events.Position{Seq: recorded[turns-1]})
	for name, b := range map[string]*contextbuilder.Builder{"view": builder(log, view), "log": builder(log, nil)} {
		for i := range turns {
			r := must.Get(b.Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "now", MaxMessages: 4,
				TurnID: events.TurnID("s", fmt.Sprint(i))}))(t)
			require.Equal(t, exchange(max(i-2, 0), i), texts(t, r), "%s, turn %d", name, i)
		}
	}
}

// TestAnErasedSessionHasNoPast: as of a time before its erasure either.
func TestAnErasedSessionHasNoPast(t *testing.T) {
	t.Parallel()
	log, recorded := logtest.Turns(t, 3)
	b := builder(log, nil)
	then := services.ContextRequest{SessionID: "s", Message: "now",
		AsOf: &services.AsOf{Position: &events.Position{Seq: recorded[1]}}}
	r := must.Get(b.Build(t.Context(), then))(t)
	require.Equal(t, exchange(0, 2), texts(t, r))
	natstest.Append(t, log, &events.SessionErased{SessionID: "s", ReceiptID: "receipt"})
	r = must.Get(b.Build(t.Context(), then))(t)
	require.Equal(t, exchange(0, 0), texts(t, r))
	require.False(t, r.SessionFound)
}

// asked is a memory that notes what it is asked.
type asked struct{ last services.MemoryQuery }

func (a *asked) Snippet(_ context.Context, q services.MemoryQuery) (services.MemorySnippet, error) {
	a.last = q
	return services.MemorySnippet{}, nil
}

// TestTheMemoryIsToldOfAGuestsBoundary: what a guest said before a reset or a silence is
// not remembered after it, also where the client brings the history itself; an identity's memory has no
// boundary.
func TestTheMemoryIsToldOfAGuestsBoundary(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	for _, session := range []string{"guest", "reset", "linked"} {
		logtest.Turn(t, log, session, "r", "q", "a")
	}
	reset := natstest.Append(t, log, &events.SessionReset{SessionID: "reset"})
	natstest.Append(t, log, &events.SessionLinked{SessionID: "linked", IdentityID: "ada"})
	last := natstest.Append(t, log, &events.SessionReset{SessionID: "linked"})
	for name, view := range map[string]read.View{"view": fed(t, log, last), "log": nil} {
		reader := read.New(log, read.Config{View: view, Rules: rules})
		for _, c := range []struct {
			session, names string
			ahead          time.Duration
			want           services.MemoryQuery
		}{
			{session: "guest"},
			{session: "nobody"},
			{session: "reset", want: services.MemoryQuery{After: reset.Seq}},
			{session: "guest", ahead: rules.SessionTTL + time.Minute,
				want: services.MemoryQuery{After: math.MaxUint64}},
			{session: "linked", want: services.MemoryQuery{IdentityID: "ada"}},
			{session: "reset", names: "eve", want: services.MemoryQuery{IdentityID: "eve"}},
		} {
			memory := &asked{}
			b := contextbuilder.NewBuilder(reader, contextbuilder.Config{Memory: memory,
				Now: func() time.Time { return time.Now().Add(c.ahead) }})
			c.want.SessionID, c.want.Message = c.session, "m"
			for _, own := range [][]json.RawMessage{nil, {}, {json.RawMessage(`{"role":"user","content":"hi"}`)}} {
				must.Get(b.Build(t.Context(), services.ContextRequest{SessionID: c.session, Message: "m",
					IdentityID: c.names, Memory: true, History: own}))(t)
				memory.last.Shown = nil
				require.Equal(t, c.want, memory.last, "%s, %s, a history of %d messages from the client", name,
					c.session, len(own))
			}
		}
	}
}

// wordsOnly is a memory whose index does not answer.
type wordsOnly services.MemorySnippet

func (m wordsOnly) Snippet(context.Context, services.MemoryQuery) (services.MemorySnippet, error) {
	m.Text = "She likes lists."
	return services.MemorySnippet(m), nil
}

// A prompt whose memory went without the index of meanings says so, and has what the words have found.
func TestAMemoryByWordsIsSaid(t *testing.T) {
	t.Parallel()
	reader := read.New(natstest.Log(t, 1), read.Config{Rules: rules})
	for byWords, want := range map[wordsOnly][]string{
		{}: nil, {ByWords: true}: {"memory: by words only, since the index of meanings does not answer"},
		{ByWords: true, OtherModel: true}: {
			"memory: by words only, since another model of embeddings, or other dimensions, has filled the index: " +
				"rebuild it with turnledger projections rebuild index",
		},
	} {
		got := must.Get(contextbuilder.NewBuilder(reader, contextbuilder.Config{Memory: byWords}).Build(t.Context(),
			services.ContextRequest{SessionID: "s", Message: "now", Memory: true, IdentityID: "ada"}))(t)
		require.Equal(t, "She likes lists.", got.MemorySnippet)
		require.Equal(t, want, got.Warnings)
	}
}

// prune takes a half out of a turn, as the deletion of its items does.
func prune(t *testing.T, h *write.Service, sessionID, request string, half events.Half) {
	t.Helper()
	must.Get(h.PruneTurn(t.Context(), decide.Prune{SessionID: sessionID, TurnID: events.TurnID(sessionID, request),
		PruneID: string(half), Keep: func(m session.Message) json.RawMessage {
			if m.Half == half {
				return nil
			}
			return m.Raw
		}}))(t)
}

// A half whose items were deleted is no message, in any form and language; the other half stays.
//
//conformance:o19
func TestAHalfThatIsDeletedIsNoMessage(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	writes := write.New(write.On(log), write.Config{Rules: rules})
	natstest.Run(t, writes.Run)
	for session, half := range map[string]events.Half{"asked": events.HalfAnswer, "told": events.HalfQuestion} {
		must.Get(writes.StartTurn(t.Context(), decide.Start{SessionID: session, RequestID: "1",
			Question: events.Question{QuestionNeutral: "q", QuestionTranslated: "p"},
			Answer:   &events.Answer{AnswerNeutral: "a", AnswerTranslated: "o"}}))(t)
		prune(t, writes, session, "1", half)
	}
	for _, c := range []struct {
		session string
		lang    services.Language
		format  services.Format
		want    []string
	}{
		{session: "asked", want: []string{"user: q", "user: next"}},
		{session: "told", want: []string{"assistant: a", "user: next"}},
		{session: "asked", lang: services.Translated, want: []string{"user: p", "user: next"}},
		{session: "told", lang: services.Translated, want: []string{"assistant: o", "user: next"}},
		{session: "told", format: services.Anthropic,
			want: []string{"user: (The assistant spoke first.)", "assistant: a", "user: next"}},
	} {
		got, err := builder(log, nil).Build(t.Context(), services.ContextRequest{SessionID: c.session, Message: "next",
			Language: c.lang, Format: c.format})
		require.NoError(t, err)
		require.Equal(t, c.want, texts(t, got), "%+v", c)
		require.Equal(t, 1, got.HistoryMessages)
		require.Equal(t, 1, got.HistoryTurns)
	}
	got := must.Get(builder(log, nil).Build(t.Context(), services.ContextRequest{SessionID: "asked", Message: "next",
		Format: services.Anthropic}))(t)
	require.Len(t, got.Messages, 1, "two messages of the user in a row are one")
	require.JSONEq(t, `{"role":"user","content":[{"type":"text","text":"q"},{"type":"text","text":"next"}]}`,
		string(got.Messages[0].JSON()))
}

// Turns that lack a half leave room in a window. It is filled with older turns from wherever these are.
func TestAWindowOfHalvesIsFilled(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	writes := write.New(write.On(log), write.Config{Rules: rules})
	natstest.Run(t, writes.Run)
	for i := range 60 {
		logtest.Turn(t, log, "s", fmt.Sprint(i), fmt.Sprint(i), "answer")
		prune(t, writes, "s", fmt.Sprint(i), events.HalfAnswer)
	}
	head := must.Get(log.Head(t.Context(), 0))(t)
	viewed, bare := builder(log, fed(t, log, head)), builder(log, nil)
	for _, most := range []int{2, 4, 20, 50, 100} {
		ask := services.ContextRequest{SessionID: "s", Message: "now", MaxMessages: most}
		want := must.Get(bare.Build(t.Context(), ask))(t)
		require.Equal(t, min(most, 60), want.HistoryMessages)
		got := must.Get(viewed.Build(t.Context(), ask))(t)
		require.Equal(t, texts(t, want), texts(t, got), "max_messages %d", most)
		require.Equal(t, want.DroppedTurns, got.DroppedTurns)
	}
}
