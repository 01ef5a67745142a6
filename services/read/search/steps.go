package search

import (
	"cmp"
	"context"
	"errors"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
)

// Stepped records searches as steps of requests, by mode. A search that the caller asked wrongly is no failure.
type Stepped struct {
	services.Searcher
	services.SimilarTurns
	// Usual is the mode of a search that names none.
	Usual services.SearchMode
}

// Search implements services.Searcher.
func (s Stepped) Search(ctx context.Context, ask services.SearchAsk) (page services.SearchPage, err error) {
	var wrong error
	mode := cmp.Or(ask.Mode, s.Usual, services.SearchWords)
	err = services.Measure(ctx, "search_"+string(mode), func(ctx context.Context) (err error) {
		page, err = s.Searcher.Search(ctx, ask)
		if errors.Is(err, decide.ErrInvalid) {
			wrong, err = err, nil
		}
		return err
	})
	return page, cmp.Or(wrong, err)
}

// Similar implements services.SimilarTurns.
func (s Stepped) Similar(ctx context.Context, ask services.SimilarAsk) (hits []services.SimilarHit, err error) {
	err = services.Measure(ctx, "similar", func(ctx context.Context) (err error) {
		hits, err = s.SimilarTurns.Similar(ctx, ask)
		return err
	})
	return hits, err
}
