package rebuild_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
)

// However a log gets into a view (live, with failures before and after the commit that bring events again, rebuilt,
// over many partitions), the snapshots are the same and verify finds nothing.
func TestEveryWayGivesTheSameView(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		rapid.Check(t, func(rt *rapid.T) {
			one, four := natstest.Log(t, 1), natstest.Log(t, 4)
			drawLog(rt, one, four)

			plain := open(t, one)
			feed(t, one, plain)
			want := snapshots(t, one, plain, true)

			shaken := open(t, one)
			shaky := viewtest.NewShaky(shaken.View, rapid.Uint64().Draw(rt, "failures"))
			feed(t, one, view{viewtest.View{View: shaky, Rebuildable: shaky}, shaken.read})
			require.Equal(rt, want, snapshots(t, one, shaken, true), "broken off and delivered again")
			require.NoError(rt, rebuilt(t, one, shaken))
			require.Equal(rt, want, snapshots(t, one, shaken, true), "rebuilt")

			spread := open(t, four)
			feed(t, four, spread)
			want = snapshots(t, one, plain, false)
			require.Equal(rt, want, snapshots(t, four, spread, false), "four partitions")
			require.NoError(rt, rebuilt(t, four, spread))
			require.Equal(rt, want, snapshots(t, four, spread, false), "four partitions, rebuilt")
			for log, v := range map[*jetlog.Log]view{one: shaken, four: spread} {
				found, _ := verified(t, log, v, 0)
				require.Empty(rt, found)
			}
		})
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
			ack := must.Get(log.Append(rt.Context(), jetlog.Append{Facts: []events.Fact{f}}))(rt)
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
		s, _ := must.Two(v.read(t.Context(), log, viewtest.Session(n)))(t)
		if s == nil {
			out = append(out, nil)
			continue
		}
		if exact {
			out = append(out, recenttest.Plain(s))
			continue
		}
		h := s.Head()
		var turns []any
		for _, t := range s.Turns {
			turns = append(turns, t.ID, t.RequestID, t.Status, t.Version, t.Replaces, t.ReplacedBy, texts(t))
		}
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
