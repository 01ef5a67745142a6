package history

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// PruneTurn records that messages of a turn must never be shown again. A command without a prune id is one of its own.
// The decision rests on all that the log holds, so of two calls at once that take out the same message, one fails with
// conversation.ErrMessageNotFound.
func (s *Service) PruneTurn(ctx context.Context, c conversation.Prune) (services.Turn, error) {
	if c.PruneID == "" {
		c.PruneID = uuid.NewString()
	}
	c, err := conversation.NormalPrune(c)
	if err != nil {
		return services.Turn{}, err
	}
	for {
		t, err := s.pruneOnce(ctx, c)
		if !errors.Is(err, errExtended) {
			return t, err
		}
	}
}

// pruneOnce fails with errExtended if the turn's texts changed after they were read.
func (s *Service) pruneOnce(ctx context.Context, c conversation.Prune) (services.Turn, error) {
	w := s.writing(c.SessionID)
	c.Partition = w.partition
	old, brought, err := w.prunable(ctx, c)
	if err != nil {
		return services.Turn{}, s.inherited(ctx, c.SessionID, c.TurnID, err)
	}
	messages := conversation.Messages(old, brought)
	c.Brought = conversation.SettingsOf(brought)
	return w.turn(ctx, w.deciding, func(st *conversation.State) conversation.Decision {
		if d, answered := st.PruneRefused(c); answered {
			return d
		}
		if old == nil || st.Turn(c.TurnID).Last() != old.Last() {
			return conversation.Decision{Err: errExtended}
		}
		return w.keepingCalls(st, c.TurnID, c.Call, st.DecidePrune(c, old, messages))
	})
}

// prunable returns the turn to prune with its texts and the events that brought them, or nil if the log has the answer
// already.
func (w *writing) prunable(
	ctx context.Context, c conversation.Prune,
) (*conversation.Turn, []events.Recorded, error) {
	d, answered, err := w.undecided(ctx, c.TurnID, func(st *conversation.State) (conversation.Decision, bool) {
		return st.PruneRefused(c)
	})
	if err != nil {
		return nil, nil, err
	}
	if answered {
		_, err := w.answer(ctx, d)
		return nil, nil, err
	}
	sources := d.Turn.Sources()
	brought, err := w.fill(ctx, d.Turn, sources)
	if err == nil && len(brought) < len(sources) { // one was erased since the decision
		err = errExtended
	}
	return d.Turn, brought, err
}
