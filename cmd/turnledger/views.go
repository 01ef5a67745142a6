package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/fleet"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/recent/redis"
	"github.com/turnledger/turnledger/projections/recent/shadow"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services/contextbuilder"
)

// views are the fleet of a process, and what its readers read of it.
type views struct {
	*fleet.Fleet
	cfg    config.Config
	log    *jetlog.Log
	logger *slog.Logger

	recent recent.Reader  // nil: reads go to the log alone
	audit  *auditTables   // nil: nobody reads them here
	shadow *shadow.Shadow // nil where none is configured
}

// auditTables are the audit tables for readers, once PostgreSQL has answered; until then every use is
// audit.ErrUnavailable. The log keeps all, so they catch up when it does.
type auditTables struct {
	tables   *audit.Audit
	readable func() error
}

var errNoAudit = errors.Join(audit.ErrUnavailable, errors.New("no PostgreSQL is configured: set TURNLEDGER_POSTGRES_URL"))

func (a *auditTables) get() (*audit.Audit, error) {
	if a == nil {
		return nil, errNoAudit
	}
	if err := a.readable(); err != nil {
		return nil, errors.Join(audit.ErrUnavailable, err)
	}
	return a.tables, nil
}

// SessionTurns gives the last turns of a linked session.
func (a *auditTables) SessionTurns(ctx context.Context, sessionID string, limit int) (*conversation.State, events.Position, error) {
	t, err := a.get()
	if err != nil {
		return nil, events.Position{}, err
	}
	return t.SessionTurns(ctx, sessionID, limit)
}

// openViews makes the views of some roles. Those in stores that only others use are added, too, so that every
// process can tell how far they are.
func openViews(
	ctx context.Context, cfg config.Config, roles roles, log *jetlog.Log, observed feeding, reg prometheus.Registerer,
	logger *slog.Logger,
) (*views, error) {
	v := &views{cfg: cfg, log: log, logger: logger, Fleet: fleet.New(fleet.Config{
		Log: log, Known: []string{recent.Name, audit.Name}, Config: runner.Config{
			Rules: cfg.Rules(), Logger: logger, Metrics: observed.metrics, Traces: observed.traces,
		},
	})}
	err := v.openRecent(ctx, roles)
	if err == nil {
		err = v.openShadow(ctx, reg)
	}
	if err == nil {
		err = v.openAudit(ctx, roles)
	}
	if err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

func (v *views) openRecent(ctx context.Context, roles roles) error {
	entry := fleet.Entry{Feeds: roles.has(roleRecent), Reads: roles.has(roleContext) || roles.has(roleEraser)}
	var reader recent.Reader
	switch {
	case v.cfg.RedisURL != "":
		kept, err := v.openRedis(v.cfg.RedisURL)
		if err != nil {
			return err
		}
		if err := kept.Admitted(ctx); err != nil {
			kept.Close()
			return err
		}
		entry.View, reader, entry.Generations = kept, kept, kept
		entry.Carry, entry.Close = kept.Carry, kept.Close
		entry.Store, entry.Reason = "redis", "Redis does not answer, or may not be used"
	case roles.has(roleContext):
		kept := memory.New(v.cfg.Limits(), v.cfg.Rules(), nil)
		entry.View, reader, entry.Generations, entry.Start = kept, kept, kept, v.youngest
		entry.Feeds, entry.InMemory = true, true
	default:
		return nil
	}
	m, err := v.Add(ctx, entry)
	if err == nil && (entry.Feeds || entry.Reads) {
		v.recent = recent.Guarded{Reader: reader, May: m.Readable}
	}
	return err
}

func (v *views) openRedis(url string) (*redis.View, error) {
	trusted, err := v.cfg.Redis()
	if err != nil {
		return nil, err
	}
	return redis.New(redis.Config{URL: url, Authorities: trusted, Limits: v.cfg.Limits(), Rules: v.cfg.Rules()})
}

// youngest is where a recent view in memory begins: what is older than the TTL has left it. Sessions that began
// before are known as not whole.
func (v *views) youngest(ctx context.Context, partition int) (uint64, error) {
	return v.log.SeqAt(ctx, partition, time.Now().Add(-v.cfg.SessionTTL))
}

// openShadow opens the second recent view, where one is configured. Nothing is served from it.
func (v *views) openShadow(ctx context.Context, reg prometheus.Registerer) error {
	if v.cfg.RecentShadow == "" || v.recent == nil {
		return nil
	}
	entry := fleet.Entry{Feeds: true}
	var second recent.Loader
	if v.cfg.RecentShadow == "memory" {
		view := memory.New(v.cfg.Limits(), v.cfg.Rules(), nil)
		entry.View, second = shadow.Second{View: view}, view
		entry.InMemory, entry.Start = true, v.youngest
	} else {
		view, err := v.openRedis(v.cfg.RecentShadow)
		if err != nil {
			return fmt.Errorf("TURNLEDGER_RECENT_SHADOW: %w", err)
		}
		entry.View, second = shadow.Second{View: view}, view
		entry.Carry, entry.Close = view.Carry, view.Close
	}
	if _, err := v.Add(ctx, entry); err != nil {
		return err
	}
	v.shadow = shadow.New(v.recent, second, reg, v.logger)
	v.recent = v.shadow
	return nil
}

func (v *views) openAudit(ctx context.Context, roles roles) error {
	if v.cfg.PostgresURL == "" {
		return nil
	}
	tables, err := audit.Look(ctx, audit.Config{
		URL: v.cfg.PostgresURL, Rules: v.cfg.Rules(), Log: v.log, Logger: v.logger,
	})
	if err != nil {
		return err
	}
	entry := fleet.Entry{
		View: tables, Generations: tables, Open: tables.Prepare, Carry: tables.Carry, Close: tables.Close,
		MaxBatch: 10_000,
		Feeds:    roles.has(roleAudit), Reads: roles.has(roleContext) || roles.has(roleEraser),
		Store: "postgres", Reason: "PostgreSQL does not answer, or may not be used",
	}
	m, err := v.Add(ctx, entry)
	if err == nil && (entry.Feeds || entry.Reads) {
		v.audit = &auditTables{tables, m.Readable}
	}
	return err
}

// reader is the recent view for readers; nil where there is none.
func (v *views) reader() contextbuilder.View {
	if v.recent == nil {
		return nil
	}
	return v.recent
}

// run feeds the views until ctx ends.
func (v *views) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return v.Run(ctx) })
	if v.shadow != nil {
		g.Go(func() error { return v.shadow.Run(ctx) })
	}
	return g.Wait()
}
