package eraser

import (
	"context"
	"errors"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
)

// enqueueIdentity lets an identity's erasure run beside everything else: it closes all
// sessions at once, and then waits while each is erased.
func (e *Eraser) enqueueIdentity(p *part, f *events.IdentityErased, at events.Position) {
	e.leave(func(ctx context.Context) error {
		for attempt := 1; ; attempt++ {
			err := e.eraseIdentity(ctx, f, at)
			if err == nil {
				p.end(at.Seq)
				return nil
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			e.cfg.Logger.Warn("the erasure of an identity is tried again", "position", at, "attempt", attempt, "err", err)
			if !pause(ctx, min(time.Duration(attempt)*500*time.Millisecond, longestPause)) {
				return ctx.Err()
			}
		}
	})
}

// eraseIdentity erases all sessions that are linked to an identity. It may be run again
// after any part.
func (e *Eraser) eraseIdentity(ctx context.Context, f *events.IdentityErased, at events.Position) error {
	written, err := receiptsAt(ctx, e.log, at, "", f.IdentityID, f.ReceiptID)
	if err != nil || written[PlaceLog] != nil && len(written) > len(e.cfg.Places) {
		return err
	}
	sessions, err := e.sessionsOf(ctx, f.IdentityID)
	if err != nil {
		return err
	}
	key := progressKey(f.ReceiptID, "")
	told := Progress{Began: time.Now().UTC()}
	if _, err := e.notes.Read(ctx, key, &told); err != nil {
		return err
	}
	told.Sessions, told.SessionsDone, told.Erased = len(sessions), 0, 0
	if err := e.notes.Put(ctx, key, told); err != nil {
		return err
	}
	// All are closed before the first is erased, which takes longer.
	last := map[int]events.Position{}
	for i, id := range sessions {
		if sessions[i], err = id, e.close(ctx, id, f); err != nil {
			return err
		}
	}
	for _, id := range sessions {
		marker, erased, err := e.awaitErased(ctx, id)
		if err != nil {
			return err
		}
		last[marker.Partition] = events.Position{Partition: marker.Partition, Seq: max(last[marker.Partition].Seq, marker.Seq)}
		told.SessionsDone++
		told.Erased += erased
		if err := e.notes.Put(ctx, key, told); err != nil {
			return err
		}
	}
	receipt := events.ErasureReceipt{IdentityID: f.IdentityID, ReceiptID: f.ReceiptID, Place: PlaceLog, Erased: told.Erased, Sessions: len(sessions)}
	if err := e.receipt(ctx, at, &receipt); err != nil {
		return err
	}
	e.cfg.Logger.Info("an identity is erased from the log", "position", at, "sessions", len(sessions), "events", told.Erased)
	markers := []events.Position{at}
	for _, p := range last {
		markers = append(markers, p)
	}
	err = e.reach(ctx, markers, func(place string) error {
		r := receipt
		r.Place, r.Erased = place, len(sessions)
		return e.receipt(ctx, at, &r)
	})
	if err != nil {
		return err
	}
	return e.notes.Drop(ctx, key)
}

// sessionsOf gives the sessions that are linked to an identity, in log order. It reads
// the log once, and decodes links alone: the log is the truth, and no view needs to be
// there.
func (e *Eraser) sessionsOf(ctx context.Context, identity string) ([]string, error) {
	var out []string
	for k := range e.log.Partitions() {
		err := each(ctx, e.log, k, 0, func(m jetlog.Message) error {
			if m.Type() != events.TypeSessionLinked {
				return nil
			}
			f, ok := m.Recorded().Fact.(*events.SessionLinked)
			if !ok || f.IdentityID != identity {
				return nil
			}
			state, err := e.state(ctx, f.SessionID)
			// As in the fold the first link stands; of many in the log this is that one.
			if err == nil && state.Identity == identity && state.LinkedAt == m.Position.Seq {
				out = append(out, f.SessionID)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// close ends a session of an identity, unless it was erased before.
func (e *Eraser) close(ctx context.Context, session string, f *events.IdentityErased) error {
	state, err := e.state(ctx, session)
	if err != nil || state.Erased != 0 {
		return err
	}
	ack, err := e.log.Append(ctx, jetlog.Append{Facts: []events.Fact{&events.SessionErased{
		SessionID: session, IdentityID: f.IdentityID, ReceiptID: f.ReceiptID, Reason: f.Reason, ErasedBy: f.ErasedBy,
	}}})
	if err != nil {
		return err
	}
	return e.log.Durable(ctx, ack.Position)
}

// linked closes a session that is linked to an identity which was erased.
func (e *Eraser) linked(ctx context.Context, session, identity string) error {
	for r, err := range e.log.Identity(ctx, identity) {
		if err != nil {
			return err
		}
		if f, ok := r.Fact.(*events.IdentityErased); ok {
			return e.close(ctx, session, f)
		}
	}
	return nil
}

// awaitErased waits until a closed session is erased from the log, and gives where it
// was closed and how many events went.
func (e *Eraser) awaitErased(ctx context.Context, session string) (events.Position, int, error) {
	state, err := e.state(ctx, session)
	if err != nil {
		return events.Position{}, 0, err
	}
	at := events.Position{Partition: e.log.Partition(session), Seq: state.Erased}
	if at.Seq == 0 {
		return at, 0, errors.New("a session that was closed is not")
	}
	for {
		written, err := receiptsAt(ctx, e.log, at, session, "", "")
		if err != nil {
			return at, 0, err
		}
		if r := written[PlaceLog]; r != nil {
			return at, r.Erased, nil
		}
		if !pause(ctx, lookEvery) {
			return at, 0, ctx.Err()
		}
	}
}

// state folds a session as it is now.
func (e *Eraser) state(ctx context.Context, session string) (*conversation.State, error) {
	s := conversation.New(session, e.cfg.Rules)
	for r, err := range e.log.Session(ctx, session, 0, maxSeq) {
		if err != nil {
			return nil, err
		}
		s.Fold(r)
	}
	return s, nil
}
