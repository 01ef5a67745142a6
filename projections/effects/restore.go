package effects

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
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
		if err := e.handleAnew(ctx, s.Events[at]); err != nil {
			return nil, projections.Permanent(err)
		}
	}
	return []events.Position{s.Letter}, nil
}

// isGone reports whether the turn of an event may no longer be shown.
func isGone(s *conversation.State, e *projections.Judged) bool {
	if s.Erased != 0 || e.Change.Turn == nil {
		return s.Erased != 0
	}
	now := s.Turn(e.Change.Turn.ID)
	return now == nil || now.Status == conversation.Redacted || now.Status == conversation.Replaced
}

// handleAnew handles an event. If its turn was redacted, replaced or erased meanwhile, again also handles the later
// events of the session, so that nothing is left in the outside world.
func (e *Effect) handleAnew(ctx context.Context, judged projections.Judged) error {
	if err := e.Handle(ctx, []projections.Judged{judged}); err != nil || judged.SessionID == "" {
		return err
	}
	var later []projections.Judged
	judge := projections.NewJudge(e.cfg.Log, e.cfg.Rules, judged.Position.Seq)
	state := conversation.New(judged.SessionID, e.cfg.Rules)
	for r, err := range e.cfg.Log.Session(ctx, judged.SessionID, 0, math.MaxInt64) {
		if err != nil {
			return err
		}
		state.Fold(r)
		if r.Position.Seq > judged.Position.Seq {
			j, err := judge.Judge(ctx, r)
			if err != nil {
				return err
			}
			later = append(later, j)
		}
	}
	if !isGone(state, &judged) {
		return nil
	}
	return e.Handle(ctx, later)
}

// Carry calls keep with the dead letters of a partition that an earlier version stored in the bucket, and deletes the
// letters that keep has accepted.
func (e *Effect) Carry(ctx context.Context, partition int, keep projections.Keep) (err error) {
	defer projections.Wrap(&err, "carry over the dead letters")
	bucket, err := e.open(ctx)
	if err != nil {
		return err
	}
	keys, err := bucket.ListKeysFiltered(ctx, "letter."+strconv.Itoa(partition)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = keys.Stop() }()
	for key := range keys.Keys() {
		var dead projections.DeadLetter
		entry, err := bucket.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(entry.Value(), &dead)
		}
		if err == nil {
			err = keep(ctx, dead)
		}
		if err == nil {
			err = bucket.Purge(ctx, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
