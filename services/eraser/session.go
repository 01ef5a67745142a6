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
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// PlaceLog is the log's name in receipts.
const PlaceLog = "log"

// closed is an erased session with the events that are still to be erased.
type closed struct {
	*events.SessionErased
	at     events.Position
	turns  map[uuid.UUID]bool
	events []uint64
	// before is the session before its erasure.
	before *session.State
}

// eraseSession erases all events of a session but its first link, the erasure, and the marks of its branches, which
// name them and hold no text.
func (e *Eraser) eraseSession(ctx context.Context, j *job) (remainder, error) {
	c, err := e.closed(ctx, j)
	if err != nil || c == nil {
		return remainder{}, err
	}
	if err := e.deleteDocuments(ctx, c.at, c.SessionID, slices.Collect(maps.Keys(c.turns))); err != nil {
		return remainder{}, err
	}
	progress, err := e.eraseAll(ctx, c)
	if err != nil {
		return remainder{}, err
	}
	if err := e.eraseMirrored(ctx, c.SessionID, c.at); err != nil {
		return remainder{}, err
	}
	if err := e.eraseVoidBelow(ctx, c.SessionID); err != nil {
		return remainder{}, err
	}
	if err := dropLeft(ctx, e.notes, c.SessionID); err != nil {
		return remainder{}, err
	}
	key := progressKey(c.ReceiptID, c.SessionID)
	receipt := events.ErasureReceipt{
		SessionID: c.SessionID, ReceiptID: c.ReceiptID, Place: PlaceLog, Erased: progress.Erased,
		Branches: progress.Shared.Branches, SharedTurns: progress.Shared.Turns,
	}
	e.cfg.Logger.Info(
		"a session is erased from the log", "session_id", c.SessionID, "position", c.at, "events", progress.Erased,
	)
	if c.IdentityID != "" { // the identity's receipt says what is proved, and what the views have reached
		if err := e.receipt(ctx, c.at, receipt); err != nil {
			return remainder{}, err
		}
		return remainder{}, e.notes.Drop(ctx, key)
	}
	left := e.reached([]events.Position{c.at}, receipt, progress.Turns, key)
	left.prove = func(ctx context.Context) error { return e.proveErasure(ctx, c.at, receipt, key, &progress) }
	return left, nil
}

// proveErasure writes the log's receipt of an erasure, once it is proved.
func (e *Eraser) proveErasure(
	ctx context.Context, at events.Position, receipt events.ErasureReceipt, key string, progress *progressNote,
) error {
	written, err := e.written(ctx, at, receipt)
	if err != nil || written[PlaceLog] != nil { // since then servers may have been started anew
		return err
	}
	now, err := e.nodes(ctx)
	if err != nil {
		return err
	}
	note := func(ctx context.Context) error { return e.notes.Put(ctx, key, progress) }
	if err := e.prove(ctx, now, &progress.witness, note); err != nil {
		return err
	}
	return e.receipt(ctx, at, receipt)
}

// reached returns the last part of an erasure, which follows when the log is done. Each view that reaches the positions
// gets its receipt, with the number of erased events. After all views, the note of the progress is dropped.
func (e *Eraser) reached(at []events.Position, receipt events.ErasureReceipt, erased int, progress string) remainder {
	write := func(ctx context.Context, place string) error {
		r := receipt
		r.Place, r.Erased, r.Branches, r.SharedTurns = place, erased, 0, 0
		return e.receipt(ctx, at[0], r)
	}
	return remainder{
		open:  []awaited{{at, write}},
		after: func(ctx context.Context) error { return e.notes.Drop(ctx, progress) },
	}
}

// closed returns an erased session with what is left of it to erase. It returns nil if the session's erasure no longer
// counts.
func (e *Eraser) closed(ctx context.Context, j *job) (*closed, error) {
	c := &closed{at: j.at, turns: map[uuid.UUID]bool{}}
	state := session.New(j.session, e.cfg.Rules)
	for r, err := range e.log.Session(ctx, j.session, 0, j.at.Seq) {
		if err != nil {
			return nil, err
		}
		if f, ok := r.Fact.(*events.SessionErased); ok && r.Position == j.at {
			c.SessionErased, c.before = f, state.Clone()
		} else {
			c.events = append(c.events, r.Position.Seq)
		}
		change := state.Fold(r)
		if r.Type == events.TypeSessionBranched && change.Kind != session.Anomaly {
			c.events = c.events[:len(c.events)-1]
		}
		for _, t := range change.Turns {
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

// progressNote is the note of an erasure's progress.
type progressNote struct {
	services.ErasureProgress
	witness
}

// progressEvery is the number of erased events after which the erasure waits for the disk and notes its progress.
const progressEvery = 64

// eraseAll erases a session's events from the newest back. It returns the progress, which includes events that an
// earlier attempt erased and noted before a crash.
func (e *Eraser) eraseAll(ctx context.Context, c *closed) (progress progressNote, err error) {
	key := progressKey(c.ReceiptID, c.SessionID)
	progress.Began = time.Now().UTC()
	if _, err := e.notes.Read(ctx, key, &progress); err != nil {
		return progress, err
	}
	if progress.Shared == nil {
		if progress.Shared, err = e.lost(ctx, c); err != nil {
			return progress, err
		}
	}
	if progress.Nodes == nil && c.IdentityID == "" {
		if progress.witness, err = e.witness(ctx); err != nil {
			return progress, err
		}
	}
	// save waits until the erasures so far are on disk, and notes the progress.
	save := func(ctx context.Context) error {
		if err := e.log.Settle(ctx, c.at.Partition); err != nil {
			return err
		}
		return e.notes.Put(ctx, key, progress)
	}
	progress.Events, progress.Turns = progress.Erased+len(c.events), max(progress.Turns, len(c.turns))
	for i, seq := range slices.Backward(c.events) {
		if (len(c.events)-1-i)%progressEvery == 0 {
			if err := save(ctx); err != nil {
				return progress, err
			}
		}
		if err := e.speed.Wait(ctx); err != nil {
			last, cancel := lastly(ctx)
			defer cancel()
			return progress, errors.Join(err, save(last))
		}
		// A call that has begun is completed, so that a stop leaves no doubt about the count.
		found, err := e.log.Erase(context.WithoutCancel(ctx), events.Position{Partition: c.at.Partition, Seq: seq})
		if err != nil {
			return progress, err
		}
		if found {
			progress.Erased++
		}
	}
	return progress, save(ctx)
}

// receipt writes the receipt of the erasure at a position, once.
func (e *Eraser) receipt(ctx context.Context, at events.Position, f events.ErasureReceipt) error {
	written, err := e.written(ctx, at, f)
	if err != nil || written[f.Place] != nil {
		return err
	}
	if _, err := e.append(ctx, &f); err != nil {
		return fmt.Errorf("write a receipt: %w", err)
	}
	return nil
}

// written returns the receipts that were written of the erasure at a position.
func (e *Eraser) written(ctx context.Context, at events.Position, f events.ErasureReceipt) (
	map[string]*stamped, error,
) {
	if f.SessionID == "" {
		return identityReceipts(ctx, e.log, at, f.IdentityID, f.ReceiptID)
	}
	return sessionReceipts(ctx, e.log, at, f.SessionID, f.ReceiptID)
}

// append writes a fact to the log, and returns when it is on disk.
func (e *Eraser) append(ctx context.Context, f events.Fact) (events.Position, error) {
	ack, err := e.log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}})
	if err == nil {
		err = e.log.Durable(ctx, ack.Position)
	}
	return ack.Position, err
}

// reachPlace waits until a view has applied some positions, however long that takes, and then calls write.
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

// lookEvery is the pause between two checks of a condition that an erasure waits for.
const lookEvery = 50 * time.Millisecond
