package recall

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/effects"
	"github.com/turnledger/turnledger/projections/runner"
)

// Service is a memory that an external program keeps.
type Service interface {
	Store
	Searcher
}

// Outside is the memory of a deployment that uses an external service. An effect of the log feeds the service.
type Outside struct {
	Service
	Deletions *Deletions
	Effect    *effects.Effect
	// Feed and Letters are nil if another process feeds the service.
	Feed    *runner.Runner
	Letters projections.DeadLetterQueue

	forwarder *Forwarder
}

// OutsideConfig of a memory; Feeds says whether this process feeds the service.
type OutsideConfig struct {
	runner.Config
	Feeds    bool
	Registry prometheus.Registerer
}

// NewOutside makes the memory; it does no I/O.
func NewOutside(log *jetlog.Log, s Service, cfg OutsideConfig) *Outside {
	m := &Outside{Service: s, forwarder: NewForwarder(s, log, cfg.Rules)}
	m.Effect = effects.New(m.forwarder, effects.Config{Desk: cfg.Desk, Log: log, Rules: cfg.Rules})
	m.Deletions = NewDeletions(log, DeletionsConfig{
		Done: m.Effect.Applied, Follower: cfg.Follower, Logger: cfg.Logger,
	})
	cfg.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "turnledger", Subsystem: "memory", Name: "withheld_scopes",
		Help: "Scopes of the memory that give nothing, since a deletion in them is not confirmed.",
	}, func() float64 { return float64(m.Deletions.Withheld()) }))
	if cfg.Feeds {
		m.Letters = cfg.Desk.Queue(m.Effect, log, cfg.Rules)
		cfg.MaxBatch, cfg.Group = 64, cfg.Desk.Members(m.Name(), nil)
		m.Feed = runner.New(log, m.Effect, cfg.Config)
	}
	return m
}

// Run feeds the service, and tracks the deletions that it has not done, until ctx ends.
func (m *Outside) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.Deletions.Run(ctx) })
	if m.Feed != nil {
		g.Go(func() error { return m.Feed.Run(ctx) })
	}
	return g.Wait()
}

// Snippets returns the snippets of what the service knows.
func (m *Outside) Snippets(erasures projections.ErasureCheck, budget time.Duration) *Snippets {
	return NewSnippets(erasures, m, m.Deletions.Confirmed, budget)
}

// Name of the memory in receipts and in lists.
func (m *Outside) Name() string { return m.Effect.Name() }

// DeleteTurns returns nil when the service has carried out the deletions that the event at a position causes. The
// forwarder carries them out as it follows the log, and reads from the log which turns there were.
func (m *Outside) DeleteTurns(ctx context.Context, at events.Position, _ string, _ []uuid.UUID) error {
	done, err := m.Effect.Applied(ctx, at.Partition)
	if err == nil && done.Seq < at.Seq {
		err = fmt.Errorf("the memory's forwarder is at %s, and has not deleted yet what is to be erased: "+
			"turnledger projections list tells how it stands", done)
	}
	return err
}

// Forget deletes a session from the external memory before a retention removes the session's events up to a position
// from the log. It fails with projections.ErrNotYet until the forwarder has passed that position: before that, the
// forwarder may have read an event whose document it would store after the deletion.
func (m *Outside) Forget(ctx context.Context, sessionID string, upTo events.Position) error {
	err := m.DeleteTurns(ctx, upTo, sessionID, nil)
	if err == nil {
		err = m.forwarder.Purge(ctx, sessionID, upTo.Seq)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", projections.ErrNotYet, err)
	}
	return err
}
