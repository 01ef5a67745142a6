package memory

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
)

// Deletions knows of the deletions that the log asks for and the memory has not
// confirmed. It follows the log from where the forwarder is, so what it holds is what
// the forwarder has not done.
type Deletions struct {
	log    *jetlog.Log
	rules  conversation.Rules
	done   func(ctx context.Context, partition int) (events.Position, error)
	logger *slog.Logger
	read   []jetlog.Watermark

	mu   sync.Mutex
	open map[string][]events.Position
}

// NewDeletions makes the watch; done tells how far the forwarder is.
func NewDeletions(log *jetlog.Log, rules conversation.Rules, done func(ctx context.Context, partition int) (events.Position, error), logger *slog.Logger) *Deletions {
	rules.Slim = true
	return &Deletions{log: log, rules: rules, done: done, logger: logger, read: make([]jetlog.Watermark, log.Partitions()), open: map[string][]events.Position{}}
}

// Run follows the log until ctx ends; then it returns nil.
func (d *Deletions) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for k := range d.log.Partitions() {
		g.Go(func() error {
			for {
				err := d.follow(ctx, k)
				switch {
				case ctx.Err() != nil:
					return nil
				case errors.Is(err, jetlog.ErrStream), errors.Is(err, jetlog.ErrClosed):
					return err
				}
				d.logger.Warn("the memory gives nothing until the log answers", "partition", k, "err", err)
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	return g.Wait()
}

func (d *Deletions) follow(ctx context.Context, k int) error {
	from := d.read[k].At()
	if from == 0 {
		at, err := d.done(ctx, k)
		if err != nil {
			return err
		}
		from = at.Seq
	}
	tail, err := d.log.Tail(ctx, k, from, jetlog.TailOptions{HeadersOnly: true, MaxBatch: 4000})
	if err != nil {
		return err
	}
	defer tail.Close()
	d.read[k].Advance(from)
	for {
		batch, err := tail.Next(ctx)
		if err != nil {
			return err
		}
		for _, m := range batch {
			switch m.Type() {
			case events.TypeTurnRedacted, events.TypeTurnCorrected, events.TypeSessionErased, events.TypeIdentityErased:
				if err := d.note(ctx, m.Position); err != nil {
					return err
				}
			}
		}
		d.read[k].Advance(batch[len(batch)-1].Position.Seq)
	}
}

// note opens a deletion in the scope that the forwarder will delete in.
func (d *Deletions) note(ctx context.Context, at events.Position) error {
	e, found, err := d.log.At(ctx, at)
	if err != nil || !found {
		return err
	}
	scope := ""
	if f, ok := e.Fact.(*events.IdentityErased); ok {
		scope = Scope(f.IdentityID, "")
	} else if e.SessionID != "" {
		state := conversation.New(e.SessionID, d.rules)
		for r, err := range d.log.Session(ctx, e.SessionID, 0, at.Seq) {
			if err != nil {
				return err
			}
			state.Fold(r)
		}
		scope = Scope(state.Identity, e.SessionID)
	}
	if scope == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[scope] = append(d.open[scope], at)
	return nil
}

// Confirmed tells whether the memory has confirmed every deletion in a scope that stood
// in the log before the call. It blocks until the log has been read so far, or ctx ends.
func (d *Deletions) Confirmed(ctx context.Context, scope Scoped) (bool, error) {
	for k := range d.read {
		head, err := d.log.Head(ctx, k)
		if err != nil {
			return false, err
		}
		if err := d.log.Reached(ctx, &d.read[k], head); err != nil {
			return false, err
		}
	}
	d.mu.Lock()
	waiting := d.open[scope.Name]
	d.mu.Unlock()
	var still []events.Position
	for _, at := range waiting {
		done, err := d.done(ctx, at.Partition)
		if err != nil {
			return false, err
		}
		if done.Seq < at.Seq {
			still = append(still, at)
		}
	}
	d.settle(scope.Name, waiting, len(waiting)-len(still))
	return len(still) == 0, nil
}

// settle lets the deletions of a scope go that are done, all at once.
func (d *Deletions) settle(scope string, waiting []events.Position, done int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if done > 0 && done == len(waiting) && len(d.open[scope]) == len(waiting) {
		delete(d.open, scope)
	}
}
