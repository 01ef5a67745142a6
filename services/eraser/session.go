package eraser

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
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
		return nil, err
	}
	if err := e.deleteDocuments(ctx, c.at, c.SessionID, c.turns); err != nil {
		return nil, err
	}
	told, err := e.eraseAll(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := e.eraseMirrored(ctx, c.SessionID, c.at); err != nil {
		return nil, err
	}
	receipt := events.ErasureReceipt{
		SessionID: c.SessionID, ReceiptID: c.ReceiptID, Place: PlaceLog, Erased: told.Erased,
	}
	if err := e.receipt(ctx, c.at, &receipt); err != nil {
		return nil, err
	}
	e.cfg.Logger.Info(
		"a session is erased from the log", "session_id", c.SessionID, "position", c.at, "events", told.Erased,
	)
	forget := func(ctx context.Context) error { return e.notes.Drop(ctx, progressKey(c.ReceiptID, c.SessionID)) }
	// Of a session that goes with its identity, the identity's receipt tells of the views.
	if c.IdentityID != "" {
		return nil, forget(ctx)
	}
	return func(ctx context.Context, end func(context.Context)) {
		e.await(ctx, []events.Position{c.at}, func(ctx context.Context, place string) error {
			r := receipt
			r.Place, r.Erased = place, told.Turns
			return e.receipt(ctx, c.at, &r)
		}, func(ctx context.Context) {
			_ = forget(ctx) // what is left says no more than the receipts
			end(ctx)
		})
	}, nil
}

// closed looks at what is left of a session; nil where its erasure is none any more.
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

// progressEvery is after how many events the progress is told, and what was done is
// settled on the disk.
const progressEvery = 64

// eraseAll erases from the newest back, and tells what is gone by this erasure, what
// went before a crash included as far as it was told.
func (e *Eraser) eraseAll(ctx context.Context, c *closed) (told services.ErasureProgress, err error) {
	key := progressKey(c.ReceiptID, c.SessionID)
	told = services.ErasureProgress{Began: time.Now().UTC()}
	if _, err := e.notes.Read(ctx, key, &told); err != nil {
		return told, err
	}
	told.Events, told.Turns = told.Erased+len(c.events), max(told.Turns, len(c.turns))
	for i, seq := range slices.Backward(c.events) {
		if (len(c.events)-1-i)%progressEvery == 0 {
			if err := e.tell(ctx, c, key, told); err != nil {
				return told, err
			}
		}
		if err := e.speed.Wait(ctx); err != nil {
			return told, errors.Join(err, e.tellLast(ctx, c, key, told))
		}
		// Once begun it is heard out, so that a stop leaves no doubt about the count.
		found, err := e.log.Erase(context.WithoutCancel(ctx), events.Position{Partition: c.at.Partition, Seq: seq})
		if err != nil {
			return told, err
		}
		if found {
			told.Erased++
		}
	}
	return told, e.tell(ctx, c, key, told)
}

// tellLast says how far the erasure is when it is stopped.
func (e *Eraser) tellLast(ctx context.Context, c *closed, key string, told services.ErasureProgress) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return e.tell(last, c, key, told)
}

// tell settles on the disk what was erased, and says how far the erasure is.
func (e *Eraser) tell(ctx context.Context, c *closed, key string, told services.ErasureProgress) error {
	if err := e.log.Settle(ctx, c.at.Partition); err != nil {
		return err
	}
	return e.notes.Put(ctx, key, told)
}

// receipt writes a receipt of an erasure that stands at a position, once.
func (e *Eraser) receipt(ctx context.Context, at events.Position, f *events.ErasureReceipt) error {
	written, err := receiptsAt(ctx, e.log, at, f.SessionID, f.IdentityID, f.ReceiptID)
	if err != nil || written[f.Place] != nil {
		return err
	}
	ack, err := e.log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}})
	if err == nil {
		err = e.log.Durable(ctx, ack.Position)
	}
	if err != nil {
		return fmt.Errorf("write a receipt: %w", err)
	}
	return nil
}

// reach waits until each place has applied some positions, however long that takes, and
// has it written down.
func (e *Eraser) reach(ctx context.Context, at []events.Position, write func(place string) error) error {
	done := make(chan struct{})
	e.await(
		ctx, at, func(_ context.Context, place string) error { return write(place) },
		func(context.Context) { close(done) },
	)
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Eraser) reachPlace(ctx context.Context, place Place, at []events.Position, write func() error) error {
	for said := false; ; {
		reached, err := reachedAll(ctx, place, at)
		if err == nil && reached {
			if err = write(); err == nil {
				return nil
			}
		}
		if err != nil && !said && ctx.Err() == nil {
			said = true
			e.cfg.Logger.Warn("the receipt of an erasure waits for a view", "projection", place.Name(), "err", err)
		}
		if !pause(ctx, lookEvery) {
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

// pause waits, and tells whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
