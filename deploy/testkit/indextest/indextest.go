// Package indextest has what tests of the index need: a world with a log and an index, a store in memory, the contract
// that this store and the one of production both keep, and a property that runs on either.
package indextest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/projections/rebuild"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services/model/embeddings"
)

// Dimensions of the vectors in tests.
const Dimensions = 64

// World is a log with an index on a store.
type World struct {
	Log      *jetlog.Log
	Store    index.Store
	Endpoint *embeddingstest.Endpoint
	Notes    desk.Notes
	Rules    conversation.Rules
}

// NewWorld makes an empty log, for a store.
func NewWorld(t testing.TB, store index.Store, partitions int) *World {
	t.Helper()
	log := natstest.Log(t, partitions)
	notes := must.Get(log.Notes(t.Context()))(t)
	return &World{
		Log: log, Store: store, Endpoint: embeddingstest.Start(t), Notes: notes,
		Rules: conversation.Rules{SessionTTL: 24 * time.Hour},
	}
}

// Config returns the configuration of a view.
func (w *World) Config() index.Config {
	return index.Config{
		Store: w.Store, Log: w.Log, Partitions: w.Log.Partitions(), Rules: w.Rules,
		Notes:    w.Notes,
		Embedder: w.Embedder("hash", Dimensions),
	}
}

// Embedder makes vectors by a model of the world's endpoint; without dimensions they are as long as it likes.
func (w *World) Embedder(name string, dimensions int) index.Embedder {
	return embeddings.New(embeddings.Config{URL: w.Endpoint.URL(), Name: name, Dimensions: dimensions})
}

// Open makes a view, as a process does that feeds it.
func (w *World) Open(t testing.TB, change ...func(*index.Config)) *index.View {
	t.Helper()
	cfg := w.Config()
	for _, c := range change {
		c(&cfg)
	}
	v := index.New(cfg)
	require.NoError(t, v.Prepare(t.Context()))
	return v
}

// Feed feeds a view until the test ends, or stop is called.
func (w *World) Feed(t testing.TB, v projections.Projection) (stop func()) {
	t.Helper()
	return w.feed(t, v, nil)
}

// FeedTogether feeds a view as Feed does, and shares the partitions with others that call it.
func (w *World) FeedTogether(t testing.TB, v *index.View) (stop func()) {
	t.Helper()
	return w.feed(t, v, desk.Of(w.Log).Members(v.Name(), func(ctx context.Context) (string, error) {
		served, err := v.Served(ctx)
		return served.Store, err
	}))
}

func (w *World) feed(t testing.TB, v projections.Projection, group projections.Group) (stop func()) {
	t.Helper()
	r := runner.New(w.Log, v, runner.Config{
		Rules: w.Rules, Feeding: runner.Feeding{MaxBatch: 50}, Group: group, Pause: 20 * time.Millisecond,
		Beat: 50 * time.Millisecond,
	})
	return natstest.Run(t, r.Run)
}

// CaughtUp waits until a view has applied all of the log.
func (w *World) CaughtUp(t testing.TB, v projections.View) {
	t.Helper()
	hang.Until(t, func() bool { return viewtest.CaughtUp(t, w.Log, v) })
}

// Rebuild rebuilds a view, again where a runner that took a partition over came between, as an operator would.
func (w *World) Rebuild(t testing.TB, v *index.View) {
	t.Helper()
	for tries := 10; ; tries-- {
		r, err := rebuild.Begin(t.Context(), w.Log, v, v, rebuild.Config{Rules: w.Rules})
		require.NoError(t, err)
		if err = r.Run(t.Context()); tries > 0 && errors.Is(err, projections.ErrFenced) {
			continue
		}
		require.NoError(t, err)
		return
	}
}

// Append appends facts, each by itself.
func (w *World) Append(t testing.TB, facts ...events.Fact) events.Position {
	t.Helper()
	return natstest.Append(t, w.Log, facts...)
}

// Turn returns the facts of a finalized turn.
func Turn(session, request, question, answer string) []events.Fact {
	id := events.TurnID(session, request)
	return []events.Fact{
		&events.TurnStarted{TurnID: id, SessionID: session, RequestID: request,
			Question: events.Question{QuestionNeutral: question}},
		&events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{AnswerNeutral: answer}},
	}
}

// Linked returns the fact that links a session.
func Linked(session, identity string) events.Fact {
	return &events.SessionLinked{SessionID: session, IdentityID: identity}
}

// Near asks for the ten objects that are nearest to a text.
func Near(text string) index.Near {
	return index.Near{Vector: embeddingstest.Vector(text, Dimensions), Limit: 10}
}

// Found returns the turns that are nearest to a question, with an identity or without.
func (w *World) Found(t testing.TB, v *index.View, question, identity string) (ids []string) {
	t.Helper()
	n := Near(question)
	n.IdentityID = identity
	near, _ := must.Two(v.Nearest(t.Context(), projections.QuestionHalf, n))(t)
	for _, n := range near {
		ids = append(ids, n.TurnID.String())
	}
	return ids
}

// Counted returns a counter's value, by its one label; 0 if there is none.
func Counted(t testing.TB, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families := must.Get(reg.Gather())(t)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
