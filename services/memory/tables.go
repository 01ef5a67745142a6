package memory

import (
	"context"

	"github.com/turnledger/turnledger/projections/audit"
)

// Recaller searches the turns of an identity; the audit tables do.
type Recaller interface {
	Recall(ctx context.Context, identityID, query string, limit int) ([]audit.Recalled, error)
}

// Tables is a memory over the audit tables, which hold the turns of identities alone.
type Tables struct {
	// Open returns the tables, since they may be out.
	Open func() (Recaller, error)
	// Erased reports whether an identity was erased.
	Erased func(ctx context.Context, identityID string) (bool, error)
	// CaughtUp waits until the tables hold all that the log does.
	CaughtUp func(ctx context.Context) error
}

// Search implements Searcher.
func (m Tables) Search(ctx context.Context, scope Scoped, query string, limit int) (out []Found, _ error) {
	if scope.IdentityID == "" {
		return nil, nil
	}
	if erased, err := m.Erased(ctx, scope.IdentityID); err != nil || erased {
		return nil, err
	}
	tables, err := m.Open()
	if err != nil {
		return nil, err
	}
	turns, err := tables.Recall(ctx, scope.IdentityID, query, limit)
	for _, t := range turns {
		out = append(out, Found{TurnID: t.TurnID, Text: "User: " + t.Question + "\nAssistant: " + t.Answer})
	}
	return out, err
}

// Confirmed implements Confirmed: tables that have caught up hold nothing that was redacted before.
func (m Tables) Confirmed(ctx context.Context, scope Scoped) (bool, error) {
	if scope.IdentityID == "" {
		return true, nil
	}
	return true, m.CaughtUp(ctx)
}
