package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
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
func (a *app) openErasing(ctx context.Context) (err error) {
	if a.notes, err = a.store.log.Notes(ctx); err != nil {
		return err
	}
	if err := a.openHashKey(ctx); err != nil {
		return err
	}
	var places []eraser.Place
	for _, p := range a.views.Places() {
		places = append(places, p)
	}
	log := eraser.On(a.store.log)
	a.erasing = &erasing{receipts: eraser.NewReceipts(log, a.notes, places)}
	if !a.roles.has(roleEraser) {
		return nil
	}
	c := eraser.Config{
		Rules: a.cfg.Rules(), Rate: a.cfg.EraseRate, Places: places,
		Forget: a.views.audit.ForgetEvent, Logger: a.logger,
	}
	if a.memory != nil {
		c.Documents = []eraser.Documents{a.memory}
	}
	x := a.erasing
	x.eraser = eraser.New(log, a.notes, c)
	x.feed = runner.NewTask(a.store.log, x.eraser, runner.Config{
		Rules: a.cfg.Rules(), Group: desk.New(a.notes).Members(x.eraser.Name(), nil),
		Logger: a.logger, Metrics: a.metrics, Traces: a.traces,
	})
	a.views.Beside(x.eraser.Name(), x.feed, nil, nil)
	x.retention = eraser.NewRetention(log, a.notes, eraser.RetentionConfig{
		Rules: a.cfg.Rules(), Anonymous: a.cfg.AnonymousAge(), Linked: a.cfg.Retention,
		Redact: a.redactForAge, Forget: a.forget, Logger: a.logger,
	})
	return nil
}

// openHashKey takes the key of the hashes of addresses: TURNLEDGER_HASH_KEY, or one that is drawn once and kept beside
// the log.
func (a *app) openHashKey(ctx context.Context) error {
	key := a.cfg.HashKey
	if key == "" {
		var err error
		if key, err = a.notes.Once(ctx, "hash.key", rand.Text); err != nil {
			return fmt.Errorf("keep the key of the hashes of addresses: %w (set TURNLEDGER_HASH_KEY to keep it "+
				"yourself)", err)
		}
	}
	a.hashKey = []byte(key)
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
	redact := conversation.Redact{TurnID: turn, Reason: "retention", RedactedBy: "turnledger"}
	_, err := a.history.RedactTurn(ctx, sessionID, redact)
	if errors.Is(err, conversation.ErrSessionErased) {
		return nil
	}
	return err
}

// forget purges what a retention takes out of the log, and has the memory outside and the audit forget it, too.
func (a *app) forget(
	ctx context.Context, sessionID string, partition int, gone []uint64, purge func(context.Context) error,
) error {
	if a.memory != nil {
		upTo := events.Position{Partition: partition, Seq: slices.Max(gone)}
		if err := a.memory.Forget(ctx, sessionID, upTo); err != nil {
			return err
		}
	}
	return a.views.audit.ForgetEvents(ctx, partition, gone, purge)
}
