package main

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/recent/redis"
	"github.com/turnledger/turnledger/projections/runner"
)

// views are the projections of a process: those that it feeds and those that it
// reads.
type views struct {
	cfg     Config
	log     *jetlog.Log
	logger  *slog.Logger
	feeding feeding

	recent recent.View // nil: reads go to the log alone
	audit  *auditTables
	feeds  []*runner.Runner
	// effects act on the outside world; they run by themselves, and are listed with the
	// views, and so are their dead letters.
	effects []*runner.Runner
	letters []projections.DeadLetterQueue
	// shadow is read beside the recent view; nil where none is configured.
	shadow      *shadowView
	closeShadow func()
	// start gives where the recent view begins; nil: with the log.
	start  func(context.Context, int) (uint64, error)
	keeper *keeper
	// recentGuard keeps readers from a view that follows another stream.
	recentGuard guard
	// auditFeed feeds the audit tables once they are open.
	auditFeed atomic.Pointer[runner.Runner]
	// eraserFeed feeds the eraser, where this process has it.
	eraserFeed *runner.Runner
	// storedRecent and storedAudit are asked for what is told of views that this process
	// does not feed; nil where no such store is configured.
	storedRecent *redis.View
	storedAudit  *audit.Audit
}

// auditTables are the audit tables once PostgreSQL answers; until then every use is
// audit.ErrUnavailable. The log keeps all, so they catch up when it does.
type auditTables struct {
	guard
	open atomic.Pointer[audit.Audit]
}

var errNoAudit = errors.Join(audit.ErrUnavailable, errors.New("no PostgreSQL is configured: set TURNLEDGER_POSTGRES_URL"))

func (a *auditTables) get() (*audit.Audit, error) {
	if a == nil {
		return nil, errNoAudit
	}
	if err := a.failure(); err != nil {
		return nil, errors.Join(audit.ErrUnavailable, err)
	}
	if t := a.open.Load(); t != nil {
		return t, nil
	}
	return nil, audit.ErrUnavailable
}

// SessionTurns gives the last turns of a linked session.
func (a *auditTables) SessionTurns(ctx context.Context, sessionID string, limit int) (*conversation.State, events.Position, error) {
	t, err := a.get()
	if err != nil {
		return nil, events.Position{}, err
	}
	return t.SessionTurns(ctx, sessionID, limit)
}

// openViews makes the views of some roles. PostgreSQL is tried once, so that where
// it answers the audit is there from the first request on.
func openViews(ctx context.Context, cfg Config, roles roles, log *jetlog.Log, observed feeding, logger *slog.Logger) (*views, error) {
	v := &views{cfg: cfg, log: log, logger: logger, feeding: observed, keeper: newKeeper(logger)}
	if err := v.openStored(ctx); err != nil {
		v.close()
		return nil, err
	}
	v.openRecent(roles)
	if view, ok := v.recent.(projections.Rebuildable); ok && cfg.RedisURL != "" {
		v.watch(ctx, view, &v.recentGuard)
	}
	if cfg.PostgresURL != "" && (roles.has(roleAudit) || roles.has(roleContext) || roles.has(roleEraser)) {
		v.audit = &auditTables{}
		tables, err := v.tryAudit(ctx)
		if err != nil && !errors.Is(err, audit.ErrUnavailable) {
			v.close()
			return nil, err
		}
		v.audit.open.Store(tables)
	}
	return v, nil
}

func (v *views) openRecent(roles roles) {
	switch {
	case v.cfg.RedisURL != "" && (roles.has(roleRecent) || roles.has(roleContext) || roles.has(roleEraser)):
		v.recent = v.storedRecent
		if roles.has(roleRecent) {
			v.feed(v.storedRecent, v.storedRecent)
		}
	case roles.has(roleContext):
		view := memory.New(v.cfg.limits(), v.cfg.rules(), nil)
		v.recent = view
		// What is older than the TTL has left the view; sessions that began before are
		// known as not whole.
		v.start = func(ctx context.Context, k int) (uint64, error) {
			return v.log.SeqAt(ctx, k, time.Now().Add(-time.Duration(v.cfg.SessionTTL)))
		}
		v.feed(view, nil)
	}
}

// feed feeds a view with those of its group; a view in memory has none.
func (v *views) feed(p projections.Projection, group projections.Group) {
	r := runner.New(v.log, p, runner.Config{Rules: v.cfg.rules(), Start: v.start, Group: group, Logger: v.logger, Metrics: v.feeding.metrics, Traces: v.feeding.traces})
	v.feeds = append(v.feeds, r)
}

// run feeds the views until ctx ends.
func (v *views) run(ctx context.Context, roles roles) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range v.feeds {
		g.Go(func() error { return v.follow(ctx, r, v.recent.(projections.Rebuildable), &v.recentGuard) })
	}
	if view, ok := v.recent.(projections.Rebuildable); ok {
		g.Go(func() error { return v.unguard(ctx, view, &v.recentGuard) })
	}
	g.Go(func() error { return v.keeper.run(ctx) })
	if v.shadow != nil {
		g.Go(func() error { return v.shadow.run(ctx) })
	}
	if v.audit != nil {
		g.Go(func() error { return v.runAudit(ctx, roles.has(roleAudit)) })
	}
	return g.Wait()
}

// runAudit feeds the audit tables; where they are not open yet it opens them, as
// often as it takes.
func (v *views) runAudit(ctx context.Context, feed bool) error {
	for v.audit.open.Load() == nil {
		tables, err := v.tryAudit(ctx)
		switch {
		case err == nil:
			v.audit.open.Store(tables)
			continue
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, audit.ErrUnavailable):
			return err
		}
		v.logger.Warn("the audit waits for PostgreSQL", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
	}
	tables := v.audit.open.Load()
	if !feed {
		return v.unguard(ctx, tables, &v.audit.guard)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return v.unguard(ctx, tables, &v.audit.guard) })
	r := runner.New(v.log, tables, runner.Config{Rules: v.cfg.rules(), MaxBatch: 10_000, Group: tables, Logger: v.logger, Metrics: v.feeding.metrics, Traces: v.feeding.traces})
	v.auditFeed.Store(r)
	g.Go(func() error { return v.follow(ctx, r, tables, &v.audit.guard) })
	return g.Wait()
}

func (v *views) tryAudit(ctx context.Context) (*audit.Audit, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tables, err := audit.Open(ctx, audit.Config{URL: v.cfg.PostgresURL, Rules: v.cfg.rules(), Log: v.log, Logger: v.logger})
	if err == nil {
		v.watch(ctx, tables, &v.audit.guard)
	}
	return tables, err
}

// close ends what openViews opened.
func (v *views) close() {
	if v.closeShadow != nil {
		v.closeShadow()
	}
	if v.storedRecent != nil {
		v.storedRecent.Close()
	}
	if v.storedAudit != nil {
		v.storedAudit.Close()
	}
	if v.audit != nil {
		if tables := v.audit.open.Load(); tables != nil {
			tables.Close()
		}
	}
}

// status of all that this process feeds.
func (v *views) status(ctx context.Context) []projections.Status {
	var out []projections.Status
	feeds := append(v.feeds[:len(v.feeds):len(v.feeds)], v.effects...)
	if r := v.auditFeed.Load(); r != nil {
		feeds = append(feeds, r)
	}
	if v.eraserFeed != nil {
		feeds = append(feeds[:len(feeds):len(feeds)], v.eraserFeed)
	}
	for _, r := range feeds {
		out = append(out, r.Status(ctx, time.Now())...)
	}
	return out
}
