// Package indextest has what tests of the index need: a world with a log and an index, a store in memory, the contract
// that this store and the one of production both keep, and a property that runs on either.
package indextest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
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
	Rules    session.Rules
}

// NewWorld makes an empty log, for a store.
func NewWorld(t testing.TB, store index.Store, partitions int) *World {
	t.Helper()
	log := natstest.Log(t, partitions)
	notes := must.Get(log.Notes(t.Context()))(t)
	return &World{
		Log: log, Store: store, Endpoint: embeddingstest.Start(t), Notes: notes,
		Rules: session.Rules{SessionTTL: 24 * time.Hour},
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
	for _, f := range must.Get(reg.Gather())(t) {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// T is a test, or a check of rapid.
type T interface {
	require.TestingT
	Helper()
	Context() context.Context
}

// object is what the index has to hold of a turn.
type object struct {
	Session, Identity string
	StartSeq          uint64
	Version           int
	// Question and Answer are the digests of the texts.
	Question, Answer string
}

// Agree compares the index with a fold of the log, which does without the view's own planner: what the store holds, in
// one collection, what a search finds, and what verify says. The log has no other sessions.
func (w *World) Agree(t T, v *index.View, sessions ...string) {
	t.Helper()
	want := map[uuid.UUID]object{}
	for _, id := range sessions {
		w.expect(t, id, want)
	}
	require.Equal(t, want, w.held(t), "in the store")
	found := func() map[uuid.UUID]object {
		hits, _ := must.Two(v.Nearest(t.Context(), "", index.Near{
			Vector: embeddingstest.Vector("any question", Dimensions), Limit: 1000,
		}))(t)
		out := map[uuid.UUID]object{}
		for _, h := range hits {
			out[h.TurnID] = want[h.TurnID]
		}
		return out
	}
	seen := maps.Clone(want)
	maps.DeleteFunc(seen, func(_ uuid.UUID, o object) bool { return o.Question == "" && o.Answer == "" })
	require.Equal(t, seen, found(), "found")
	require.Empty(t, w.Differences(t, v), "verified")
}

// expect adds the turns of a session that the index has to hold.
func (w *World) expect(t T, sessionID string, into map[uuid.UUID]object) {
	t.Helper()
	s, in := session.New(sessionID, w.Rules), map[uuid.UUID]bool{}
	for e, err := range w.Log.Session(t.Context(), sessionID, 0, 1<<40) {
		require.NoError(t, err)
		belong(s, s.Fold(e), in)
	}
	for _, of := range s.Turns {
		if in[of.ID] && of.Status == session.Finalized && s.Erased == 0 {
			into[of.ID] = object{
				sessionID, s.Identity, of.Started, of.Version, w.Digest(of.Question.QuestionNeutral),
				w.Digest(of.Answer.AnswerNeutral),
			}
		}
	}
}

// belong notes the turns that an event brings into the index.
func belong(s *session.State, c session.Change, in map[uuid.UUID]bool) {
	if s.Identity == "" {
		return
	}
	if c.Kind == session.Linked || c.NewBoundary && c.Kind != session.Reset {
		for _, t := range s.Turns {
			in[t.ID] = in[t.ID] || t.Place > c.Silence
		}
	}
	if c.Turn != nil && c.Kind.ChangesView() {
		in[c.Turn.ID] = true
	}
}

// Digest names a text as the index does.
func (w *World) Digest(text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(w.Config().Embedder.Model() + "\x00" + text))
	return hex.EncodeToString(sum[:12])
}

// held returns what the one collection of a store holds.
func (w *World) held(t T) map[uuid.UUID]object {
	t.Helper()
	all := must.Get(w.Store.List(t.Context()))(t)
	require.Len(t, all, 1)
	page := must.Get(w.Store.Page(t.Context(), all[0].Name, uuid.Nil, 1000))(t)
	out := map[uuid.UUID]object{}
	for _, o := range page {
		if o.Session != "" {
			out[o.ID] = object{o.Session, o.Identity, o.StartSeq, o.Version, o.Question.Digest, o.Answer.Digest}
		}
	}
	return out
}

// Reached waits until a view has applied all of the log, and its store still has it.
func (w *World) Reached(t testing.TB, v *index.View) {
	t.Helper()
	hang.Until(t, func() bool { return w.HasReached(t, v) })
}

// HasReached reports whether a view has applied all of the log, and its store still has it.
func (w *World) HasReached(t testing.TB, v *index.View) bool {
	t.Helper()
	for k := range w.Log.Partitions() {
		head := must.Get(w.Log.Head(t.Context(), k))(t)
		if at, err := v.Applied(t.Context(), k); err != nil || at.Seq < head.Seq {
			return false
		}
	}
	return true
}

// Differences verifies a view, and returns what differs from the log.
func (w *World) Differences(t T, v *index.View) (out []projections.Difference) {
	t.Helper()
	must.Get(rebuild.NewVerification(w.Log, v, rebuild.Config{Rules: w.Rules}).Run(t.Context(), 0,
		func(d projections.Difference) error {
			out = append(out, d)
			return nil
		}))(t)
	return out
}
