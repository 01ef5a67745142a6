package read

import (
	"context"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/services"
)

// FindTurns implements services.TurnFinder. The tables answer for turns of linked sessions, once they hold all that the
// log does, and know which identities were erased by then. Sessions without an identity, and all of them where there
// are no tables, are read by themselves.
func (l *Lists) FindTurns(
	ctx context.Context, refs []services.TurnRef,
) (out map[uuid.UUID]services.TrueTurn, err error) {
	out = make(map[uuid.UUID]services.TrueTurn, len(refs))
	var linked []uuid.UUID
	bySession := map[string][]uuid.UUID{}
	_, none := l.cfg.Tables()
	for _, ref := range refs {
		if ref.IdentityID != "" && none == nil {
			linked = append(linked, ref.TurnID)
		} else {
			bySession[ref.SessionID] = append(bySession[ref.SessionID], ref.TurnID)
		}
	}
	if len(linked) > 0 {
		turns, err := exactly(ctx, l, "", nil, func(tables Tables) ([]audit.Turn, []events.Position, error) {
			return tables.TurnsByID(ctx, linked)
		})
		if err != nil {
			return nil, err
		}
		for i := range turns {
			t := &turns[i]
			out[t.ID] = services.TrueTurn{
				Turn: t.Turn, SessionID: t.SessionID, IdentityID: t.IdentityID,
				Position: events.Position{Partition: t.Partition, Seq: t.Started},
			}
		}
	}
	return out, l.findInSessions(ctx, bySession, out)
}

// findInSessions reads sessions for their turns.
func (l *Lists) findInSessions(
	ctx context.Context, bySession map[string][]uuid.UUID, out map[uuid.UUID]services.TrueTurn,
) error {
	var writing sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readsAtOnce)
	for sessionID, ids := range bySession {
		g.Go(func() error {
			reading, err := l.cfg.Sessions.Read(ctx, services.Ask{SessionID: sessionID, AllTurns: true, Own: true})
			if err != nil {
				return err
			}
			writing.Lock()
			defer writing.Unlock()
			for _, id := range ids {
				t := reading.State.Turn(id)
				if t == nil || reading.State.Erased != 0 || t.Status != session.Finalized {
					continue
				}
				out[id] = services.TrueTurn{
					Turn: *t, SessionID: sessionID, IdentityID: reading.State.Identity,
					Position: events.Position{Partition: reading.Position.Partition, Seq: t.Started},
				}
			}
			return nil
		})
	}
	return g.Wait()
}
