package effects

import (
	"context"
	"math"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

var _ desk.Source = (*Effect)(nil)

// Served implements desk.Source.
func (e *Effect) Served(ctx context.Context) (out projections.Served, err error) {
	for k := range e.cfg.Log.Partitions() {
		cp, err := e.move(ctx, k, nil)
		if err != nil {
			return out, err
		}
		out.At = append(out.At, cp)
	}
	return out, nil
}

// Restore implements desk.Source. It handles the event again, with the event's original verdict. It does nothing if the
// event was erased, or its turn was redacted or replaced since.
func (e *Effect) Restore(ctx context.Context, s projections.Session) ([]events.Position, error) {
	at := slices.IndexFunc(s.Events, func(j projections.Judged) bool { return j.Position == s.Letter })
	if at >= 0 && !isGone(s.State, &s.Events[at]) {
		if err := e.handleAnew(ctx, s, s.Events[at]); err != nil {
			return nil, projections.Permanent(err)
		}
	}
	return []events.Position{s.Letter}, nil
}

// isGone reports whether the turn of an event may no longer be shown.
func isGone(s *session.State, e *projections.Judged) bool {
	if s.Erased != 0 || e.Change.Turn == nil {
		return s.Erased != 0
	}
	now := s.Turn(e.Change.Turn.ID)
	return now == nil || now.Status == session.Redacted || now.Status == session.Replaced
}

// handleAnew handles an event, and then again what came behind it: the event alone would put an old text in the place
// of a newer one, or bring back what was taken away. It ends when the log has no more, so that a runner beside it,
// which handles what comes next, has the last word.
func (e *Effect) handleAnew(ctx context.Context, s projections.Session, judged projections.Judged) error {
	if err := e.Handle(ctx, []projections.Judged{judged}); err != nil || judged.SessionID == "" {
		return err
	}
	for after := judged.Position.Seq; ; {
		later, last, err := e.later(ctx, s, judged, after)
		if err != nil || last == after {
			return err
		}
		if err := e.Handle(ctx, later); err != nil {
			return err
		}
		after = last
	}
}

// later returns what may touch the work of an event: the events of its session after a sequence that are about its turn
// or the whole session, or all of them if one of those moves all turns. Those that wait as letters are left out. last
// is the last event that was read.
func (e *Effect) later(
	ctx context.Context, s projections.Session, judged projections.Judged, after uint64,
) (later []projections.Judged, last uint64, err error) {
	judge := projections.NewJudge(e.cfg.Log, e.cfg.Rules, after)
	all := judged.Change.Turn == nil
	last = after
	for r, err := range e.cfg.Log.Session(ctx, judged.SessionID, after, math.MaxInt64) {
		if err != nil {
			return nil, after, err
		}
		j, err := judge.Judge(ctx, r)
		if err != nil {
			return nil, after, err
		}
		if last = r.Position.Seq; !slices.Contains(s.Letters, r.Position) {
			later = append(later, j)
			all = all || j.Change.Kind == session.Linked
		}
	}
	if !all {
		later = slices.DeleteFunc(later, func(j projections.Judged) bool { return !touches(&j, judged.Change.Turn.ID) })
	}
	return later, last, nil
}

// touches reports whether an event is about a turn or about its whole session.
func touches(j *projections.Judged, turn uuid.UUID) bool {
	if t := j.Change.Turn; t != nil && t.ID == turn {
		return true
	}
	return j.Change.Kind == session.Erased ||
		slices.ContainsFunc(j.Change.Turns, func(t *session.Turn) bool { return t.ID == turn })
}
