package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services/eraser"
)

// erasing is what a process has to do with erasures: it reads their receipts, and in the
// role eraser carries them out.
type erasing struct {
	receipts  *eraser.Receipts
	eraser    *eraser.Eraser
	feed      *runner.Runner
	retention *eraser.Retention
}

// openErasing makes it; the views are open.
func (a *app) openErasing(ctx context.Context) error {
	notes, err := a.store.log.Notes(ctx)
	if err != nil {
		return err
	}
	a.notes = notes
	if a.hashKey, err = openHashKey(ctx, a.cfg, notes); err != nil {
		return err
	}
	places := a.views.places()
	if a.memory != nil {
		places = append(places, followed{a.store.log, "memory", a.memory.effect.Done})
	}
	log := eraser.On(a.store.log)
	a.erasing = &erasing{receipts: eraser.NewReceipts(log, notes, places)}
	if !a.roles.has(roleEraser) {
		return nil
	}
	a.erasing.eraser = eraser.New(log, notes, eraser.Config{Rules: a.cfg.rules(), Rate: a.cfg.EraseRate, Places: places, Documents: a.documents(), Forget: a.views.forgetOne, Logger: a.logger})
	a.erasing.feed = runner.New(a.store.log, a.erasing.eraser, runner.Config{
		Rules: a.cfg.rules(), Group: notes.Members("eraser"), Logger: a.logger, Metrics: a.views.feeding.metrics, Traces: a.views.feeding.traces,
	})
	a.views.eraserFeed = a.erasing.feed
	a.erasing.retention = eraser.NewRetention(log, notes, eraser.RetentionConfig{
		Rules: a.cfg.rules(), Anonymous: a.cfg.anonymousRetention(), Linked: time.Duration(a.cfg.Retention),
		Redact: a.redactForAge, Forget: a.forget, Logger: a.logger,
	})
	return nil
}

// run carries erasures out until ctx ends.
func (x *erasing) run(ctx context.Context) error {
	if x.eraser == nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return x.eraser.Run(ctx) })
	g.Go(func() error { return x.feed.Run(ctx) })
	g.Go(func() error { return x.retention.Run(ctx) })
	return g.Wait()
}

// redactForAge redacts a turn that retention no longer keeps.
func (a *app) redactForAge(ctx context.Context, sessionID string, turn uuid.UUID) error {
	_, err := a.history.RedactTurn(ctx, sessionID, conversation.Redact{TurnID: turn, Reason: "retention", RedactedBy: "turnledger"})
	if errors.Is(err, conversation.ErrSessionErased) {
		return nil
	}
	return err
}

// anonymousRetention is never shorter than a session lives: one that is still shown
// would be lost.
func (c Config) anonymousRetention() time.Duration {
	if c.AnonymousRetention == 0 {
		return 0
	}
	return time.Duration(max(c.AnonymousRetention, c.SessionTTL))
}

// places are the views that this process feeds or reads, and those in the stores that others do: whoever is asked, an erasure
// is complete when all are done.
func (v *views) places() (out []eraser.Place) {
	switch view := v.recent.(type) {
	case nil:
		if v.storedRecent != nil {
			out = append(out, followed{v.log, "recent", v.storedRecent.Applied})
		}
	case applied:
		out = append(out, followed{v.log, "recent", view.Applied})
	default:
		out = append(out, followed{v.log, "recent", v.fedUpTo})
	}
	if v.audit != nil {
		out = append(out, followed{v.log, "audit", func(ctx context.Context, partition int) (events.Position, error) {
			tables := v.audit.open.Load()
			if tables == nil {
				return events.Position{}, audit.ErrUnavailable
			}
			return tables.Applied(ctx, partition)
		}})
	} else if v.storedAudit != nil {
		out = append(out, followed{v.log, "audit", v.storedAudit.Applied})
	}
	return out
}

// applied is a view whose store tells how far it is, whoever feeds it.
type applied interface {
	Applied(ctx context.Context, partition int) (events.Position, error)
}

// fedUpTo tells how far a view in memory is. It may have begun behind what has left it by
// its age.
func (v *views) fedUpTo(ctx context.Context, partition int) (events.Position, error) {
	return v.feeds[0].Status(ctx, time.Now())[partition].Position, nil
}

// followed is a view as a place that an erasure reaches.
type followed struct {
	log     *jetlog.Log
	name    string
	applied func(ctx context.Context, partition int) (events.Position, error)
}

// Name implements eraser.Place.
func (f followed) Name() string { return f.name }

// Reached implements eraser.Place. Where all that a view has not applied was erased, it waits
// for nothing.
func (f followed) Reached(ctx context.Context, at events.Position) (bool, error) {
	applied, err := f.applied(ctx, at.Partition)
	if err != nil || applied.Seq >= at.Seq {
		return err == nil, err
	}
	return f.log.Still(ctx, at.Partition, applied.Seq, at.Seq)
}

// forget tells the memory outside and the audit what a retention takes out of the log by purge.
func (a *app) forget(ctx context.Context, sessionID string, partition int, gone []uint64, purge func(context.Context) error) error {
	if a.memory != nil {
		upTo := events.Position{Partition: partition, Seq: slices.Max(gone)}
		// Who forwards may have read what is deleted here, and store it again.
		err := forwarded{a.memory.effect.Done}.DeleteTurns(ctx, upTo, sessionID, nil)
		if err == nil {
			err = a.memory.forwarder.Purge(ctx, sessionID, upTo.Seq)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", projections.ErrNotYet, err)
		}
	}
	return a.views.forget(ctx, partition, gone, purge)
}

// forget tells the audit's ledger what a retention takes out of the log by purge.
func (v *views) forget(ctx context.Context, partition int, gone []uint64, purge func(context.Context) error) error {
	if v.audit == nil {
		return purge(ctx)
	}
	tables, err := v.audit.get()
	if err != nil {
		return err
	}
	return tables.ForgetEvents(ctx, partition, gone, purge)
}

// forgetOne tells the audit's ledger what the eraser took out of the log beside its session.
func (v *views) forgetOne(ctx context.Context, at events.Position) error {
	if v.audit == nil {
		return nil
	}
	tables, err := v.audit.get()
	if err != nil {
		return err
	}
	return tables.ForgetEvent(ctx, at)
}

// documents are the stores that must have deleted a turn before the log forgets it.
func (a *app) documents() []eraser.Documents {
	if a.memory == nil {
		return nil
	}
	return []eraser.Documents{forwarded{a.memory.effect.Done}}
}

// forwarded is the memory outside. Its forwarder deletes as it follows the log, and needs
// of the log which turns there were.
type forwarded struct {
	done func(ctx context.Context, partition int) (events.Position, error)
}

// Name implements eraser.Documents.
func (forwarded) Name() string { return "memory" }

// DeleteTurns implements eraser.Documents.
func (f forwarded) DeleteTurns(ctx context.Context, at events.Position, _ string, _ []uuid.UUID) error {
	done, err := f.done(ctx, at.Partition)
	if err == nil && done.Seq < at.Seq {
		err = fmt.Errorf("the memory's forwarder is at %s, and has not deleted yet what is to be erased: turnledger projections list tells how it stands", done)
	}
	return err
}
