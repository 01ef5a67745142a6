package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/audit/words"
	"github.com/turnledger/turnledger/projections/fleet"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/recent/redis"
	"github.com/turnledger/turnledger/projections/recent/shadow"
	"github.com/turnledger/turnledger/projections/runner"
)

// views are the fleet of a process, and the views that its readers use.
type views struct {
	*fleet.Fleet
	recent recent.Reader  // nil: reads go to the log alone
	audit  *audit.Guarded // nil: nobody reads them here
	shadow *shadow.Shadow // nil if none is configured
	index  *meanings      // nil if none is configured
}

// openViews makes the views of the roles. It also adds views in stores that only other processes use, so that every
// process can report how far they are.
func (a *app) openViews(ctx context.Context) error {
	a.views = &views{Fleet: fleet.New(fleet.Config{
		Log: a.store.Log, ViewNames: []string{recent.Name, audit.Name, shadow.Name, index.Name}, Config: runner.Config{
			Rules: a.cfg.Rules(), Follower: a.follower, Logger: a.logger, Metrics: a.metrics, Traces: a.traces,
		},
	})}
	for _, open := range []func(context.Context) error{a.openRecent, a.openShadow, a.openAudit, a.openIndex} {
		if err := open(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) openRecent(ctx context.Context) error {
	entry := fleet.Entry{Feeds: a.roles.has(roleRecent), Reads: a.reads()}
	var reader recent.Reader
	switch {
	case a.cfg.RedisURL != "":
		kept, err := a.openRedis(a.cfg.RedisURL)
		if err != nil {
			return err
		}
		if err := kept.Admitted(ctx); err != nil {
			kept.Close()
			return err
		}
		entry.View, reader, entry.Rebuildable = kept, kept, kept
		entry.Letters, entry.Close = recent.Letters, kept.Close
		entry.Store, entry.Reason = "redis", "Redis does not answer, or may not be used"
	case a.roles.has(roleContext):
		kept := memory.New(a.cfg.Limits(), a.cfg.Rules(), nil)
		entry.View, reader, entry.Rebuildable, entry.Start = kept, kept, kept, a.youngest
		entry.Feeds, entry.InMemory = true, true
	default:
		return nil
	}
	m, err := a.views.Add(ctx, entry)
	if err == nil && (entry.Feeds || entry.Reads) {
		a.views.recent = recent.Guarded{Reader: reader, Readable: m.Readable}
	}
	return err
}

// reads reports whether this process reads views.
func (a *app) reads() bool { return a.roles.has(roleContext) || a.roles.has(roleEraser) }

func (a *app) openRedis(url string) (*redis.View, error) {
	trusted, err := a.cfg.Redis()
	if err != nil {
		return nil, err
	}
	return redis.New(redis.Config{URL: url, Authorities: trusted, Limits: a.cfg.Limits(), Rules: a.cfg.Rules()})
}

// youngest returns the sequence at which a recent view in memory begins: older events have left it by the TTL. Sessions
// that began before are known as not whole.
func (a *app) youngest(ctx context.Context, partition int) (uint64, error) {
	return a.store.Log.SeqAt(ctx, partition, time.Now().Add(-a.cfg.SessionTTL))
}

// openShadow opens the second recent view, if one is configured. It serves no reads. A process that has the first view
// feeds the second and compares their answers; another process only looks how far a second view in Redis is, so that
// its receipts wait for it.
func (a *app) openShadow(ctx context.Context) error {
	compared := a.views.recent != nil
	entry := fleet.Entry{Feeds: compared}
	var second recent.Loader
	switch {
	case a.cfg.RecentShadow == "", a.cfg.RecentShadow == "memory" && !compared:
		return nil
	case a.cfg.RecentShadow == "memory":
		view := memory.New(a.cfg.Limits(), a.cfg.Rules(), nil)
		entry.View, second = shadow.Second{View: view}, view
		entry.InMemory, entry.Start = true, a.youngest
	default:
		view, err := a.openRedis(a.cfg.RecentShadow)
		if err != nil {
			return fmt.Errorf("TURNLEDGER_RECENT_SHADOW: %w", err)
		}
		entry.View, second = shadow.Second{View: view}, view
		entry.Letters, entry.Close = recent.Letters, view.Close
	}
	if _, err := a.views.Add(ctx, entry); err != nil || !compared {
		return err
	}
	a.views.shadow = shadow.New(a.views.recent, second, a.registry, a.logger)
	a.views.recent = a.views.shadow
	return nil
}

// searchKey is the key of the terms that searches find turns by. It is drawn once, and kept beside the log and not in
// PostgreSQL.
func (a *app) searchKey(ctx context.Context) (string, error) {
	notes, err := a.store.Log.Notes(ctx)
	if err != nil {
		return "", err
	}
	key, err := notes.Once(ctx, "search.key", rand.Text)
	if err != nil {
		return "", fmt.Errorf("keep the key of the search: %w", err)
	}
	return key, nil
}

// auditRest is how long the audit may lag for the sake of larger transactions.
const auditRest = 5 * time.Millisecond

func (a *app) openAudit(ctx context.Context) error {
	if a.cfg.PostgresURL == "" {
		return nil
	}
	key, err := a.searchKey(ctx)
	if err != nil {
		return err
	}
	tables, err := audit.Look(ctx, audit.Config{
		URL: a.cfg.PostgresURL, Rules: a.cfg.Rules(), Log: a.store.Log, Logger: a.logger,
		SearchConfig: a.cfg.SearchConfig, SearchKey: words.NewKey(key),
	})
	if err != nil {
		return err
	}
	entry := fleet.Entry{
		View: tables, Rebuildable: tables, Open: tables.Prepare, Close: tables.Close,
		Feeding: runner.Feeding{MaxBatch: 10_000, Rest: auditRest},
		Feeds:   a.roles.has(roleAudit), Reads: a.reads(),
		Store: "postgres", Reason: "PostgreSQL does not answer, or may not be used",
	}
	m, err := a.views.Add(ctx, entry)
	if err == nil && (entry.Feeds || entry.Reads) {
		a.views.audit = &audit.Guarded{Tables: tables, Readable: m.Readable}
	}
	return err
}

// run feeds the views until ctx ends.
func (v *views) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return v.Run(ctx) })
	if v.shadow != nil {
		g.Go(func() error { return v.shadow.Run(ctx) })
	}
	if v.index != nil && v.index.Feeds {
		g.Go(func() error { return v.index.run(ctx) })
	}
	return g.Wait()
}
