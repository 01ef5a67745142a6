package supermemory

import (
	"context"
	"net/url"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/services/recall"
)

// V5 speaks the API v5: a scope is a namespace.
type V5 struct{ client }

var (
	_ recall.Store    = V5{}
	_ recall.Searcher = V5{}
)

// NewV5 makes a memory; it does no I/O.
func NewV5(c Config) V5 { return V5{newClient(c)} }

func namespace(scope string) string { return "/ns/" + url.PathEscape(scope) }

// Put implements recall.Store.
func (m V5) Put(ctx context.Context, scope string, d recall.Document) error {
	return m.put(ctx, namespace(scope)+"/document?dreaming=dynamic&taskType=memory", map[string]any{
		"id": d.TurnID, "content": content(d), "metadata": metadata(d),
	})
}

// mostIDs bounds how many documents one call deletes.
const mostIDs = 100

// Delete implements recall.Store.
func (m V5) Delete(ctx context.Context, scope string, turns []uuid.UUID) error {
	for ids := range slices.Chunk(turns, mostIDs) {
		if err := m.remove(ctx, namespace(scope)+"/document", map[string]any{"ids": ids}); err != nil {
			return err
		}
		// The response lists documents that did not exist as failures, so only a read of each document shows that it is
		// gone.
		for _, id := range ids {
			if err := m.gone(ctx, namespace(scope)+"/document/"+id.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Forget implements recall.Store.
func (m V5) Forget(ctx context.Context, scope string) error {
	return m.remove(ctx, namespace(scope), nil)
}

// Search implements recall.Searcher.
func (m V5) Search(ctx context.Context, scope recall.Scoped, query string, limit int) ([]recall.Found, error) {
	return m.search(ctx, namespace(scope.Name)+"/search", map[string]any{
		"query": query, "searchMode": "hybrid", "limit": limit,
	})
}
