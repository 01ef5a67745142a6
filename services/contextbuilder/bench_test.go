package contextbuilder_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services/contextbuilder"
)

// fed gives a memory view that has reached a position, and follows the log on.
func fed(t testing.TB, log *jetlog.Log, at events.Position) *memory.View {
	t.Helper()
	view := memory.New(recent.Limits{}, rules, nil)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- runner.New(log, view, runner.Config{Rules: rules}).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	require.NoError(t, view.Wait(t.Context(), at))
	return view
}

// BenchmarkBuild builds contexts of 20 messages in process, with the memory view,
// of sessions of 200 and of 5,000 turns, beside 1,000 other sessions.
func BenchmarkBuild(b *testing.B) {
	log := natstest.Log(b, 1)
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 8)
	fill := func(session string, turns int) (at events.Position) {
		for i := range turns {
			id := events.TurnID(session, fmt.Sprint(i))
			for _, f := range []events.Fact{
				&events.TurnStarted{TurnID: id, SessionID: session, RequestID: fmt.Sprint(i), Question: events.Question{QuestionNeutral: text}},
				&events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{AnswerNeutral: text}},
			} {
				ack, err := log.Append(b.Context(), jetlog.Append{Facts: []events.Fact{f}})
				require.NoError(b, err)
				at = ack.Position
			}
		}
		return at
	}
	for i := range 1000 {
		fill(fmt.Sprint("other-", i), 1)
	}
	fill("200", 200)
	head := fill("5000", 5000)
	builder := builder(log, fed(b, log, head))
	for _, session := range []string{"200", "5000"} {
		b.Run("turns="+session, func(b *testing.B) {
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				began := time.Now()
				r, err := builder.Build(b.Context(), contextbuilder.Request{SessionID: session, Message: "now"})
				took = append(took, time.Since(began))
				if err != nil || r.HistoryMessages != 20 || r.Source != contextbuilder.FromView {
					b.Fatal(err, r.HistoryMessages, r.Source)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}
