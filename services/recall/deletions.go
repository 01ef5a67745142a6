package recall

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/follower"
)

// Deletions tracks the deletions that the log asks for and the memory has not confirmed. It follows the log from the
// forwarder's position, so it holds exactly the deletions that the forwarder has not done.
type Deletions struct {
	log  *jetlog.Log
	cfg  DeletionsConfig
	read []jetlog.Watermark

	mu   sync.Mutex
	open map[string][]events.Position
}

// DeletionsConfig of a Deletions. Done returns how far the forwarder is. Follower reads the log with others; by default
// the watch reads it by itself. Remind is the pause between two warnings about deletions that wait; a minute by
// default.
type DeletionsConfig struct {
	Done     func(ctx context.Context, partition int) (events.Position, error)
	Follower *follower.Follower
	Logger   *slog.Logger
	Remind   time.Duration
}

// NewDeletions makes a Deletions; it does no I/O.
func NewDeletions(log *jetlog.Log, cfg DeletionsConfig) *Deletions {
	cfg.Remind = cmp.Or(cfg.Remind, time.Minute)
	if cfg.Follower == nil {
		cfg.Follower = follower.Alone(log, follower.Config{Logger: cfg.Logger})
	}
	return &Deletions{
		log: log, cfg: cfg, read: make([]jetlog.Watermark, log.Partitions()), open: map[string][]events.Position{},
	}
}

// Run follows the log until ctx ends; then it returns nil.
func (d *Deletions) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.remind(ctx) })
	for k := range d.log.Partitions() {
		g.Go(func() error {
			return d.cfg.Follower.Read(ctx, follower.Following{
				Partition: k, Options: jetlog.TailOptions{HeadersOnly: true, MaxBatch: 4000},
				Watermark: &d.read[k], Read: d.noteAll, Pause: time.Second,
				Begin: func(ctx context.Context) (uint64, error) {
					at, err := d.cfg.Done(ctx, k)
					return at.Seq, err
				},
				Warn: func(err error) {
					d.cfg.Logger.Warn("the memory gives nothing until the log answers", "partition", k, "err", err)
				},
			})
		})
	}
	return g.Wait()
}

// noteAll notes the deletions among events.
func (d *Deletions) noteAll(ctx context.Context, batch []jetlog.Message) error {
	for _, m := range batch {
		if events.WithdrawalOf(m.Type()) != events.WithdrawsNothing {
			if err := d.note(ctx, m.Position); err != nil {
				return err
			}
		}
	}
	return nil
}

// note adds the deletion at a position to its scope, the same scope in which the forwarder will delete.
func (d *Deletions) note(ctx context.Context, at events.Position) error {
	e, found, err := d.log.At(ctx, at)
	if err != nil || !found {
		return err
	}
	scope := ""
	if f, ok := e.Fact.(*events.IdentityErased); ok {
		scope = IdentityScope(f.IdentityID)
	} else if e.SessionID != "" {
		s, err := session.UpToLink(e.SessionID, d.log.Session(ctx, e.SessionID, 0, at.Seq))
		if err != nil {
			return err
		}
		scope = Scope(s.Identity, e.SessionID)
	}
	if scope == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[scope] = append(d.open[scope], at)
	return nil
}

// Confirmed reports whether the memory has confirmed every deletion in a scope that stood in the log before the call.
// It blocks until the log has been read up to its end at the time of the call, or ctx ends.
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
	waiting, err := d.waiting(ctx, scope.Name)
	return err == nil && len(waiting) == 0, err
}

// waiting returns the deletions of a scope that the forwarder has not done. When none are left, it drops the scope,
// unless another deletion has arrived meanwhile.
func (d *Deletions) waiting(ctx context.Context, scope string) (waiting []events.Position, err error) {
	d.mu.Lock()
	open := d.open[scope]
	d.mu.Unlock()
	for _, at := range open {
		done, err := d.cfg.Done(ctx, at.Partition)
		if err != nil {
			return nil, err
		}
		if done.Seq < at.Seq {
			waiting = append(waiting, at)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(waiting) == 0 && len(d.open[scope]) == len(open) {
		delete(d.open, scope)
	}
	return waiting, nil
}

// Withheld returns how many scopes return nothing because a deletion in them waits for the forwarder.
func (d *Deletions) Withheld() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open)
}

// remind warns of deletions that have waited since the last reminder. A forwarder that works does them in seconds.
func (d *Deletions) remind(ctx context.Context) error {
	for before := map[string]bool{}; pause.For(ctx, d.cfg.Remind); {
		d.mu.Lock()
		scopes := slices.Collect(maps.Keys(d.open))
		d.mu.Unlock()
		now, late := map[string]bool{}, 0
		var oldest events.Position
		for _, scope := range scopes {
			waiting, err := d.waiting(ctx, scope)
			if err != nil || len(waiting) == 0 {
				continue
			}
			if now[scope] = true; before[scope] {
				late, oldest = late+1, waiting[0]
			}
		}
		if before = now; late > 0 {
			d.cfg.Logger.Warn("the memory withholds what it knows, since deletions in it wait for the forwarder: run "+
				"a process with the role audit, or see what holds it up with turnledger projections list and "+
				"turnledger deadletters list memory", "scopes", late, "position", oldest.String())
		}
	}
	return nil
}
