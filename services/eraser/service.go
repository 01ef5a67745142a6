package eraser

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
)

// Service runs erasures and retention in one process: an Eraser with the runner that feeds it, and a Retention.
type Service struct {
	*Eraser
	Feed      *runner.Runner
	Retention *Retention
}

// ServiceConfig of a Service.
type ServiceConfig struct {
	// Config says how the eraser is fed. Its rules and its logger are those of all parts. NewService sets its Group.
	runner.Config
	Keepers
	// Turns redacts turns, and erases sessions, that are too old.
	Turns Redactor
	// Owners, Rate and Places are those of an Eraser's Config, the ages those of a RetentionConfig.
	Owners                                    Owners
	Rate                                      float64
	Places                                    []Place
	Anonymous, Conversation, Response, Linked time.Duration
}

// Redactor redacts turns and erases sessions.
type Redactor interface {
	RedactTurn(ctx context.Context, sessionID string, c decide.Redact) (services.Turn, error)
	EraseSession(ctx context.Context, sessionID string, c services.Erasure) (receipt string, err error)
}

// Keepers hold copies of what the log holds, and delete them before the log forgets the events.
type Keepers struct {
	// Memory is a service outside that holds texts of turns; nil where there is none.
	Memory interface {
		Documents
		// Forget deletes a session's documents of events up to a position, and fails while one of these events may
		// still arrive there.
		Forget(ctx context.Context, sessionID string, upTo events.Position) error
	}
	// Index holds vectors of turns, perhaps with their texts; nil where there is none. Forget is as that of Memory.
	Index interface {
		Forget(ctx context.Context, sessionID string, upTo events.Position) error
	}
	// Audit holds a row for each event. Config.Forget and RetentionConfig.Forget describe its methods.
	Audit interface {
		ForgetEvent(ctx context.Context, at events.Position) error
		ForgetEvents(
			ctx context.Context, partition int, gone []uint64, purge func(context.Context) error,
		) error
	}
}

// Forget has the keepers delete what they hold of some events of a session, and then purges these events.
func (k Keepers) Forget(
	ctx context.Context, sessionID string, partition int, gone []uint64, purge func(context.Context) error,
) error {
	upTo := events.Position{Partition: partition, Seq: slices.Max(gone)}
	if k.Memory != nil {
		if err := k.Memory.Forget(ctx, sessionID, upTo); err != nil {
			return err
		}
	}
	if k.Index != nil {
		if err := k.Index.Forget(ctx, sessionID, upTo); err != nil {
			return err
		}
	}
	return k.Audit.ForgetEvents(ctx, partition, gone, purge)
}

// NewService makes a service; it does no I/O.
func NewService(log *jetlog.Log, notes *jetlog.Notes, cfg ServiceConfig) *Service {
	c := Config{
		Rules: cfg.Rules, Owners: cfg.Owners, Rate: cfg.Rate, Places: cfg.Places, Forget: cfg.Audit.ForgetEvent,
		Logger: cfg.Logger,
	}
	if cfg.Memory != nil {
		c.Documents = cfg.Memory
	}
	s := &Service{Eraser: New(On(log), notes, c)}
	cfg.Group = desk.New(notes).Members(s.Name(), nil)
	s.Feed = runner.NewTask(log, s.Eraser, cfg.Config)
	s.Retention = NewRetention(On(log), notes, RetentionConfig{
		Rules: cfg.Rules, Anonymous: cfg.Anonymous, Conversation: cfg.Conversation, Response: cfg.Response,
		Linked: cfg.Linked, Forget: cfg.Forget, Logger: cfg.Logger,
		Erase: func(ctx context.Context, sessionID string) error {
			_, err := cfg.Turns.EraseSession(ctx, sessionID, services.Erasure{Reason: "retention", By: "turnledger"})
			return err
		},
		Redact: func(ctx context.Context, sessionID string, turn uuid.UUID) error {
			redact := decide.Redact{TurnID: turn, Reason: "retention", RedactedBy: "turnledger"}
			_, err := cfg.Turns.RedactTurn(ctx, sessionID, redact)
			if errors.Is(err, decide.ErrSessionErased) {
				return nil
			}
			return err
		},
	})
	return s
}

// Run erases until ctx ends; then it returns nil.
func (s *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.Eraser.Run(ctx) })
	g.Go(func() error { return s.Feed.Run(ctx) })
	g.Go(func() error { return s.Retention.Run(ctx) })
	return g.Wait()
}
