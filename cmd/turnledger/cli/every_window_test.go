package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/prompttest"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/client/importer"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/read"
)

// oneSession is a log and a view that hold one folded session and nothing else: the
// prompts of a thousand conversations at every window are too many for a server.
type oneSession struct{ state *session.State }

func (o oneSession) Partitions() int { return 1 }

func (o oneSession) Partition(string) int { return 0 }

func (o oneSession) end() (p events.Position) { p.Seq = o.state.Applied; return p }

func (o oneSession) Head(context.Context, int) (events.Position, error) { return o.end(), nil }

func (o oneSession) Last(context.Context, string) (uint64, error) { return o.state.Applied, nil }

func (o oneSession) Session(context.Context, string, uint64, uint64) iter.Seq2[events.Recorded, error] {
	return func(func(events.Recorded, error) bool) {}
}

func (oneSession) At(context.Context, events.Position) (events.Recorded, bool, error) {
	return events.Recorded{}, false, nil
}

func (oneSession) Some(context.Context, int, []uint64) ([]events.Recorded, error) { return nil, nil }

func (o oneSession) IdentityErasure(context.Context, string, events.Position) (*events.IdentityErased, events.Position,
	error) {
	return nil, events.Position{}, nil //nolint:nilnil // nobody was erased
}

func (o oneSession) IdentityErasedNow(context.Context, string) (*events.IdentityErased, error) {
	return nil, nil //nolint:nilnil // nobody was erased
}

func (o oneSession) Wait(context.Context, events.Position) error { return nil }

// Load returns so many turns that shown finalized ones are among them, as every view does.
func (o oneSession) Load(_ context.Context, _ string, _, shown int) (recent.Snapshot, error) {
	n, finalized := 0, 0
	for _, t := range slices.Backward(o.state.Turns) {
		if shown >= 0 && finalized == shown {
			break
		}
		n++
		if t.Status == session.Finalized {
			finalized++
		}
	}
	return recent.Snapshot{State: o.state.CloneLast(n), Applied: o.end()}, nil
}

// foldImported returns an imported conversation as the log would have it.
func foldImported(t *testing.T, sessionID string, turns []client.WholeTurn) *session.State {
	t.Helper()
	state := session.New(sessionID, session.Rules{})
	fold := func(f events.Fact) {
		seq := state.Applied + 1
		require.True(t, state.Fold(events.Recorded{ID: f.EventID(), SessionID: sessionID, Fact: f,
			Time: time.Unix(int64(seq), 0), Position: events.Position{Seq: seq}}).Kind.ChangesView())
	}
	raw := func(messages []json.RawMessage) (out json.RawMessage) {
		if messages != nil {
			out = must.Get(json.Marshal(messages))(t)
		}
		return out
	}
	for _, in := range turns {
		q, a := in.Start, in.Answer
		id := events.TurnID(sessionID, q.RequestID)
		fold(&events.TurnStarted{TurnID: id, SessionID: sessionID, RequestID: q.RequestID,
			Question: events.Question{QuestionNeutral: q.QuestionNeutral, QuestionMessages: raw(q.QuestionMessages)}})
		if a != nil {
			fold(&events.TurnFinalized{TurnID: id, SessionID: sessionID,
				Answer: events.Answer{AnswerNeutral: a.AnswerNeutral, AnswerMessages: raw(a.AnswerMessages)}})
		}
	}
	return state
}

// TestEveryWindowOfRealToolCallsIsLegal builds every conversation with tool calls at
// every window size, in both forms. What was recorded without its other half is given
// back as it came in the OpenAI form, and no window makes more of it; the Anthropic form
// is always what the API takes. In short, a sample of them: one in twenty, by a seed.
//
//conformance:i34 h6 f20
func TestEveryWindowOfRealToolCallsIsLegal(t *testing.T) {
	t.Parallel()
	seen, orphans, one := 0, 0, 20
	if os.Getenv("TURNLEDGER_TORTURE") != "" || os.Getenv("TURNLEDGER_TEST_DATA") == "" {
		one = 1
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed ", seed)
	draw := rand.New(rand.NewPCG(seed, 0))
	for _, file := range stack.ConversationFiles(t) {
		content := must.Get(os.ReadFile(file))(t)
		lines := bufio.NewScanner(bytes.NewReader(content))
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			if !bytes.Contains(lines.Bytes(), []byte(`"tool`)) {
				continue
			}
			session, turns, err := importer.Parse(lines.Bytes())
			require.NoError(t, err)
			if seen++; draw.IntN(one) > 0 {
				continue
			}
			orphans += everyWindow(t, foldImported(t, session, turns))
		}
		require.NoError(t, lines.Err())
	}
	require.NotZero(t, seen)
	if os.Getenv("TURNLEDGER_TEST_DATA") != "" {
		require.Greater(t, seen, 700)
	}
	if os.Getenv("TURNLEDGER_TEST_DATA") != "" && one == 1 {
		require.NotZero(t, orphans, "the few-shot conversations have results without calls")
	}
}

// everyWindow checks all windows of a session and returns how many of its messages have no other half.
func everyWindow(t *testing.T, state *session.State) int {
	t.Helper()
	log := oneSession{state}
	b := contextbuilder.NewBuilder(read.New(log, read.Config{View: log}),
		contextbuilder.Config{})
	build := func(size int, form services.Format) (services.Context, []json.RawMessage) {
		r := must.Get(b.Build(t.Context(), services.ContextRequest{SessionID: state.SessionID, Message: "and now?",
			MaxMessages: size, Format: form, IncludePending: true}))(t)
		out := make([]json.RawMessage, len(r.Messages))
		for i, m := range r.Messages {
			out[i] = m.JSON()
		}
		return r, out
	}
	all, whole := build(math.MaxInt32, services.OpenAI)
	require.Zero(t, all.DroppedTurns)
	recorded := prompttest.OpenAI(whole)
	for _, size := range sizesThatMatter(state, whole) {
		r, messages := build(size, services.OpenAI)
		require.Equal(t, all.HistoryTurns, r.HistoryTurns+r.DroppedTurns)
		require.True(t, slices.EqualFunc(whole[len(whole)-len(messages):], messages,
			func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }), "the last turns, whole and unchanged")
		for _, p := range prompttest.OpenAI(messages) {
			require.True(t, slices.Contains(recorded, p), "%s, window %d: %v", state.SessionID, size, p)
		}
		_, messages = build(size, services.Anthropic)
		require.Empty(t, prompttest.Anthropic(messages), "%s, window %d", state.SessionID, size)
	}
	return len(recorded)
}

// sizesThatMatter are the window sizes at which one more turn has room. Between two of
// them the window stays as it is.
func sizesThatMatter(state *session.State, whole []json.RawMessage) []int {
	count := func(messages json.RawMessage) int {
		var list []json.RawMessage
		if json.Unmarshal(messages, &list) != nil {
			return 1
		}
		return len(list)
	}
	sizes, size := []int{2}, 0
	for _, t := range slices.Backward(state.Turns) {
		size += count(t.Question.QuestionMessages)
		if t.Answer != nil {
			size += count(t.Answer.AnswerMessages)
		}
		sizes = append(sizes, max(size, 2))
	}
	if size != len(whole)-1 {
		panic("the windows were not counted right")
	}
	return slices.Compact(sizes)
}
