package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
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
	var places []eraser.Place
	for _, p := range a.views.Places() {
		places = append(places, p)
	}
	log := eraser.On(a.store.log)
	a.erasing = &erasing{receipts: eraser.NewReceipts(log, notes, places)}
	if !a.roles.has(roleEraser) {
		return nil
	}
	a.erasing.eraser = eraser.New(log, notes, eraser.Config{
		Rules: a.cfg.Rules(), Rate: a.cfg.EraseRate, Places: places, Documents: a.documents(), Forget: a.views.forgetOne,
		Logger: a.logger,
	})
	a.erasing.feed = runner.NewTask(a.store.log, a.erasing.eraser, runner.Config{
		Rules: a.cfg.Rules(), Group: desk.New(notes).Members(a.erasing.eraser.Name(), nil),
		Logger: a.logger, Metrics: a.metrics, Traces: a.tracing(),
	})
	a.views.Beside(a.erasing.eraser.Name(), a.erasing.feed, nil, nil)
	a.erasing.retention = eraser.NewRetention(log, notes, eraser.RetentionConfig{
		Rules: a.cfg.Rules(), Anonymous: a.cfg.AnonymousAge(), Linked: a.cfg.Retention,
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

// forget tells the memory outside and the audit what a retention takes out of the log by purge.
func (a *app) forget(ctx context.Context, sessionID string, partition int, gone []uint64, purge func(context.Context) error) error {
	if a.memory != nil {
		upTo := events.Position{Partition: partition, Seq: slices.Max(gone)}
		// Who forwards may have read what is deleted here, and store it again.
		err := forwarded{a.memory.effect.Applied}.DeleteTurns(ctx, upTo, sessionID, nil)
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
	return []eraser.Documents{forwarded{a.memory.effect.Applied}}
}

// forwarded is the memory outside. Its forwarder deletes as it follows the log, and needs
// of the log which turns there were.
type forwarded struct {
	done func(ctx context.Context, partition int) (events.Position, error)
}

// DeleteTurns implements eraser.Documents.
func (f forwarded) DeleteTurns(ctx context.Context, at events.Position, _ string, _ []uuid.UUID) error {
	done, err := f.done(ctx, at.Partition)
	if err == nil && done.Seq < at.Seq {
		err = fmt.Errorf("the memory's forwarder is at %s, and has not deleted yet what is to be erased: turnledger projections list tells how it stands", done)
	}
	return err
}
