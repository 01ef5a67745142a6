package recall

import (
	"context"

	"github.com/turnledger/turnledger/projections/audit"
)

// Recaller searches the turns of an identity, and finds nothing that was redacted before the call; the Reader of
// package identities implements it.
type Recaller interface {
	Recall(ctx context.Context, identityID, query string, limit int) ([]audit.Recalled, error)
}

// Tables is a memory over the audit tables, which hold only turns of linked sessions.
type Tables struct{ Turns Recaller }

// Search implements Searcher.
func (m Tables) Search(ctx context.Context, scope Scoped, query string, limit int) (out []Found, _ error) {
	if scope.IdentityID == "" {
		return nil, nil
	}
	turns, err := m.Turns.Recall(ctx, scope.IdentityID, query, limit)
	for _, t := range turns {
		out = append(out, Found{TurnID: t.TurnID, Text: dialogue(t.Question, t.Answer)})
	}
	return out, err
}

// dialogue is the text of a turn in a snippet.
func dialogue(question, answer string) string { return "User: " + question + "\nAssistant: " + answer }
