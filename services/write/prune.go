package write

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// PruneTurn records that messages of a turn must never be shown again. A command without a prune id is one of its own.
// The decision rests on all that the log holds, so of two calls at once that take out the same message, one fails with
// decide.ErrMessageNotFound.
func (s *Service) PruneTurn(ctx context.Context, c decide.Prune) (services.Turn, error) {
	if c.PruneID == "" {
		c.PruneID = uuid.NewString()
	}
	c, err := decide.NormalPrune(c)
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
func (s *Service) pruneOnce(ctx context.Context, c decide.Prune) (services.Turn, error) {
	w := s.writing(c.SessionID)
	c.Partition = w.partition
	old, brought, err := w.prunable(ctx, c)
	if err != nil {
		return services.Turn{}, s.inherited(ctx, c.SessionID, c.TurnID, err)
	}
	messages := session.Messages(old, brought)
	c.Brought = session.SettingsOf(brought)
	return w.turn(ctx, w.deciding, func(st *session.State) decide.Decision {
		if d, answered := c.Refused(st); answered {
			return d
		}
		if old == nil || st.Turn(c.TurnID).Last() != old.Last() {
			return decide.Decision{Err: errExtended}
		}
		return w.keepingCalls(st, c.TurnID, c.Call, c.On(st, old, messages))
	})
}

// prunable returns the turn to prune with its texts and the events that brought them, or nil if the log has the answer
// already.
func (w *writing) prunable(
	ctx context.Context, c decide.Prune,
) (*session.Turn, []events.Recorded, error) {
	d, answered, err := w.undecided(ctx, c.TurnID, func(st *session.State) (decide.Decision, bool) {
		return c.Refused(st)
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
