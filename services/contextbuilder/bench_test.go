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
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services/contextbuilder"
)

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
	rules := conversation.Rules{SessionTTL: 24 * time.Hour}
	view := memory.New(recent.Limits{}, rules, nil)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- runner.New(log, view, runner.Config{Rules: rules}).Run(ctx) }()
	require.NoError(b, view.Wait(b.Context(), head))
	builder := contextbuilder.NewBuilder(contextbuilder.NewReader(log, contextbuilder.ReaderConfig{Rules: rules, View: view}), contextbuilder.Config{})
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
	cancel()
	require.NoError(b, <-done)
}
