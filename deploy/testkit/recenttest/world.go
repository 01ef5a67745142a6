// Package recenttest tests that every backend of the recent-turns view keeps one contract. Run is the suite. A
// reference folds the same log in another way.
//
// The log of a test lies in the past: whatever expires in it expired long ago, since a Redis expires keys by its own
// clock.
package recenttest

import (
	"context"
	"encoding/json"
	"iter"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/recent"
)

// View is a recent-turns view with its side for feeding and its side for reading.
type View struct {
	projections.View
	recent.Reader
}

// Open makes a new, empty view, which ends with the test.
type Open func(t testing.TB, limits recent.Limits, rules session.Rules) View

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
	rules  = session.Rules{SessionTTL: ttl}
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
		w.add(turntest.Started(session, r, "q-"+r))
	}
	return w
}

func (w *world) answer(session string, requests ...string) *world {
	for _, r := range requests {
		w.add(turntest.Finalized(session, r, "a-"+r))
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
func (w *world) decided(d decide.Decision) *world {
	require.NotEmpty(w.t, d.Facts)
	for _, f := range d.Facts {
		w.add(f)
	}
	return w
}

func (w *world) redact(session, request string) *world {
	return w.decided(decide.Redact{TurnID: ID(session, request)}.On(w.log.State(session)))
}

func (w *world) correct(session, old, request string) *world {
	text, s := "a-"+request, w.log.State(session)
	c := decide.Correct{SessionID: session, RequestID: request, TurnID: ID(session, old), AnswerNeutral: &text}
	return w.decided(c.On(s, s.Turn(c.TurnID)))
}

func (w *world) link(session, identity string) *world {
	return w.decided(decide.Link(w.log.State(session), identity, ""))
}

func (w *world) reset(session string) *world {
	return w.decided(decide.Reset(w.log.State(session), "", 0))
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
	return must.Get(w.view.Load(w.t.Context(), session, 0, shown))(w.t)
}

// state returns a session, which the view must hold.
func (w *world) state(sessionID string, shown int) *session.State {
	w.t.Helper()
	s := w.load(sessionID, shown).State
	require.NotNil(w.t, s, "the view must hold the session")
	return s
}

// requests returns the request ids of the held turns, with a question mark after those of pending turns.
func (w *world) requests(sessionID string, shown int) []string {
	w.t.Helper()
	out := []string{}
	for _, t := range w.state(sessionID, shown).Turns {
		r := t.RequestID
		require.NotNil(w.t, t.Question)
		if t.Status == session.Pending {
			r += "?"
		} else {
			require.Equal(w.t, "a-"+t.RequestID, t.Answer.AnswerNeutral)
		}
		out = append(out, r)
	}
	return out
}

// Log is a log of one partition in memory. It also keeps the fold of each session, so that tests can write facts that
// fit.
type Log struct {
	Events []events.Recorded

	rules session.Rules
	truth map[string]*session.State
}

var _ projections.LogReader = (*Log)(nil)

// NewLog makes an empty log.
func NewLog(rules session.Rules) *Log {
	rules.Slim = false
	return &Log{rules: rules, truth: map[string]*session.State{}}
}

// Append records a fact in the form in which JetStream returns it.
func (l *Log) Append(t require.TestingT, f events.Fact, at time.Time) events.Recorded {
	env, err := events.Encode(f, at)
	require.NoError(t, err)
	return l.AppendEnvelope(env, at)
}

// AppendEnvelope records an envelope, whatever its publisher wrote.
func (l *Log) AppendEnvelope(env events.Envelope, at time.Time) events.Recorded {
	e := events.Decode(env, events.Position{Seq: uint64(len(l.Events)) + 1}, at.Round(0))
	l.Events = append(l.Events, e)
	if e.SessionID != "" {
		l.State(e.SessionID).Fold(e)
	}
	return e
}

// State returns a session's state at the log's end.
func (l *Log) State(sessionID string) *session.State {
	s := l.truth[sessionID]
	if s == nil {
		s = session.New(sessionID, l.rules)
		l.truth[sessionID] = s
	}
	return s
}

// Partitions implements projections.SessionReader.
func (*Log) Partitions() int { return 1 }

// Session implements projections.SessionReader.
func (l *Log) Session(_ context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	return func(yield func(events.Recorded, error) bool) {
		for _, e := range l.Events {
			in := e.SessionID == sessionID && e.Position.Seq > after && e.Position.Seq <= upTo
			if in && !yield(e, nil) {
				return
			}
		}
	}
}

// At implements projections.LogReader.
func (l *Log) At(_ context.Context, at events.Position) (events.Recorded, bool, error) {
	if at.Seq == 0 || at.Seq > uint64(len(l.Events)) {
		return events.Recorded{}, false, nil
	}
	return l.Events[at.Seq-1], true, nil
}

// T is a test, a benchmark or a run of a property.
type T interface {
	require.TestingT
	Context() context.Context
}

// Feed brings a log into a view as a runner does. Desk keeps the parked events.
type Feed struct {
	At   projections.Checkpoint
	Desk *desk.Desk

	t     T
	log   *Log
	view  projections.Sink
	judge *projections.Judge
	claim *desk.Claim
}

// NewFeed claims the partition. A view without a checkpoint begins after the sequence start.
func NewFeed(t T, log *Log, view projections.Sink, start uint64) *Feed {
	f := &Feed{t: t, log: log, view: view, Desk: desk.InMemory()}
	f.Claim(start)
	return f
}

// Claim takes the partition over, as a new runner does.
func (f *Feed) Claim(start uint64) {
	at, err := f.view.Claim(f.t.Context(), 0)
	require.NoError(f.t, err)
	f.claim, err = f.Desk.ClaimLetters(f.t.Context(), f.view.Name(), at)
	require.NoError(f.t, err)
	if at.Seq == 0 {
		at.Seq = start
	}
	f.At, f.judge = at, projections.NewJudge(f.log, f.log.rules, at.Seq)
}

// Batch judges the next events, up to the given number.
func (f *Feed) Batch(most int) projections.Batch {
	upTo := min(f.At.Seq+uint64(most), uint64(len(f.log.Events)))
	return f.judged(f.log.Events[f.At.Seq:upTo])
}

func (f *Feed) judged(run []events.Recorded) projections.Batch {
	b := projections.Batch{From: f.At, To: f.At}
	for _, e := range run {
		j, err := f.judge.Judge(f.t.Context(), e)
		require.NoError(f.t, err)
		b.Events = append(b.Events, j)
		b.To.Seq, b.To.EventID = e.Position.Seq, e.ID
	}
	return b
}

// Apply applies a batch and moves the checkpoint.
func (f *Feed) Apply(b projections.Batch) {
	require.NoError(f.t, f.view.Apply(f.t.Context(), b))
	f.At = b.To
}

// Park keeps the next event as a dead letter, and moves the checkpoint past it.
func (f *Feed) Park() {
	b := f.Batch(1)
	dead := projections.NewDeadLetter(f.view.Name(), &b.Events[0], "a test", time.Now())
	require.NoError(f.t, f.claim.Keep(f.t.Context(), f.At.Created, dead))
	b.Events, b.Parked = nil, b.Events
	f.Apply(b)
}

// All applies the rest of the log, in batches of at most the given number of events.
func (f *Feed) All(most int) {
	for int(f.At.Seq) < len(f.log.Events) {
		f.Apply(f.Batch(most))
	}
}

// ID returns the id of the turn that a request opens.
func ID(session, request string) uuid.UUID { return events.TurnID(session, request) }

// Plain returns all that a state shows to others, in a form that compares by value: times as UTC, bytes as text. It
// leaves out the digests of bodies, which only the fold itself knows.
func Plain(s *session.State) any {
	if s == nil {
		return nil
	}
	out := map[string]any{
		"session": s.SessionID, "applied": s.Applied, "whole": s.Whole, "head": plain(reflect.ValueOf(s.Head())),
		"description": plain(reflect.ValueOf(s.Description())),
	}
	turns := []any{}
	for _, t := range s.Turns {
		turns = append(turns, plain(reflect.ValueOf(t)), t.Extensions(), t.AnswerParts(), asOf(t))
	}
	out["turns"] = turns
	return out
}

// asOf returns a turn as it was at each event that opened, answered, extended or pruned it.
func asOf(t *session.Turn) (out []any) {
	all := []uint64{t.Started, t.Final}
	for _, x := range t.Extensions() {
		all = append(all, x.Seq)
	}
	for _, seq := range all {
		then := t.Until(seq, t.Final != 0 && t.Final <= seq)
		out = append(out, seq, plain(reflect.ValueOf(then)), then.Extensions(), then.AnswerParts())
	}
	return out
}

func plain(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case time.Time:
		return x.UTC().Format(time.RFC3339Nano)
	case json.RawMessage:
		return string(x)
	case uuid.UUID:
		return x.String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem())
	case reflect.Struct:
		out := map[string]any{}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				out[f.Name] = plain(v.Field(i))
			}
		}
		return out
	default:
		return v.Interface()
	}
}
