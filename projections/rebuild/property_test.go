package rebuild_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/rebuild"
	"github.com/turnledger/turnledger/projections/recent/recenttest"
	"github.com/turnledger/turnledger/projections/recent/redis/redistest"
)

// However a log gets into a view (live, with failures before and after the commit that
// bring events again, rebuilt, over many partitions), the snapshots are the same and
// verify finds nothing. A failure names rapid's seed.
func TestEveryWayGivesTheSameView(t *testing.T) {
	require.NoError(t, flag.Set("rapid.checks", "15")) // each opens two logs and three views
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
		feed(t, one, view{&shaky{Rebuildable: shaken.Rebuildable, rng: rand.New(rand.NewPCG(seed, 0))}, shaken.read})
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
			_, err := rebuild.NewVerification(log, v.Rebuildable.(projections.Verifiable), rebuild.Config{Rules: rules}).Run(t.Context(), 0,
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

// shaky fails before or after the commit of some batches.
type shaky struct {
	projections.Rebuildable
	mu  sync.Mutex
	rng *rand.Rand
}

func (s *shaky) Apply(ctx context.Context, b projections.Batch) error {
	s.mu.Lock()
	dice := s.rng.IntN(6)
	s.mu.Unlock()
	if dice == 0 {
		return errors.New("broken off before the commit")
	}
	if err := s.Rebuildable.Apply(ctx, b); err != nil || dice > 1 {
		return err
	}
	return errors.New("broken off after the commit")
}

// sessionsDrawn is how many sessions a drawn log is about.
const sessionsDrawn = 5

// drawLog appends the same random facts to logs; some contradict what stands there.
func drawLog(rt *rapid.T, logs ...*jetlog.Log) {
	for range rapid.IntRange(1, 50).Draw(rt, "events") {
		f := drawFact(rt)
		for _, log := range logs {
			_, err := log.Append(rt.Context(), jetlog.Append{Facts: []events.Fact{f}})
			require.NoError(rt, err)
		}
	}
}

func drawFact(rt *rapid.T) events.Fact {
	session := sessionOf(rapid.IntRange(0, sessionsDrawn-1).Draw(rt, "session"))
	request := fmt.Sprint("r", rapid.IntRange(0, 4).Draw(rt, "request"))
	id := events.TurnID(session, request)
	words := rapid.SampledFrom([]string{"one", "two", "drei & <vier>"}).Draw(rt, "words")
	q, a := events.Question{QuestionNeutral: words, Metadata: []byte(`{"channel":"web"}`)}, events.Answer{AnswerNeutral: words}
	switch rapid.SampledFrom([]string{"start", "start", "start", "final", "final", "final", "link", "redact", "correct", "reset", "erase", "refused"}).Draw(rt, "fact") {
	case "start":
		return &events.TurnStarted{TurnID: id, SessionID: session, RequestID: request, Question: q}
	case "final":
		return &events.TurnFinalized{TurnID: id, SessionID: session, Answer: a}
	case "link":
		return &events.SessionLinked{SessionID: session, IdentityID: words[:3]}
	case "redact":
		return &events.TurnRedacted{TurnID: id, SessionID: session}
	case "correct":
		next := request + "c"
		return &events.TurnCorrected{TurnID: events.TurnID(session, next), SessionID: session, RequestID: next, ReplacesTurnID: id, Question: q, Answer: a}
	case "reset":
		return &events.SessionReset{SessionID: session}
	case "erase":
		return &events.SessionErased{SessionID: session, ReceiptID: "receipt"}
	default:
		return &events.LinkRefused{SessionID: session, IdentityID: "thief"}
	}
}

// snapshots gives what a view holds of each session, with its positions where those
// compare.
func snapshots(t testing.TB, log *jetlog.Log, v view, exact bool) (out []any) {
	t.Helper()
	for n := range sessionsDrawn {
		s, _, err := v.read(t.Context(), log, sessionOf(n))
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
				if !yield([]any{turn.ID, turn.RequestID, turn.Status, turn.Version, turn.Replaces, turn.ReplacedBy, texts(turn)}) {
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
