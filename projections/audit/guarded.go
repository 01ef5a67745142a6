package audit

import (
	"context"
	"errors"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// Guarded are the tables for readers, once May has nothing against it; until then every use is ErrUnavailable. The log
// keeps all, so they catch up. A nil *Guarded stands for a process without PostgreSQL.
type Guarded struct {
	Tables *Audit
	May    func() error
}

var errNone = errors.Join(ErrUnavailable, errors.New("no PostgreSQL is configured: set TURNLEDGER_POSTGRES_URL"))

// Get returns the tables.
func (g *Guarded) Get() (*Audit, error) {
	if g == nil {
		return nil, errNone
	}
	if err := g.May(); err != nil {
		return nil, errors.Join(ErrUnavailable, err)
	}
	return g.Tables, nil
}

// SessionTurns is that of the tables.
func (g *Guarded) SessionTurns(
	ctx context.Context, sessionID string, limit int,
) (*conversation.State, events.Position, error) {
	tables, err := g.Get()
	if err != nil {
		return nil, events.Position{}, err
	}
	return tables.SessionTurns(ctx, sessionID, limit)
}

// ForgetEvents is that of the tables. Where there are none, it only purges.
func (g *Guarded) ForgetEvents(
	ctx context.Context, partition int, seqs []uint64, purge func(context.Context) error,
) error {
	if g == nil {
		return purge(ctx)
	}
	tables, err := g.Get()
	if err != nil {
		return err
	}
	return tables.ForgetEvents(ctx, partition, seqs, purge)
}

// ForgetEvent is that of the tables, where there are any.
func (g *Guarded) ForgetEvent(ctx context.Context, at events.Position) error {
	if g == nil {
		return nil
	}
	tables, err := g.Get()
	if err != nil {
		return err
	}
	return tables.ForgetEvent(ctx, at)
}
