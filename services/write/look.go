package write

import (
	"context"
	"fmt"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
)

// Look calls use with a session, without texts, as the log has it now, and returns the position that it is as new as.
// If the state has a link without the turn that came with it, use is called again. It must neither change nor keep the
// session.
func (s *Service) Look(
	ctx context.Context, sessionID string, use func(*session.State),
) (events.Position, error) {
	w := s.writing(sessionID)
	d, err := w.looked(ctx, func(st *session.State) (d decide.Decision) {
		use(st)
		return d
	})
	return events.Position{Partition: w.partition, Seq: max(d.applied, w.known.head)}, err
}

// now returns a copy of a session, without texts, as the log has it now.
func (s *Service) now(ctx context.Context, sessionID string) (st *session.State, err error) {
	_, err = s.Look(ctx, sessionID, func(x *session.State) { st = x.Clone() })
	return st, err
}

// lent returns the identity that a root lends its branches.
func (s *Service) lent(ctx context.Context, root string) (identity string, err error) {
	_, err = s.Look(ctx, root, func(x *session.State) { identity = x.Lends() })
	return identity, err
}

// factAt returns the fact at a position, with its event. If it is not there, the log is unavailable, with a reason.
func factAt[F events.Fact](
	ctx context.Context, s *Service, at events.Position, why string,
) (f F, e events.Recorded, err error) {
	e, _, err = s.log.At(ctx, at)
	f, is := e.Fact.(F)
	if err == nil && !is {
		err = fmt.Errorf("%w: %s", jetlog.ErrUnavailable, why)
	}
	return f, e, err
}

// OnWithdrawal has f called after an event withdrew texts of a session, once the session is folded here. It is called
// before Run.
func (s *Service) OnWithdrawal(f func(sessionID string)) { s.withdrawn = append(s.withdrawn, f) }

// looked calls look with the session as the log has it now.
func (w *writing) looked(ctx context.Context, look decider) (decided, error) {
	if _, err := w.refresh(ctx); err != nil {
		return decided{}, err
	}
	for {
		x, err := w.current(ctx)
		if err != nil {
			return decided{}, err
		}
		d := x.decide(look)
		if !w.lacksTurn(d) {
			return d, nil
		}
		if err := w.folded(ctx, d.applied+1); err != nil {
			return decided{}, err
		}
	}
}
