package supermemory

import (
	"context"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/services/recall"
)

// V4 speaks the APIs v3 (documents) and v4 (search): a scope is a container tag.
type V4 struct{ client }

var (
	_ recall.Store    = V4{}
	_ recall.Searcher = V4{}
)

// NewV4 makes a memory; it does no I/O.
func NewV4(c Config) V4 { return V4{newClient(c)} }

// Put implements recall.Store.
func (m V4) Put(ctx context.Context, scope string, d recall.Document) error {
	return m.put(ctx, "/v3/documents", map[string]any{
		"customId": d.TurnID, "containerTag": scope, "content": content(d), "metadata": metadata(d),
	})
}

// Delete implements recall.Store.
func (m V4) Delete(ctx context.Context, _ string, turns []uuid.UUID) error {
	for _, id := range turns {
		path := "/v3/documents/" + id.String()
		if err := m.remove(ctx, path, nil); err != nil {
			return err
		}
		if err := m.gone(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// Forget implements recall.Store.
func (m V4) Forget(ctx context.Context, scope string) error {
	return m.remove(ctx, "/v3/documents/bulk", map[string]any{"containerTags": []string{scope}})
}

// Search implements recall.Searcher.
func (m V4) Search(ctx context.Context, scope recall.Scoped, query string, limit int) ([]recall.Found, error) {
	return m.search(ctx, "/v4/search", map[string]any{
		"q": query, "containerTag": scope.Name, "searchMode": "hybrid", "limit": limit,
	})
}
