package recall

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
)

// Recaller searches the turns of an identity; the audit tables implement it.
type Recaller interface {
	Recall(ctx context.Context, identityID, query string, limit int) ([]audit.Recalled, error)
}

// Tables is a memory over the audit tables, which hold only turns of linked sessions.
type Tables struct {
	// Open returns the tables; it fails while they are unavailable.
	Open func() (Recaller, error)
	// CaughtUp waits until the tables hold all that the log does.
	CaughtUp func(ctx context.Context) error
}

// NewTables makes a memory of the tables that readers may use.
func NewTables(readers *audit.Guarded, caughtUp func(context.Context) error) Tables {
	return Tables{Open: func() (Recaller, error) { return readers.Get() }, CaughtUp: caughtUp}
}

// Snippets returns the snippets of what the tables hold.
func (m Tables) Snippets(erasures projections.ErasureCheck, budget time.Duration) *Snippets {
	return NewSnippets(erasures, m, m.Confirmed, budget)
}

// Search implements Searcher.
func (m Tables) Search(ctx context.Context, scope Scoped, query string, limit int) (out []Found, _ error) {
	if scope.IdentityID == "" {
		return nil, nil
	}
	tables, err := m.Open()
	if err != nil {
		return nil, err
	}
	turns, err := tables.Recall(ctx, scope.IdentityID, query, limit)
	for _, t := range turns {
		out = append(out, Found{TurnID: t.TurnID, Text: dialogue(t.Question, t.Answer)})
	}
	return out, err
}

// dialogue is the text of a turn in a snippet.
func dialogue(question, answer string) string { return "User: " + question + "\nAssistant: " + answer }

// Confirmed implements Confirmed: once the tables have caught up, they hold nothing that was redacted before the call.
func (m Tables) Confirmed(ctx context.Context, scope Scoped) (bool, error) {
	if scope.IdentityID == "" {
		return true, nil
	}
	return true, m.CaughtUp(ctx)
}
