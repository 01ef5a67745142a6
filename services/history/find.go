package history

import (
	"context"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

var _ services.TurnLookup = (*Service)(nil)

// FindTurn implements services.TurnLookup.
func (s *Service) FindTurn(ctx context.Context, sessionID string, turn uuid.UUID) (services.FoundTurn, error) {
	if err := conversation.ValidIDs("session_id", sessionID); err != nil {
		return services.FoundTurn{}, err
	}
	d, err := s.writing(sessionID).standing(ctx, 0, func(st *conversation.State) conversation.Decision {
		return conversation.Decision{Turn: st.Turn(turn)}
	})
	switch {
	case err != nil:
		return services.FoundTurn{}, err
	case d.Turn == nil:
		return services.FoundTurn{}, conversation.ErrTurnNotFound
	}
	return services.FoundTurn{Turn: d.Turn, Head: d.head}, nil
}

// looked calls look with the session as the log has it now, or, if known is above 0, as it was at that sequence or
// later.
func (w *writing) looked(ctx context.Context, known uint64, look decider) (decided, error) {
	if err := w.upTo(ctx, known); err != nil {
		return decided{}, err
	}
	for {
		x, err := w.current(ctx)
		if err != nil {
			return decided{}, err
		}
		d := x.decide(look)
		if !w.lacksHalf(d) {
			return d, nil
		}
		if err := w.folded(ctx, d.applied+1); err != nil {
			return decided{}, err
		}
	}
}

// upTo folds what the log holds up to a sequence, or, if that is 0, all that it holds now.
func (w *writing) upTo(ctx context.Context, known uint64) error {
	if known == 0 {
		_, err := w.refresh(ctx)
		return err
	}
	w.known.fresh, w.known.head = true, known
	return w.settle(ctx, known)
}

// standing is looked for readers: it fails with conversation.ErrSessionErased if the session was erased, or the
// identity that it, or the root of the branch that it is, belongs to.
func (w *writing) standing(ctx context.Context, known uint64, look decider) (decided, error) {
	d, err := w.looked(ctx, known, look)
	if err != nil {
		return d, err
	}
	if root := d.head.Fork().Root; root != "" && d.head.Identity == "" {
		nothing := func(*conversation.State) (d conversation.Decision) { return d }
		of, err := w.Service.writing(root).looked(ctx, 0, nothing)
		if err != nil {
			return d, err
		}
		d.head.Identity = of.head.Identity
	}
	gone, err := w.erasedIdentity(ctx, d)
	if err == nil && (gone != nil || d.head.Erased != 0) {
		err = conversation.ErrSessionErased
	}
	return d, err
}
