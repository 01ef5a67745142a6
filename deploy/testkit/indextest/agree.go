package indextest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/projections/rebuild"
)

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
func (w *World) expect(t T, session string, into map[uuid.UUID]object) {
	t.Helper()
	s, in := conversation.New(session, w.Rules), map[uuid.UUID]bool{}
	for e, err := range w.Log.Session(t.Context(), session, 0, 1<<40) {
		require.NoError(t, err)
		belong(s, s.Fold(e), in)
	}
	for _, of := range s.Turns {
		if in[of.ID] && of.Status == conversation.Finalized && s.Erased == 0 {
			into[of.ID] = object{
				session, s.Identity, of.Started, of.Version, w.Digest(of.Question.QuestionNeutral),
				w.Digest(of.Answer.AnswerNeutral),
			}
		}
	}
}

// belong notes the turns that an event brings into the index.
func belong(s *conversation.State, c conversation.Change, in map[uuid.UUID]bool) {
	if s.Identity == "" {
		return
	}
	if c.Kind == conversation.Linked || c.NewBoundary && c.Kind != conversation.Reset {
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
