package identities

import (
	"cmp"
	"context"
	"errors"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// SteppedSearcher is a Searcher that records its searches as steps of requests, by mode. A search that the caller asked
// wrongly is no failure.
type SteppedSearcher struct {
	services.Searcher
	Steps services.Steps
}

// Search implements services.Searcher.
func (s SteppedSearcher) Search(ctx context.Context, ask services.SearchAsk) (page services.SearchPage, err error) {
	var wrong error
	err = s.Steps.Step(ctx, "search_words", func(ctx context.Context) (err error) {
		page, err = s.Searcher.Search(ctx, ask)
		if errors.Is(err, conversation.ErrInvalid) {
			wrong, err = err, nil
		}
		return err
	})
	return page, cmp.Or(wrong, err)
}
