package rebuild_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/rebuild"
)

// However a log gets into a view (live, with failures before and after the commit that
// bring events again, rebuilt, over many partitions), the snapshots are the same and
// verify finds nothing. A failure names rapid's seed.
func TestEveryWayGivesTheSameView(t *testing.T) {
	checks := 15 // each opens two logs and three views
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		checks = 400
	}
	viewtest.Checks(t, checks)
	server := redistest.Start(t)
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom([]string{"memory", "redis", "audit"}).Draw(rt, "view")
		open := map[string]opener{"memory": openMemory, "redis": redisOn(server), "audit": openAudit}[name]
		one, four := natstest.Log(t, 1), natstest.Log(t, 4)
		drawLog(rt, one, four)

		plain := open(t, one)
		feed(t, one, plain)
		want := snapshots(t, one, plain, true)

		seed := rapid.Uint64().Draw(rt, "failures")
		shaken := open(t, one)
		shaky := viewtest.NewShaky(shaken.View, seed)
		feed(t, one, view{viewtest.View{View: shaky, Rebuildable: shaky}, shaken.read})
		require.Equal(rt, want, snapshots(t, one, shaken, true), "%s, broken off and delivered again", name)
		require.NoError(rt, rebuilt(t, one, shaken))
		require.Equal(rt, want, snapshots(t, one, shaken, true), "%s, rebuilt", name)

		spread := open(t, four)
		feed(t, four, spread)
		want = snapshots(t, one, plain, false)
		require.Equal(rt, want, snapshots(t, four, spread, false), "%s, four partitions", name)
		require.NoError(rt, rebuilt(t, four, spread))
		require.Equal(rt, want, snapshots(t, four, spread, false), "%s, four partitions, rebuilt", name)
		for log, v := range map[*jetlog.Log]view{one: shaken, four: spread} {
			_, err := rebuild.NewVerification(log, v, rebuild.Config{Rules: rules}).Run(t.Context(), 0,
				func(d projections.Difference) error { return fmt.Errorf("%s: %+v", name, d) })
			require.NoError(rt, err)
		}
	})
}

// feed brings all of a log into a view and stops.
func feed(t testing.TB, log *jetlog.Log, v view) {
	stop := live(t, log, v)
	caughtUp(t, log, v)
	stop()
}

// drawLog appends the same random facts to logs; some contradict what stands there.
func drawLog(rt *rapid.T, logs ...*jetlog.Log) {
	last := make([]map[string]events.Position, len(logs))
	for i := range logs {
		last[i] = map[string]events.Position{}
	}
	for range rapid.IntRange(1, 50).Draw(rt, "events") {
		f := viewtest.DrawFact(rt)
		for i, log := range logs {
			f := inLog(f, last[i])
			ack, err := log.Append(rt.Context(), jetlog.Append{Facts: []events.Fact{f}})
			require.NoError(rt, err)
			last[i][f.Subject()] = ack.Position
		}
	}
}

// inLog returns a fact as it is written to one of the logs. The logs number their events differently, so a description
// that was decided on something was decided on the session's last event.
func inLog(f events.Fact, last map[string]events.Position) events.Fact {
	d, ok := f.(*events.SessionDescribed)
	if !ok {
		return f
	}
	own := *d
	if own.After.Seq > 0 {
		own.After = last[f.Subject()]
	}
	return &own
}

// snapshots returns what a view holds of each session, with its positions where those
// compare.
func snapshots(t testing.TB, log *jetlog.Log, v view, exact bool) (out []any) {
	t.Helper()
	for n := range viewtest.Sessions {
		s, _, err := v.read(t.Context(), log, viewtest.Session(n))
		require.NoError(t, err)
		if s == nil {
			out = append(out, nil)
			continue
		}
		if exact {
			out = append(out, recenttest.Plain(s))
			continue
		}
		h := s.Head()
		turns := slices.Collect(func(yield func(any) bool) {
			for _, turn := range s.Turns {
				if !yield([]any{turn.ID, turn.RequestID, turn.Status, turn.Version, turn.Replaces, turn.ReplacedBy,
					texts(turn)}) {
					return
				}
			}
		})
		out = append(out, []any{s.Whole, h.Identity, h.Counts, h.Erased != 0, h.ResetAt != 0, turns})
	}
	return out
}

func texts(t *conversation.Turn) (out []string) {
	if t.Question != nil {
		out = append(out, t.Question.QuestionNeutral)
	}
	if t.Answer != nil {
		out = append(out, t.Answer.AnswerNeutral)
	}
	return out
}
