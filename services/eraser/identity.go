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
	key := progressKey(f.ReceiptID, "")
	told := Progress{Began: time.Now().UTC()}
	if revision, err := e.notes.Read(ctx, key, &told); err != nil {
		return err
	} else if revision == 0 {
		if err := e.notes.Put(ctx, key, told); err != nil {
			return err
		}
	}
	// All are closed at once; to erase them takes longer.
	sessions, err := e.closeAll(ctx, f)
	if err != nil {
		return err
	}
	told.Sessions, told.SessionsDone, told.Erased = len(sessions), 0, 0
	if err := e.notes.Put(ctx, key, told); err != nil {
		return err
	}
	last := map[int]events.Position{}
	for _, s := range sessions {
		erased, err := e.awaitErased(ctx, s)
		if err != nil {
			return err
		}
		last[s.at.Partition] = events.Position{Partition: s.at.Partition, Seq: max(last[s.at.Partition].Seq, s.at.Seq)}
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

// member is a session of an erased identity, and where it was closed.
type member struct {
	id string
	at events.Position
}

// closeAll closes the sessions that are linked to an identity, and gives them in log
// order. It reads the headers of the log once, and of links the bodies: the log is the truth,
// and no view needs to be there.
func (e *Eraser) closeAll(ctx context.Context, gone *events.IdentityErased) ([]member, error) {
	var out []member
	for k := range e.log.Partitions() {
		err := scan{log: e.log, partition: k, gentle: true}.each(ctx, func(m jetlog.Message) error {
			if m.Type() != events.TypeSessionLinked {
				return nil
			}
			r, found, err := e.log.At(ctx, m.Position)
			if err != nil || !found {
				return err
			}
			f, ok := r.Fact.(*events.SessionLinked)
			if !ok || f.IdentityID != gone.IdentityID {
				return nil
			}
			state, err := e.state(ctx, f.SessionID)
			// As in the fold the first link stands; of many in the log this is that one.
			if err != nil || state.Identity != gone.IdentityID || state.LinkedAt != m.Position.Seq {
				return err
			}
			err = e.close(ctx, state, gone)
			out = append(out, member{f.SessionID, events.Position{Partition: k, Seq: state.Erased}})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// close ends a session of an identity, unless it was erased before. The state then knows
// where.
func (e *Eraser) close(ctx context.Context, state *conversation.State, f *events.IdentityErased) error {
	if state.Erased != 0 {
		return nil
	}
	ack, err := e.log.Append(ctx, jetlog.Append{Facts: []events.Fact{f.Of(state.SessionID)}})
	if err == nil {
		err = e.log.Durable(ctx, ack.Position)
	}
	if err != nil {
		return err
	}
	// Somebody else may have been first.
	for r, err := range e.log.Session(ctx, state.SessionID, state.Applied, ack.Position.Seq) {
		if err != nil {
			return err
		}
		state.Fold(r)
	}
	if state.Erased == 0 {
		return errors.New("a session that was closed is not")
	}
	return nil
}

// linked closes a session that is linked to an identity which was erased.
func (e *Eraser) linked(ctx context.Context, session, identity string) error {
	f, err := e.log.IdentityErasure(ctx, identity)
	if err != nil || f == nil {
		return err
	}
	state, err := e.state(ctx, session)
	if err != nil || state.Identity != identity {
		return err
	}
	return e.close(ctx, state, f)
}

// awaitErased waits until a closed session is erased from the log, and tells how many
// events went.
func (e *Eraser) awaitErased(ctx context.Context, s member) (int, error) {
	for {
		written, err := receiptsAt(ctx, e.log, s.at, s.id, "", "")
		if err != nil {
			return 0, err
		}
		if r := written[PlaceLog]; r != nil {
			return r.Erased, nil
		}
		if !pause(ctx, lookEvery) {
			return 0, ctx.Err()
		}
	}
}

// state folds a session as it is now.
func (e *Eraser) state(ctx context.Context, session string) (*conversation.State, error) {
	return e.fold(ctx, session, maxSeq, nil)
}
