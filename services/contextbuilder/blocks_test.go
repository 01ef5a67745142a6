package contextbuilder_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/read"
)

func exchange(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint("user: q", i), fmt.Sprint("assistant: a", i))
	}
	return append(out, "user: now")
}

// filtered records a turn of whose answer a model's filter left nothing.
func filtered(t *testing.T, log *jetlog.Log, request string) events.Position {
	t.Helper()
	id := events.TurnID("s", request)
	natstest.Append(t, log, &events.TurnStarted{TurnID: id, SessionID: "s", RequestID: request,
		Question: events.Question{QuestionNeutral: "refused"}})
	return natstest.Append(t, log,
		&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: nothing, Metadata: json.RawMessage(why)})
}

// filteredWhole does so in one event, which has one metadata.
func filteredWhole(t *testing.T, log *jetlog.Log, request string) events.Position {
	t.Helper()
	return natstest.Append(t, log, &events.TurnRecorded{TurnID: events.TurnID("s", request), SessionID: "s",
		RequestID: request, Answer: nothing,
		Question: events.Question{QuestionNeutral: "refused", Metadata: json.RawMessage(why)}})
}

var nothing = events.Answer{AnswerMessages: json.RawMessage(`[{"role":"assistant","content":""}]`)}

const why = `{"finish_reason":"content_filter"}`

// Where a call names no window, turns leave a full one in blocks: two of three prompts begin as the one before. Views,
// the log and the past agree on the window, however many turns a view holds, and whether a turn that is never shown is
// among them.
func TestPromptsBeginAsTheLastOneDid(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	ask := func(view read.View, req services.ContextRequest) services.Context {
		r := read.New(log, read.Config{Rules: rules, View: view})
		b := contextbuilder.NewBuilder(r, contextbuilder.Config{Blocks: true})
		req.SessionID, req.Message = "s", "now"
		return must.Get(b.Build(t.Context(), req))(t)
	}
	first, same, full := "", 0, 0
	var past [][]string
	var at []events.Position
	for i := range 40 {
		if i == 15 {
			filtered(t, log, "no")
		}
		at = append(at, logtest.Turn(t, log, "s", fmt.Sprint(i), fmt.Sprint("q", i), fmt.Sprint("a", i)))
		r := ask(nil, services.ContextRequest{})
		shown := texts(t, r)
		require.Equal(t, i+1, r.HistoryTurns+r.DroppedTurns)
		require.Equal(t, exchange(i+1-r.HistoryTurns, i+1), shown)
		if past = append(past, shown); i >= 10 {
			require.LessOrEqual(t, r.HistoryMessages, 20)
			require.GreaterOrEqual(t, r.HistoryMessages, 15)
			full++
			if shown[0] == first {
				same++
			}
		}
		first = shown[0]
		for _, keep := range []int{12, 14, 25} {
			view := &viewtest.Still{State: viewtest.Folded(t, log, rules, "s", at[i].Seq, keep), At: at[i].Seq}
			require.Equal(t, shown, texts(t, ask(view, services.ContextRequest{})), "turn %d, kept %d", i, keep)
		}
	}
	require.GreaterOrEqual(t, 3*same, 2*full-3, "%d of %d", same, full)
	for i, p := range at {
		require.Equal(t, past[i], texts(t, ask(nil, services.ContextRequest{AsOf: &services.AsOf{Position: &p}})))
	}
	for _, exact := range []services.ContextRequest{{MaxMessages: 20}, {MaxTokens: 1 << 20}} {
		require.Equal(t, exchange(30, 40), texts(t, ask(nil, exact)))
	}
}

// A view that holds filtered turns fills a window as the log does.
func TestFilteredTurnsTakeNoRoom(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	var head events.Position
	for i := range 30 {
		head = logtest.Turn(t, log, "s", fmt.Sprint(i), fmt.Sprint("q", i), fmt.Sprint("a", i))
		switch {
		case i < 26:
		case i%2 == 0:
			head = filtered(t, log, fmt.Sprint("no", i))
		default:
			head = filteredWhole(t, log, fmt.Sprint("no", i))
		}
	}
	for _, keep := range []int{12, 20, 100} {
		view := &viewtest.Still{State: viewtest.Folded(t, log, rules, "s", head.Seq, keep), At: head.Seq}
		r := must.Get(builder(log, view).Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "now"}))(t)
		require.Equal(t, exchange(20, 30), texts(t, r), "kept %d", keep)
		require.Equal(t, 20, r.DroppedTurns)
	}
}

// silent returns a session whose first turns stand before a silence of an hour.
func silent(before, turns int) (state *session.State, now time.Time) {
	state = session.New("s", rules)
	seq := uint64(0)
	now = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	for i := range turns {
		if now = now.Add(time.Minute); i == before {
			now = now.Add(time.Hour)
		}
		id := events.TurnID("s", fmt.Sprint(i))
		for _, f := range []events.Fact{
			&events.TurnStarted{TurnID: id, SessionID: "s", RequestID: fmt.Sprint(i),
				Question: events.Question{QuestionNeutral: fmt.Sprint("q", i)}},
			&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: events.Answer{AnswerNeutral: fmt.Sprint("a", i)}},
		} {
			seq++
			state.Fold(events.Recorded{ID: f.EventID(), SessionID: "s", Fact: f, Time: now,
				Position: events.Position{Seq: seq}})
		}
	}
	return state, now
}

// given is a session that is read as it is given.
type given struct {
	*read.Reader
	state *session.State
}

func (g given) Read(context.Context, services.Ask) (services.Reading, error) {
	return services.Reading{State: g.state.Clone(), Source: services.FromLog}, nil
}

// A window that has room for all turns since a silence takes them all, and has left none out.
func TestTurnsSinceASilenceAreNoBlock(t *testing.T) {
	t.Parallel()
	for before := 1; before < 8; before++ {
		for since := 1; since <= 10; since++ {
			state, now := silent(before, before+since)
			b := contextbuilder.NewBuilder(given{nil, state}, contextbuilder.Config{Blocks: true,
				IdleTimeout: 30 * time.Minute, Now: func() time.Time { return now }})
			r := must.Get(b.Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "now"}))(t)
			require.Equal(t, exchange(before, before+since), texts(t, r), "%d before, %d since", before, since)
			require.Zero(t, r.DroppedTurns)
			require.Len(t, r.TurnIDs, since)
			require.Equal(t, events.TurnID("s", fmt.Sprint(before)), r.TurnIDs[0])
		}
	}
}

// The last pair goes where the model would refuse it, and not where only the caller's bound is exceeded.
func TestALastPairStaysIfTheModelTakesIt(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	logtest.Turn(t, log, "s", "0", "older", "older")
	logtest.Turn(t, log, "s", "1", strings.Repeat("long ", 60), "a") // 75 tokens
	build := func(req services.ContextRequest) services.Context {
		req.SessionID, req.Message = "s", "now"
		return must.Get(builder(log, nil).Build(t.Context(), req))(t)
	}
	const over = "history: it is longer than max_tokens, since the last answered turn always stays"
	for name, c := range map[string]struct {
		req   services.ContextRequest
		turns int
		warn  []string
	}{
		"no bound":           {services.ContextRequest{}, 2, nil},
		"the caller's bound": {services.ContextRequest{MaxTokens: 50}, 1, []string{over}},
		"the caller's bound, and a model with room": {
			services.ContextRequest{MaxTokens: 50, MaxPrompt: 1000, Truncate: true}, 1, []string{over}},
		"the model's bound":        {services.ContextRequest{MaxPrompt: 60, Truncate: true}, 0, nil},
		"both":                     {services.ContextRequest{MaxTokens: 50, MaxPrompt: 60, Truncate: true}, 0, nil},
		"a prompt that is not cut": {services.ContextRequest{MaxTokens: 50, MaxPrompt: 60}, 1, []string{over}},
	} {
		r := build(c.req)
		require.Equal(t, c.turns, r.HistoryTurns, name)
		require.Equal(t, c.warn, r.Warnings, name)
	}
}

// A summary takes only what turns leave of the model's room.
func TestASummaryFitsTheModel(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	logtest.Turn(t, log, "s", "0", strings.Repeat("long ", 100), "a")
	d := decide.Summarize{
		ThroughTurnID: events.TurnID("s", "0"), Summary: events.SessionSummarized{SessionID: "s", RequestID: "m",
			SummaryNeutral: strings.Repeat("sum ", 40)},
	}.On(natstest.Fold(t, log, "s", rules))
	require.NoError(t, d.Err)
	natstest.Append(t, log, d.Facts...)
	logtest.Turn(t, log, "s", "1", "q", "a")
	for room, shown := range map[int]bool{50: false, 100: true} {
		r := must.Get(builder(log, nil).Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "now",
			Summary: true, MaxPrompt: room, Truncate: true}))(t)
		require.Equal(t, 1, r.HistoryTurns)
		require.Equal(t, shown, r.Summary != nil, room)
	}
}
