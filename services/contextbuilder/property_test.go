package contextbuilder_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/rebuild"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/recent/redis"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/read"
)

// Whatever way a view came to hold a random log (live by runners that are stopped at any
// step and whose batches fail before and after their commit, rebuilt, over many
// partitions), the contexts are those of the log alone. A failure names rapid's seed.
func TestEveryWayGivesTheSameContexts(t *testing.T) {
	checks := 8 // each opens two logs and four views
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		checks = 400
	}
	viewtest.Checks(t, checks)
	server := redistest.Start(t)
	opened, shown := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		one, four := natstest.Log(t, 1), natstest.Log(t, 4)
		for range rapid.IntRange(1, 60).Draw(rt, "events") {
			f := viewtest.DrawFact(rt)
			if d, is := f.(*events.SessionDescribed); is {
				d.After = events.Position{} // the sequences of the two logs differ
			}
			natstest.Append(t, one, f)
			natstest.Append(t, four, f)
		}
		for n := range viewtest.Sessions {
			for k := range rapid.IntRange(0, 3).Draw(rt, "whole turns") {
				appendBoth(t, one, four, wholeTurn(viewtest.Session(n), fmt.Sprint("whole ", k))...)
			}
		}
		bare := contexts(rt, one, nil)
		for n := range viewtest.Sessions {
			summarise(t, one, four, viewtest.Session(n))
		}
		want := contexts(rt, one, nil)
		require.Equal(rt, bare, want, "summaries change nothing")
		shown += requireSummariesDisplaceNothing(rt, one)
		seed := rapid.Uint64().Draw(rt, "failures")
		for _, log := range []*jetlog.Log{one, four} {
			opened++
			limits := recent.Limits{TTL: rules.SessionTTL, MaxTurns: kept}
			inRedis := must.Get(redis.New(redis.Config{URL: server.URL(), Prefix: fmt.Sprint("contexts-", opened),
				Limits: limits, Rules: rules, LoadTimeout: hang.Limit}))(t)
			for name, v := range map[string]servedView{"memory": memory.New(limits, rules, nil), "redis": inRedis} {
				feed(t, log, v, seed)
				require.Equal(rt, want, contexts(rt, log, v), "%s, live, %d partitions", name, log.Partitions())
				r := must.Get(rebuild.Begin(t.Context(), log, v, v, rebuild.Config{
					Rules: rules, Feeding: runner.Feeding{MaxBatch: 7},
				}))(t)
				require.NoError(t, r.Run(t.Context()))
				require.Equal(rt, want, contexts(rt, log, v), "%s, rebuilt, %d partitions", name, log.Partitions())
			}
			inRedis.Close()
		}
	})
	require.NotZero(t, shown, "some contexts have a summary")
}

func appendBoth(t *testing.T, one, four *jetlog.Log, facts ...events.Fact) {
	t.Helper()
	natstest.Append(t, one, facts...)
	natstest.Append(t, four, facts...)
}

func wholeTurn(session, request string) []events.Fact {
	id := events.TurnID(session, request)
	return []events.Fact{
		&events.TurnStarted{TurnID: id, SessionID: session, RequestID: request,
			Question: events.Question{QuestionNeutral: request}},
		&events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{AnswerNeutral: request}},
	}
}

// summarise records a summary of the first turns of a session, if there is a turn that can be summarised.
func summarise(t *testing.T, one, four *jetlog.Log, session string) {
	t.Helper()
	state := natstest.Fold(t, one, session, rules)
	for _, turn := range state.Turns {
		d := decide.Summarize{ThroughTurnID: turn.ID, Summary: events.SessionSummarized{
			SessionID: session, RequestID: "a summary", SummaryNeutral: "of what was before"}}.On(state)
		if len(d.Facts) > 0 {
			appendBoth(t, one, four, d.Facts...)
			return
		}
	}
}

// requireSummariesDisplaceNothing requires that contexts with a summary are those without, but for the summary. It
// returns how many have one.
func requireSummariesDisplaceNothing(t *rapid.T, log *jetlog.Log) (shown int) {
	t.Helper()
	builder := contextbuilder.NewBuilder(read.New(log, read.Config{Rules: rules}),
		contextbuilder.Config{})
	for n := range viewtest.Sessions {
		ask := services.ContextRequest{SessionID: viewtest.Session(n), Message: "now", MaxMessages: 2}
		without := must.Get(builder.Build(t.Context(), ask))(t)
		ask.Summary = true
		with := must.Get(builder.Build(t.Context(), ask))(t)
		if with.Summary != nil {
			shown++
			require.Contains(t, with.Messages[0].Text(), "of what was before")
			with.Messages, with.Summary = with.Messages[1:], nil
		}
		require.Equal(t, texts(t, without), texts(t, with))
		require.Equal(t, []int{without.HistoryMessages, without.HistoryTurns, without.DroppedTurns},
			[]int{with.HistoryMessages, with.HistoryTurns, with.DroppedTurns})
	}
	return shown
}

type servedView interface {
	projections.View
	projections.Rebuildable
	recent.Reader
}

// seen is what a context shows.
type seen struct {
	Found                    bool
	Messages, Turns, Dropped int
	Texts                    []string
}

// kept is how many turns of a session the views hold.
const kept = 4

// contexts are those of each session, in windows of several sizes. A view that is given
// has all of the log; it answers for each session of which it never had to drop a turn.
func contexts(t *rapid.T, log *jetlog.Log, v read.View) (out []seen) {
	t.Helper()
	reader := read.New(log, read.Config{View: v, Rules: rules, Deadline: hang.Limit})
	patient := contextbuilder.NewBuilder(reader, contextbuilder.Config{})
	for n := range viewtest.Sessions {
		whole := must.Get(reader.Read(t.Context(), services.Ask{SessionID: viewtest.Session(n), AllTurns: true}))(t)
		for _, size := range []int{2, 4, 20} {
			for _, pending := range []bool{false, true} {
				r := must.Get(patient.Build(t.Context(), services.ContextRequest{SessionID: viewtest.Session(n),
					Message: "now", MaxMessages: size, IncludePending: pending}))(t)
				// A session that was only described has no activity that a view could hold it by.
				held := r.SessionFound && !whole.State.LastActive.IsZero() && len(whole.State.Turns) <= kept
				if v != nil && held {
					require.NotEqual(t, services.FromLog, r.Source, "session %d, %d messages", n, size)
				}
				out = append(out, seen{r.SessionFound, r.HistoryMessages, r.HistoryTurns, r.DroppedTurns, texts(t, r)})
			}
		}
	}
	return out
}

// feed brings all of a log into a view, by one runner after another.
func feed(t testing.TB, log *jetlog.Log, v servedView, seed uint64) {
	t.Helper()
	shaken := viewtest.NewShaky(viewtest.View{View: v, Rebuildable: v}, seed)
	for rounds := 1; !viewtest.CaughtUp(t, log, v); rounds++ {
		// Longer each time: on a busy machine a runner may need a while to begin.
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rounds*(10+shaken.Dice(90)))*time.Millisecond)
		shaken.Stop = cancel
		_ = runner.New(log, shaken, runner.Config{
			Rules: rules, Feeding: runner.Feeding{MaxBatch: 3}, Pause: time.Millisecond,
		}).Run(ctx)
		cancel()
	}
}
