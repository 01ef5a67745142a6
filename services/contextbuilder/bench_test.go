package contextbuilder_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/contextbuilder/tokens"
	"github.com/turnledger/turnledger/services/read"
)

// fed returns a memory view that has reached a position, and follows the log on.
func fed(t testing.TB, log *jetlog.Log, at events.Position) *memory.View {
	t.Helper()
	view := memory.New(recent.Limits{}, rules, nil)
	natstest.Run(t, runner.New(log, view, runner.Config{Rules: rules}).Run)
	require.NoError(t, view.Wait(t.Context(), at))
	return view
}

// BenchmarkBuild builds contexts of 20 messages in process, with the memory view,
// of sessions of 200 and of 5,000 turns, beside 1,000 other sessions; also with max_tokens,
// counted by the model's tokenizer, whose cache begins empty, and of a linked session, whose identity may have been
// erased.
func BenchmarkBuild(b *testing.B) {
	log := natstest.Log(b, 1)
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 8)
	fill := func(session string, turns int) (at events.Position) {
		for i := range turns {
			id, text := events.TurnID(session, fmt.Sprint(i)), fmt.Sprint("In ", session, ", ", i, ": ", text)
			for _, f := range []events.Fact{
				&events.TurnStarted{TurnID: id, SessionID: session, RequestID: fmt.Sprint(i),
					Question: events.Question{QuestionNeutral: text}},
				&events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{AnswerNeutral: text}},
			} {
				ack := must.Get(log.Append(b.Context(), jetlog.Append{Facts: []events.Fact{f}}))(b)
				at = ack.Position
			}
		}
		return at
	}
	for i := range 1000 {
		fill(fmt.Sprint("other-", i), 1)
	}
	fill("200", 200)
	fill("5000", 5000)
	fill("linked", 200)
	head := natstest.Append(b, log, &events.SessionLinked{SessionID: "linked", IdentityID: "ada"})
	view := fed(b, log, head)
	for _, session := range []string{"200", "linked", "5000"} {
		for _, tokens := range []int{0, 4000} {
			b.Run(fmt.Sprintf("turns=%s/max_tokens=%d", session, tokens), func(b *testing.B) {
				counter := gpt4o(b)
				builder := contextbuilder.NewBuilder(read.New(log,
					read.Config{View: view, Rules: rules}), contextbuilder.Config{Tokens: counter})
				took := make([]time.Duration, 0, b.N)
				for b.Loop() {
					began := time.Now()
					r, err := builder.Build(b.Context(), services.ContextRequest{SessionID: session, Message: "now",
						MaxTokens: tokens})
					took = append(took, time.Since(began))
					if err != nil || r.HistoryMessages != 20 || r.Source != services.FromView {
						b.Fatal(err, r.HistoryMessages, r.Source)
					}
				}
				require.Equal(b, tokens > 0, counter.texts.Load() > 0)
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
				b.ReportMetric(float64(took[len(took)-1].Microseconds()), "max-µs")
			})
		}
	}
}

// counting counts the texts whose tokens were counted.
type counting struct {
	contextbuilder.TokenCounter
	texts atomic.Int64
}

func (c *counting) Count(text string) int {
	c.texts.Add(1)
	return c.TokenCounter.Count(text)
}

func gpt4o(t testing.TB) *counting {
	t.Helper()
	c := must.Get(tokens.ForModel("gpt-4o"))(t)
	return &counting{TokenCounter: c}
}

// TestTokensAreCountedForTheWindowOnly: of 300 turns, those that are looked at are
// counted, up to the first that has no room.
//
//conformance:i31 s16
func TestTokensAreCountedForTheWindowOnly(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	for i := range 300 {
		logtest.Turn(t, log, "s", fmt.Sprint(i), "Who is Donald Trump?", "An American politician.")
	}
	counter := gpt4o(t)
	b := contextbuilder.NewBuilder(read.New(log, read.Config{Rules: rules}),
		contextbuilder.Config{Tokens: counter})
	build := func(messages, tokens int) int64 {
		counter.texts.Store(0)
		must.Get(b.Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "now", MaxMessages: messages,
			MaxTokens: tokens}))(t)
		return counter.texts.Load()
	}
	require.EqualValues(t, 20, build(20, 1_000_000))
	require.Less(t, build(500, 100), int64(20))
	require.Zero(t, build(20, 0), "nobody asked for tokens")
	require.EqualValues(t, 20, build(0, 1_000_000), "twenty messages by default")
}
