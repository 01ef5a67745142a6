package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/recent/redis"
	"github.com/turnledger/turnledger/projections/recent/shadow"
	"github.com/turnledger/turnledger/projections/runner"
)

// shadowView is the second recent view, which this process feeds and compares.
type shadowView struct {
	view *shadow.Shadow
	feed *runner.Runner
}

// named lists a projection under a name of its own.
type named struct {
	projections.Rebuildable
	name string
}

func (n named) Name() string { return n.name }

// openShadow opens the second recent view, where one is configured.
func (v *views) openShadow(reg prometheus.Registerer) error {
	if v.cfg.RecentShadow == "" || v.recent == nil {
		return nil
	}
	var second interface {
		recent.View
		projections.Rebuildable
	}
	cfg := runner.Config{Rules: v.cfg.rules(), Logger: v.logger, Metrics: v.feeding.metrics, Traces: v.feeding.traces}
	if v.cfg.RecentShadow == "memory" {
		second = memory.New(v.cfg.limits(), v.cfg.rules(), nil)
		cfg.Start = func(ctx context.Context, k int) (uint64, error) {
			return v.log.SeqAt(ctx, k, time.Now().Add(-time.Duration(v.cfg.SessionTTL)))
		}
	} else {
		view, err := redis.New(redis.Config{URL: v.cfg.RecentShadow, Limits: v.cfg.limits(), Rules: v.cfg.rules()})
		if err != nil {
			return fmt.Errorf("TURNLEDGER_RECENT_SHADOW: %w", err)
		}
		second, cfg.Group = view, view
		v.closeShadow = view.Close
	}
	v.shadow = &shadowView{
		view: shadow.New(guardedView{v.recent, &v.recentGuard}, second, reg, v.logger),
		feed: runner.New(v.log, named{second, "recent-shadow"}, cfg),
	}
	v.effects = append(v.effects, v.shadow.feed)
	return nil
}

func (s *shadowView) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.view.Run(ctx) })
	g.Go(func() error { return s.feed.Run(ctx) })
	return g.Wait()
}
