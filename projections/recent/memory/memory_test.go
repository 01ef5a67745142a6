package memory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
)

const ttl = time.Hour

var (
	limits = recent.Limits{TTL: ttl}
	rules  = conversation.Rules{SessionTTL: ttl}
)

// TestWhatIsUsedStaysOpen: a view packs sessions that were not used for long. Those that are read stay as they are, and
// those that have expired take no room.
func TestWhatIsUsedStaysOpen(t *testing.T) {
	t.Parallel()
	const most = 200
	clock := time.Now().UTC()
	view := memory.NewPacked(limits, rules, func() time.Time { return clock }, most)
	log := recenttest.NewLog(rules)
	feed := recenttest.NewFeed(t, log, view, 0)
	start(t, log, "read", clock)
	for n := range 5 * most {
		start(t, log, fmt.Sprint(n), clock)
		feed.All(1)
		require.NotNil(t, load(t, view, "read"))
	}
	open, counted := view.Open()
	require.Contains(t, open, "read")
	require.Len(t, open, most)
	require.EqualValues(t, most, counted)
	require.Len(t, load(t, view, "0").Turns, 1)

	clock = clock.Add(2 * ttl)
	for n := range 2 * most {
		start(t, log, fmt.Sprint("late", n), clock)
		feed.All(1)
	}
	open, counted = view.Open()
	require.Len(t, open, most)
	require.EqualValues(t, most, counted)
}

// TestLongSessionsStayOpen: a session of more than 64 turns is never packed.
func TestLongSessionsStayOpen(t *testing.T) {
	t.Parallel()
	for turns, open := range map[int]int{64: 0, 65: 3} {
		view := memory.NewPacked(limits, rules, nil, 0)
		recenttest.Traffic{Sessions: 3, Turns: turns}.Feed(t, view)
		ids, counted := view.Open()
		require.Len(t, ids, open)
		require.Zero(t, counted)
	}
}

// TestExpiry has a clock of its own: a session is held until the last millisecond of
// its TTL, and its memory goes though nobody asks for it.
//
//conformance:i85 h22
func TestExpiry(t *testing.T) {
	t.Parallel()
	clock := time.Now().UTC()
	view := memory.New(limits, rules, func() time.Time { return clock })
	log := recenttest.NewLog(rules)
	feed := recenttest.NewFeed(t, log, view, 0)
	const sessions = 1000
	for n := range sessions {
		start(t, log, fmt.Sprint(n), clock)
	}
	feed.All(100)
	require.Equal(t, sessions, view.SessionsHeld())

	clock = clock.Add(ttl)
	require.NotNil(t, load(t, view, "7"))
	clock = clock.Add(time.Millisecond)
	require.Nil(t, load(t, view, "7"))
	for n := range 500 {
		start(t, log, fmt.Sprintf("new %d", n), clock)
		feed.All(1)
	}
	require.Equal(t, 500, view.SessionsHeld())
}

func TestActivityMovesTheEnd(t *testing.T) {
	t.Parallel()
	clock := time.Now().UTC()
	view := memory.New(limits, rules, func() time.Time { return clock })
	log := recenttest.NewLog(rules)
	feed := recenttest.NewFeed(t, log, view, 0)
	start(t, log, "s", clock)
	start(t, log, "other", clock)
	feed.All(1)
	clock = clock.Add(ttl - time.Minute)
	log.Append(t, &events.TurnStarted{TurnID: recenttest.ID("s", "2"), SessionID: "s", RequestID: "2",
		Question: events.Question{QuestionNeutral: "q"}}, clock)
	feed.All(1)
	clock = clock.Add(time.Hour)
	require.Len(t, load(t, view, "s").Turns, 2)
	require.Nil(t, load(t, view, "other"))
	// A late event finds nothing of what has expired by now.
	log.Append(t, &events.SessionLinked{SessionID: "other", IdentityID: "me"}, clock)
	feed.All(1)
	require.Empty(t, load(t, view, "other").Turns)
	require.False(t, load(t, view, "other").Whole)
}

func TestPartitionsAreApart(t *testing.T) {
	t.Parallel()
	view := memory.New(limits, rules, nil)
	log := recenttest.NewLog(rules)
	feed := recenttest.NewFeed(t, log, view, 0)
	start(t, log, "s", time.Now())
	feed.All(1)
	for k, want := range []uint64{1, 0} {
		at, err := view.Applied(t.Context(), k)
		require.NoError(t, err)
		require.Equal(t, events.Position{Partition: k, Seq: want}, at)
	}
	snap, err := view.Load(t.Context(), "s", 1, -1)
	require.NoError(t, err)
	require.Nil(t, snap.State)
	_, err = view.Load(t.Context(), "s", events.Buckets, -1)
	require.Error(t, err)
	_, err = view.Claim(t.Context(), -1)
	require.Error(t, err)
}

func TestDeadLettersAreBounded(t *testing.T) {
	t.Parallel()
	view := memory.New(limits, rules, nil)
	log := recenttest.NewLog(rules)
	feed := recenttest.NewFeed(t, log, view, 0)
	for n := range 1200 {
		start(t, log, fmt.Sprint(n), time.Now())
		feed.Park()
	}
	letters, err := feed.Desk.Queue(view, log, rules).DeadLetters(t.Context())
	require.NoError(t, err)
	require.Len(t, letters, 1000)
	require.Equal(t, uint64(1200), letters[999].Position.Seq)
}

func start(t *testing.T, log *recenttest.Log, session string, at time.Time) {
	log.Append(t, &events.TurnStarted{
		TurnID: recenttest.ID(session, "1"), SessionID: session, RequestID: "1",
		Question: events.Question{QuestionNeutral: "q"},
	}, at)
}

func load(t *testing.T, view *memory.View, session string) *conversation.State {
	t.Helper()
	snap, err := view.Load(t.Context(), session, 0, -1)
	require.NoError(t, err)
	return snap.State
}

// TestAReadIsNoNewerThanItsState has an event applied just after a read has taken the state: what the
// state lacks is after the position that comes with it.
func TestAReadIsNoNewerThanItsState(t *testing.T) {
	t.Parallel()
	view := memory.New(limits, rules, nil)
	log := recenttest.NewLog(rules)
	feed := recenttest.NewFeed(t, log, view, 0)
	for _, session := range []string{"s", "other", "s"} {
		start(t, log, session, time.Now())
		at, state := view.Snapshot(0, func() *conversation.State {
			state := load(t, view, "s")
			feed.All(1)
			return state
		})
		require.Less(t, at, feed.At.Seq)
		if state != nil {
			require.GreaterOrEqual(t, at, state.Applied)
		}
	}
}

// What was loaded stays as it was, while the view extends the turn further, also under readers that come at once.
func TestLoadedTextsStayWhileTheTurnIsExtended(t *testing.T) {
	t.Parallel()
	view := memory.New(limits, rules, nil)
	log := recenttest.NewLog(rules)
	feed := recenttest.NewFeed(t, log, view, 0)
	now := time.Now()
	start(t, log, "s", now)
	turn := recenttest.ID("s", "1")
	log.Append(t, &events.TurnFinalized{TurnID: turn, SessionID: "s", Answer: events.Answer{AnswerNeutral: "a"}}, now)
	feed.All(2)
	var readers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				snap, err := view.Load(context.WithoutCancel(ctx), "s", 0, 1)
				if err != nil || !json.Valid(fmt.Appendf(nil, "[%s]", messages(snap.State))) {
					t.Error(err, "the messages are no JSON")
					return
				}
			}
		})
	}
	var loaded []*conversation.State
	var texts []string
	for n := range 300 {
		log.Append(t, &events.TurnExtended{TurnID: turn, SessionID: "s", ExtensionID: fmt.Sprint(n),
			Extension: events.Extension{Half: events.HalfAnswer, AnswerNeutral: fmt.Sprint(n),
				Messages: fmt.Appendf(nil, `[{"role":"assistant","content":"%d"}]`, n)}}, now)
		feed.All(1)
		if n%7 == 0 {
			loaded = append(loaded, load(t, view, "s"))
			texts = append(texts, messages(loaded[len(loaded)-1]))
		}
	}
	stop()
	readers.Wait()
	for i, s := range loaded {
		require.Equal(t, texts[i], messages(s))
	}
	require.Equal(t, messages(log.State("s")), messages(load(t, view, "s")))
}

func messages(s *conversation.State) string {
	if m := s.Turns[0].Answer.AnswerMessages; m != nil {
		return string(m)
	}
	return "null"
}
