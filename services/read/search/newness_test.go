package search_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

// An answer is at least as new as the caller asks: the log has to hold the positions, and the index to have applied
// them. A search that names no mode goes by words where the index is not that far in time.
func TestAnAnswerIsAtLeastAsNewAsAsked(t *testing.T) {
	t.Parallel()
	calls := map[string]func(*world, ...events.Position) error{}
	for _, mode := range []services.SearchMode{services.SearchMeaning, services.SearchHybrid} {
		calls[string(mode)] = func(w *world, least ...events.Position) error {
			a := ask(mode, 5)
			a.MinPosition = least
			_, err := w.another().Search(t.Context(), a)
			return err
		}
	}
	calls["similar"] = func(w *world, least ...events.Position) error {
		_, err := w.another().Similar(t.Context(), services.SimilarAsk{Question: "q", Limit: 5, MinPosition: least})
		return err
	}
	for name, call := range calls {
		w := newWorld(t)
		w.add(1, 1, question)
		require.NoError(t, call(w, events.Position{Seq: 10}, events.Position{Partition: 1, Seq: 20}), name)
		for _, p := range []events.Position{{Partition: 1, Seq: 21}, {Partition: 2, Seq: 1}} {
			err := call(w, p)
			require.ErrorIs(t, err, services.ErrPositionNotReached, name)
			require.NotErrorIs(t, err, services.ErrIndex, name)
		}
		w.at = []events.Position{{Partition: 0, Seq: 10}, {Partition: 1, Seq: 19}}
		err := call(w, events.Position{Partition: 1, Seq: 20})
		require.ErrorIs(t, err, services.ErrIndex, name)
		require.ErrorContains(t, err, "1:20", name)
		require.NoError(t, call(w, events.Position{Partition: 1, Seq: 19}), name)
		require.NoError(t, call(w), name)
		w.still = true
		require.NoError(t, call(w, events.Position{Partition: 1, Seq: 20}), "what was erased never comes")
		w.still = false
		w.grow = func() {
			w.heads = []events.Position{{Partition: 0, Seq: 10}, {Partition: 1, Seq: w.heads[1].Seq + 1}}
			w.at = []events.Position{{Partition: 0, Seq: 10}, {Partition: 1, Seq: w.at[1].Seq + 1}}
		}
		require.NoError(t, call(w, events.Position{Partition: 1, Seq: 23}), "it waits")
		w.grow, w.index = nil, projections.ErrUnavailable
		require.ErrorIs(t, call(w, events.Position{Seq: 1}), services.ErrIndex, name)
	}
	w := newWorld(t)
	w.at[1].Seq--
	a := ask(services.AnyMode, 5)
	a.MinPosition = []events.Position{{Partition: 1, Seq: 20}}
	page := must.Get(w.another().Search(t.Context(), a))(t)
	require.Equal(t, services.SearchWords, page.Mode)
	require.Equal(t, a.MinPosition, w.byWords[0].MinPosition)
}
