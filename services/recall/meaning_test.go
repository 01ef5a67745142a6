package recall_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/recall"
)

// near is an index that finds what it is told, once it may.
type near struct {
	hits  []services.SimilarHit
	err   error
	hangs bool
	asked []string
}

// Neighbours implements recall.Neighbours.
func (n *near) Neighbours(ctx context.Context, identity, text string, _ int) ([]services.SimilarHit, error) {
	n.asked = append(n.asked, identity+": "+text)
	if n.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return n.hits, n.err
}

// wordly is a search by words that finds what it is told.
type wordly struct {
	found []recall.Found
	err   error
}

// Search implements recall.Searcher.
func (w wordly) Search(context.Context, recall.Scoped, string, int) ([]recall.Found, error) {
	return w.found, w.err
}

func turnID(n byte) uuid.UUID { return uuid.UUID{15: n} }

// hit is a turn that is near.
func hit(n byte, score float64, question string) services.SimilarHit {
	of := projections.Hit{TurnID: turnID(n), Score: score}
	return services.SimilarHit{Hit: of, Question: question, Answer: "Yes."}
}

func fused(t *testing.T, words wordly, n *near, q services.MemoryQuery) (services.MemorySnippet, error) {
	t.Helper()
	free := func(context.Context, recall.Scoped) (bool, error) { return true, nil }
	check := projections.ErasureCheck{Log: natstest.Log(t, 1)}
	s := recall.NewSnippets(check, words, free, 2*time.Second).WithMeaning(recall.Meaning{Turns: n})
	q.Message = "a question"
	return s.Snippet(t.Context(), q)
}

var ada = services.MemoryQuery{SessionID: "s", IdentityID: "ada"}

// What is found by words and by meaning comes first, then the turns of both, each in its order and none twice.
func TestAMemoryFusesWordsAndMeaning(t *testing.T) {
	t.Parallel()
	words := wordly{found: []recall.Found{{TurnID: turnID(1), Text: "Only words."}, {TurnID: turnID(2), Text: "Both."}}}
	n := &near{hits: []services.SimilarHit{
		hit(3, 0.9, "Only meaning."), hit(2, 0.8, "Both."), hit(4, 0.5, "Half as near."), hit(5, 0.4, "Far."),
	}}
	got := must.Get(fused(t, words, n, ada))(t)
	require.Equal(t, services.MemorySnippet{
		Text: "- Both.\n- Only words.\n- User: Only meaning. Assistant: Yes.\n- User: Half as near.",
	}, got, "a turn that is less than half as near as the nearest is left out, and no sentence comes twice")
	require.Equal(t, []string{"ada: a question"}, n.asked)
	q := ada
	q.Shown = []uuid.UUID{turnID(2), turnID(3)}
	got = must.Get(fused(t, words, n, q))(t)
	require.Equal(t, "- Only words.\n- User: Half as near. Assistant: Yes.", got.Text, "what the prompt shows anyway")
}

// An index that fails, or does not answer in its part of the budget, leaves what the words have found, and the snippet
// says so.
func TestAMemoryWithoutItsIndexGoesByWords(t *testing.T) {
	t.Parallel()
	words := wordly{found: []recall.Found{{TurnID: turnID(1), Text: "Only words."}}}
	for name, n := range map[string]*near{
		"fails": {err: services.ErrIndex}, "hangs": {hangs: true},
		"fails late": {err: services.ErrIndex, hits: []services.SimilarHit{hit(2, 1, "Half an answer.")}},
	} {
		got, err := fused(t, words, n, ada)
		require.NoError(t, err, name)
		require.Equal(t, services.MemorySnippet{Text: "- Only words.", ByWords: true}, got, name)
	}
	other := &near{err: errors.Join(services.ErrIndex, projections.Unavailable(projections.ErrOtherModel))}
	got := must.Get(fused(t, words, other, ada))(t)
	require.Equal(t, services.MemorySnippet{Text: "- Only words.", ByWords: true, OtherModel: true}, got)
	refused := errors.New("refused")
	got, err := fused(t, wordly{err: refused}, &near{hits: []services.SimilarHit{hit(2, 1, "Near.")}}, ada)
	require.ErrorIs(t, err, refused, "tables that fail are not passed over in silence")
	require.Empty(t, got)
}

// The index is not asked for a session without an identity: it would search all identities.
func TestTheIndexIsNotAskedForAGuest(t *testing.T) {
	t.Parallel()
	n := &near{hits: []services.SimilarHit{hit(2, 1, "Near.")}}
	got := must.Get(fused(t, wordly{}, n, services.MemoryQuery{SessionID: "guest"}))(t)
	require.Empty(t, got)
	require.Empty(t, n.asked)
}
