package memory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
)

const ttl = time.Hour

var (
	limits = recent.Limits{TTL: ttl}
	rules  = session.Rules{SessionTTL: ttl}
)

// fixture is a view with a clock, and a log that it follows.
type fixture struct {
	t     *testing.T
	view  *memory.View
	log   *recenttest.Log
	feed  *recenttest.Feed
	clock time.Time
}

// newFixture makes a view that leaves so many bytes of sessions unpacked; all of them if the number is negative.
func newFixture(t *testing.T, open int64) *fixture {
	t.Helper()
	f := &fixture{t: t, log: recenttest.NewLog(rules), clock: time.Now().UTC()}
	now := func() time.Time { return f.clock }
	if f.view = memory.New(limits, rules, now); open >= 0 {
		f.view = memory.NewPacked(limits, rules, now, open)
	}
	f.feed = recenttest.NewFeed(t, f.log, f.view, 0)
	return f
}

// start records the first turn of a session.
func (f *fixture) start(session string) {
	f.log.Append(f.t, turntest.Started(session, "1", "q"), f.clock)
}

func (f *fixture) load(sessionID string) *session.State {
	f.t.Helper()
	return must.Get(f.view.Load(f.t.Context(), sessionID, 0, -1))(f.t).State
}

// TestWhatIsUsedStaysOpen: a view packs sessions that were not used for long. Those that are read stay as they are, and
// those that have expired take no room.
func TestWhatIsUsedStaysOpen(t *testing.T) {
	t.Parallel()
	const sessions, most = 1000, 100_000
	f := newFixture(t, most)
	holdsMost := func() (ids []string) {
		ids, counted := f.view.Open()
		require.LessOrEqual(t, counted, int64(most))
		require.Greater(t, counted, int64(most*9/10))
		require.Greater(t, len(ids), most/1000)
		require.Less(t, len(ids), most/500)
		return ids
	}
	f.start("read")
	for n := range sessions {
		f.start(fmt.Sprint(n))
		f.feed.All(1)
		require.NotNil(t, f.load("read"))
	}
	require.Contains(t, holdsMost(), "read")
	require.Len(t, f.load("0").Turns, 1)
	require.NotContains(t, holdsMost(), "0", "who asks for all turns leaves a session packed")
	snap := must.Get(f.view.Load(t.Context(), "0", 0, 1))(t)
	require.Len(t, snap.State.Turns, 1)
	require.Contains(t, holdsMost(), "0", "who asks for a window opens it")

	f.clock = f.clock.Add(2 * ttl)
	for n := range sessions {
		f.start(fmt.Sprint("late", n))
		f.feed.All(1)
	}
	holdsMost()
}

// TestTheNewestStayOpen: the sessions that were used longest ago are packed, wherever the view has them.
func TestTheNewestStayOpen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 40_000)
	for n := range 200 {
		f.start(fmt.Sprint(n))
		f.feed.All(1)
		ids, _ := f.view.Open()
		require.Contains(t, ids, fmt.Sprint(n))
	}
}

// TestLargeSessionsStayOpen: a session of more than 256 KB is never packed.
func TestLargeSessionsStayOpen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 0)
	for _, c := range []struct {
		session string
		length  int
		open    int
	}{{"small", 250 << 10, 0}, {"large", 260 << 10, 1}} {
		f.log.Append(t, turntest.Started(c.session, "1", strings.Repeat("q", c.length)), f.clock)
		f.feed.All(1)
		ids, counted := f.view.Open()
		require.Len(t, ids, c.open)
		require.Zero(t, counted)
		require.Len(t, f.load(c.session).Turns[0].Question.QuestionNeutral, c.length)
	}
}

// TestExpiry has a clock of its own: a session is held until the last millisecond of its TTL, and its memory goes
// though nobody asks for it.
//
//conformance:i85 h22
func TestExpiry(t *testing.T) {
	t.Parallel()
	f := newFixture(t, -1)
	const sessions = 1000
	for n := range sessions {
		f.start(fmt.Sprint(n))
	}
	f.feed.All(100)
	require.Equal(t, sessions, f.view.SessionsHeld())

	f.clock = f.clock.Add(ttl)
	require.NotNil(t, f.load("7"))
	f.clock = f.clock.Add(time.Millisecond)
	require.Nil(t, f.load("7"))
	for n := range 500 {
		f.start(fmt.Sprintf("new %d", n))
		f.feed.All(1)
	}
	require.Equal(t, 500, f.view.SessionsHeld())
}

func TestPartitionsAreApart(t *testing.T) {
	t.Parallel()
	f := newFixture(t, -1)
	f.start("s")
	f.feed.All(1)
	for k, want := range []uint64{1, 0} {
		require.Equal(t, events.Position{Partition: k, Seq: want}, must.Get(f.view.Applied(t.Context(), k))(t))
	}
	require.Nil(t, must.Get(f.view.Load(t.Context(), "s", 1, -1))(t).State)
	require.Error(t, must.Err(f.view.Load(t.Context(), "s", events.Buckets, -1)))
	require.Error(t, must.Err(f.view.Claim(t.Context(), -1)))
}

// TestAReadIsNoNewerThanItsState has an event applied just after a read has taken the state: what the state lacks is
// after the position that comes with it.
func TestAReadIsNoNewerThanItsState(t *testing.T) {
	t.Parallel()
	f := newFixture(t, -1)
	for _, sessionID := range []string{"s", "other", "s"} {
		f.start(sessionID)
		at, state := f.view.Snapshot(0, func() *session.State {
			state := f.load("s")
			f.feed.All(1)
			return state
		})
		require.Less(t, at, f.feed.At.Seq)
		if state != nil {
			require.GreaterOrEqual(t, at, state.Applied)
		}
	}
}

// What was loaded stays as it was, while the view extends the turn further, also under readers that come at once.
func TestLoadedTextsStayWhileTheTurnIsExtended(t *testing.T) {
	t.Parallel()
	f := newFixture(t, -1)
	f.start("s")
	turn := recenttest.ID("s", "1")
	f.log.Append(t, &events.TurnFinalized{TurnID: turn, SessionID: "s", Answer: events.Answer{AnswerNeutral: "a"}},
		f.clock)
	f.feed.All(2)
	var readers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				snap, err := f.view.Load(context.WithoutCancel(ctx), "s", 0, 1)
				if err != nil || !json.Valid(fmt.Appendf(nil, "[%s]", messages(snap.State))) {
					t.Error(err, "the messages are no JSON")
					return
				}
			}
		})
	}
	loaded := map[*session.State]string{}
	for n := range 300 {
		f.log.Append(t, &events.TurnExtended{TurnID: turn, SessionID: "s", ExtensionID: fmt.Sprint(n),
			Extension: events.Extension{Half: events.HalfAnswer, AnswerNeutral: fmt.Sprint(n),
				Messages: fmt.Appendf(nil, `[{"role":"assistant","content":"%d"}]`, n)}}, f.clock)
		f.feed.All(1)
		if n%7 == 0 {
			s := f.load("s")
			loaded[s] = messages(s)
		}
	}
	stop()
	readers.Wait()
	for s, text := range loaded {
		require.Equal(t, text, messages(s))
	}
	require.Equal(t, messages(f.log.State("s")), messages(f.load("s")))
}

func messages(s *session.State) string {
	if m := s.Turns[0].Answer.AnswerMessages; m != nil {
		return string(m)
	}
	return "null"
}

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

func open(_ testing.TB, limits recent.Limits, rules session.Rules) recenttest.View {
	v := memory.New(limits, rules, nil)
	return recenttest.View{View: v, Reader: v}
}

//conformance:h21 h23 h39
func TestConformance(t *testing.T) {
	t.Parallel()
	recenttest.Run(t, open)
}

// openPacked opens a view that packs each session after each event.
func openPacked(_ testing.TB, limits recent.Limits, rules session.Rules) recenttest.View {
	v := memory.NewPacked(limits, rules, nil, 0)
	return recenttest.View{View: v, Reader: v}
}

// TestConformancePacked: a packed session keeps all the promises of one that is not.
func TestConformancePacked(t *testing.T) {
	t.Parallel()
	recenttest.Run(t, openPacked)
}

func BenchmarkLoad(b *testing.B) { recenttest.BenchmarkLoad(b, open, 1_000, 100_000, 1_000_000) }

func BenchmarkApply(b *testing.B) { recenttest.BenchmarkApply(b, open) }

func BenchmarkLoadPacked(b *testing.B) { recenttest.BenchmarkLoad(b, openPacked, 1_000) }

func BenchmarkApplyPacked(b *testing.B) { recenttest.BenchmarkApply(b, openPacked) }
