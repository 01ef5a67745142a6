package recenttest

import (
	"context"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

// Log is a log of one partition in memory. It also keeps the fold of each session, so that tests can write facts that
// fit.
type Log struct {
	Events []events.Recorded

	rules conversation.Rules
	truth map[string]*conversation.State
}

var _ projections.LogReader = (*Log)(nil)

// NewLog makes an empty log.
func NewLog(rules conversation.Rules) *Log {
	rules.Slim = false
	return &Log{rules: rules, truth: map[string]*conversation.State{}}
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
func (l *Log) State(sessionID string) *conversation.State {
	s := l.truth[sessionID]
	if s == nil {
		s = conversation.New(sessionID, l.rules)
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
