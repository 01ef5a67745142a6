package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/recent/redis"
)

// stateNotFed is that of a view in a store which other processes feed, if any does.
const stateNotFed = "not_fed"

// openStored opens the stores of the views that others may feed, so that every process can tell how far these are. It asks
// nothing of them, and changes nothing.
func (v *views) openStored(ctx context.Context) error {
	if v.cfg.RedisURL != "" {
		trusted, err := openAuthorities("TURNLEDGER_REDIS_CA", v.cfg.RedisCA)
		if err != nil {
			return err
		}
		v.storedRecent, err = redis.New(redis.Config{URL: v.cfg.RedisURL, Authorities: trusted, Limits: v.cfg.limits(), Rules: v.cfg.rules()})
		if err == nil {
			err = v.storedRecent.Admitted(ctx)
		}
		if err != nil {
			return err
		}
	}
	if v.cfg.PostgresURL != "" {
		var err error
		v.storedAudit, err = audit.Look(ctx, audit.Config{URL: v.cfg.PostgresURL, Rules: v.cfg.rules(), Log: v.log, Logger: v.logger})
		return err
	}
	return nil
}

// elsewhere is what the stores tell of the views that this process does not feed.
func (v *views) elsewhere(ctx context.Context) (out []projections.Status) {
	ctx, cancel := context.WithTimeout(ctx, collectDeadline)
	defer cancel()
	if v.storedRecent != nil && len(v.feeds) == 0 {
		out = append(out, v.stored(ctx, v.storedRecent)...)
	}
	if v.storedAudit != nil && v.auditFeed.Load() == nil {
		out = append(out, v.stored(ctx, v.storedAudit)...)
	}
	return out
}

// stored holds the checkpoints of a view against the log.
func (v *views) stored(ctx context.Context, view projections.Rebuildable) []projections.Status {
	number, served, silent := view.Served(ctx)
	out := make([]projections.Status, v.log.Partitions())
	var g errgroup.Group
	for k := range out {
		cp := projections.Checkpoint{Partition: k}
		for _, one := range served {
			if one.Partition == k {
				cp = one
			}
		}
		g.Go(func() error {
			out[k] = v.storedStatus(ctx, cp, silent)
			out[k].Name, out[k].Generation = view.Name(), number
			return nil
		})
	}
	_ = g.Wait() // what is wrong stands in each status
	return out
}

func (v *views) storedStatus(ctx context.Context, cp projections.Checkpoint, err error) projections.Status {
	s := projections.Status{Partition: cp.Partition, Position: cp.Position(), State: stateNotFed}
	var head events.Position
	if err == nil {
		head, err = v.log.Head(ctx, cp.Partition)
	}
	if err != nil {
		s.State, s.HeadUnknown, s.LastError = projections.Unknown, true, err.Error()
		return s
	}
	s.Head = head
	if err = projections.SameStream(ctx, v.log, cp); err != nil {
		s.LastError = err.Error()
	}
	if errors.Is(err, projections.ErrStream) {
		s.State, s.LagUnknown = stateOfFailed, true
	} else {
		s.Measure(ctx, v.log, time.Now())
	}
	return s
}
