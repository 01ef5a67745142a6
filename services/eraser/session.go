package eraser

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/services"
)

// PlaceLog is the log's own name in receipts.
const PlaceLog = "log"

// closed is an erased session with what is left of it to erase.
type closed struct {
	*events.SessionErased
	at     events.Position
	turns  map[uuid.UUID]bool
	events []uint64
}

// eraseSession takes out all of a session but its first link and the erasure.
func (e *Eraser) eraseSession(ctx context.Context, j *job) (rest, error) {
	c, err := e.closed(ctx, j)
	if err != nil || c == nil {
		return rest{}, err
	}
	if err := e.deleteDocuments(ctx, c.at, c.SessionID, slices.Collect(maps.Keys(c.turns))); err != nil {
		return rest{}, err
	}
	told, err := e.eraseAll(ctx, c)
	if err != nil {
		return rest{}, err
	}
	if err := e.eraseMirrored(ctx, c.SessionID, c.at); err != nil {
		return rest{}, err
	}
	receipt := events.ErasureReceipt{
		SessionID: c.SessionID, ReceiptID: c.ReceiptID, Place: PlaceLog, Erased: told.Erased,
	}
	if err := e.receipt(ctx, c.at, receipt); err != nil {
		return rest{}, err
	}
	e.cfg.Logger.Info(
		"a session is erased from the log", "session_id", c.SessionID, "position", c.at, "events", told.Erased,
	)
	key := progressKey(c.ReceiptID, c.SessionID)
	if c.IdentityID != "" {
		return rest{}, e.notes.Drop(ctx, key) // the identity's receipt says what the views have reached
	}
	return e.reached([]events.Position{c.at}, receipt, told.Turns, key), nil
}

// reached is what is left of an erasure when the log is done: each view that has reached some positions writes the
// receipt of so many things that it has erased, and then the note of the progress goes.
func (e *Eraser) reached(at []events.Position, receipt events.ErasureReceipt, erased int, progress string) rest {
	write := func(ctx context.Context, place string) error {
		r := receipt
		r.Place, r.Erased = place, erased
		return e.receipt(ctx, at[0], r)
	}
	return rest{
		open:  []awaited{{at, write}},
		after: func(ctx context.Context) error { return e.notes.Drop(ctx, progress) },
	}
}

// closed looks at what is left of a session; nil if its erasure counts no more.
func (e *Eraser) closed(ctx context.Context, j *job) (*closed, error) {
	c := &closed{at: j.at, turns: map[uuid.UUID]bool{}}
	state := conversation.New(j.session, e.cfg.Rules)
	for r, err := range e.log.Session(ctx, j.session, 0, j.at.Seq) {
		if err != nil {
			return nil, err
		}
		if f, ok := r.Fact.(*events.SessionErased); ok && r.Position == j.at {
			c.SessionErased = f
		} else {
			c.events = append(c.events, r.Position.Seq)
		}
		for _, t := range state.Fold(r).Turns {
			if state.Erased != 0 {
				c.turns[t.ID] = true
			}
		}
	}
	if c.SessionErased == nil {
		return nil, nil //nolint:nilnil // there is nothing to do
	}
	c.events = slices.DeleteFunc(c.events, func(seq uint64) bool { return seq == state.LinkedAt })
	return c, nil
}

// progressEvery is after how many events the progress is noted, and what was done is settled on the disk.
const progressEvery = 64

// eraseAll erases from the newest back, and returns what is gone by this erasure, with what went before a crash as far
// as that was noted.
func (e *Eraser) eraseAll(ctx context.Context, c *closed) (told services.ErasureProgress, err error) {
	key := progressKey(c.ReceiptID, c.SessionID)
	told = services.ErasureProgress{Began: time.Now().UTC()}
	if _, err := e.notes.Read(ctx, key, &told); err != nil {
		return told, err
	}
	// tell waits until the erasures so far are on disk, and notes how far the erasure is.
	tell := func(ctx context.Context) error {
		if err := e.log.Settle(ctx, c.at.Partition); err != nil {
			return err
		}
		return e.notes.Put(ctx, key, told)
	}
	told.Events, told.Turns = told.Erased+len(c.events), max(told.Turns, len(c.turns))
	for i, seq := range slices.Backward(c.events) {
		if (len(c.events)-1-i)%progressEvery == 0 {
			if err := tell(ctx); err != nil {
				return told, err
			}
		}
		if err := e.speed.Wait(ctx); err != nil {
			last, cancel := lastly(ctx)
			defer cancel()
			return told, errors.Join(err, tell(last))
		}
		// A call that has begun is waited for, so that a stop leaves no doubt about the count.
		found, err := e.log.Erase(context.WithoutCancel(ctx), events.Position{Partition: c.at.Partition, Seq: seq})
		if err != nil {
			return told, err
		}
		if found {
			told.Erased++
		}
	}
	return told, tell(ctx)
}

// receipt writes a receipt of an erasure that stands at a position, once.
func (e *Eraser) receipt(ctx context.Context, at events.Position, f events.ErasureReceipt) error {
	written, err := receiptsAt(ctx, e.log, at, f.SessionID, f.IdentityID, f.ReceiptID)
	if err != nil || written[f.Place] != nil {
		return err
	}
	if _, err := e.append(ctx, &f); err != nil {
		return fmt.Errorf("write a receipt: %w", err)
	}
	return nil
}

// append writes a fact to the log, and returns when it is on disk.
func (e *Eraser) append(ctx context.Context, f events.Fact) (events.Position, error) {
	ack, err := e.log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}})
	if err == nil {
		err = e.log.Durable(ctx, ack.Position)
	}
	return ack.Position, err
}

// reachPlace waits until a view has applied some positions, however long that takes, and has that written down.
func (e *Eraser) reachPlace(ctx context.Context, place Place, at []events.Position, write func() error) error {
	for warned := false; ; {
		reached, err := reachedAll(ctx, place, at)
		if err == nil && reached {
			if err = write(); err == nil {
				return nil
			}
		}
		if err != nil && !warned && ctx.Err() == nil {
			warned = true
			e.cfg.Logger.Warn("the receipt of an erasure waits for a view", "projection", place.Name(), "err", err)
		}
		if !pause.For(ctx, lookEvery) {
			return ctx.Err()
		}
	}
}

func reachedAll(ctx context.Context, place Place, at []events.Position) (bool, error) {
	for _, p := range at {
		if reached, err := place.Reached(ctx, p); err != nil || !reached {
			return false, err
		}
	}
	return true, nil
}

// lookEvery is the pause between two looks at what is waited for.
const lookEvery = 50 * time.Millisecond
