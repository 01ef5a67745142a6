package recenttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// View is a recent-turns view with its side for feeding and its side for reading.
type View struct {
	projections.View
	recent.Reader
}

// Open makes a new, empty view, which ends with the test.
type Open func(t testing.TB, limits recent.Limits, rules conversation.Rules) View

// world is the setup of one test: a log, a view that follows it, and the time.
type world struct {
	t    *testing.T
	log  *Log
	view View
	feed *Feed
	now  time.Time
}

const ttl = 24 * time.Hour

var (
	limits = recent.Limits{TTL: ttl, MaxTurns: 6}
	rules  = conversation.Rules{SessionTTL: ttl}
)

func newWorld(t *testing.T, open Open) *world {
	w := &world{t: t, log: NewLog(rules), view: open(t, limits, rules), now: time.Now().Add(-time.Hour).UTC()}
	w.feed = NewFeed(t, w.log, w.view, 0)
	return w
}

// add records a fact, one second after the last.
func (w *world) add(f events.Fact) *world {
	w.now = w.now.Add(time.Second)
	w.log.Append(w.t, f, w.now)
	return w
}

func (w *world) start(session string, requests ...string) *world {
	for _, r := range requests {
		w.add(&events.TurnStarted{
			TurnID: ID(session, r), SessionID: session, RequestID: r, Question: events.Question{QuestionNeutral: "q-" +
				r},
		})
	}
	return w
}

func (w *world) answer(session string, requests ...string) *world {
	for _, r := range requests {
		w.add(&events.TurnFinalized{TurnID: ID(session, r), SessionID: session,
			Answer: events.Answer{AnswerNeutral: "a-" + r}})
	}
	return w
}

// turn starts and answers turns.
func (w *world) turn(session string, requests ...string) *world {
	for _, r := range requests {
		w.start(session, r).answer(session, r)
	}
	return w
}

// decided records the facts of a decision.
func (w *world) decided(d conversation.Decision) *world {
	require.NotEmpty(w.t, d.Facts)
	for _, f := range d.Facts {
		w.add(f)
	}
	return w
}

func (w *world) redact(session, request string) *world {
	return w.decided(w.log.State(session).DecideRedact(conversation.Redact{TurnID: ID(session, request)}))
}

func (w *world) correct(session, old, request string) *world {
	text, s := "a-"+request, w.log.State(session)
	c := conversation.Correct{SessionID: session, RequestID: request, TurnID: ID(session, old), AnswerNeutral: &text}
	return w.decided(s.DecideCorrect(c, s.Turn(c.TurnID)))
}

func (w *world) link(session, identity string) *world {
	return w.decided(w.log.State(session).DecideLink(identity, ""))
}

func (w *world) reset(session string) *world {
	return w.decided(w.log.State(session).DecideReset("", 0))
}

func (w *world) erase(session string) *world {
	return w.add(&events.SessionErased{SessionID: session, ReceiptID: "receipt"})
}

// flush brings the recorded events into the view, one event a batch.
func (w *world) flush() *world {
	w.feed.All(1)
	return w
}

func (w *world) load(session string, shown int) recent.Snapshot {
	w.t.Helper()
	snap := must.Get(w.view.Load(w.t.Context(), session, 0, shown))(w.t)
	return snap
}

// state returns a session, which the view must hold.
func (w *world) state(session string, shown int) *conversation.State {
	w.t.Helper()
	s := w.load(session, shown).State
	require.NotNil(w.t, s, "the view must hold the session")
	return s
}

// requests returns the request ids of the held turns, with a question mark after those of pending turns.
func (w *world) requests(session string, shown int) []string {
	w.t.Helper()
	out := []string{}
	for _, t := range w.state(session, shown).Turns {
		r := t.RequestID
		require.NotNil(w.t, t.Question)
		if t.Status == conversation.Pending {
			r += "?"
		} else {
			require.Equal(w.t, "a-"+t.RequestID, t.Answer.AnswerNeutral)
		}
		out = append(out, r)
	}
	return out
}
