// Package fleet runs the views of one process: it feeds them, keeps readers away from views that may not be read,
// rebuilds and verifies them, and reports their status. It treats all views alike, and knows no view by name.
package fleet

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/rebuild"
	"github.com/turnledger/turnledger/projections/runner"
)

// ErrUnopened says that the view's store has not answered yet.
var ErrUnopened = errors.New("the view is not open yet")

// Config of a Fleet.
type Config struct {
	// Config is how views are fed, unless their entries say otherwise.
	runner.Config
	Log *jetlog.Log
	// ViewNames are the names of all views, also of those that only another process may feed. A request for such a view
	// fails with projections.ErrNotFed.
	ViewNames []string
}

// Entry describes a view that joins a fleet.
type Entry struct {
	View projections.View
	// Rebuildable is the same view, if it can be rebuilt while it is read; nil if it serves no reads. A view without it
	// can't be verified either.
	Rebuildable projections.Rebuildable
	// Open prepares the view's store. It is tried again while its error is projections.ErrUnavailable. nil: the store
	// is ready.
	Open func(context.Context) error
	// Feeds and Reads say what this process does with the view. If both are false, it only reports the view's status.
	Feeds, Reads bool
	// InMemory: rows and dead letters end with the process. Only this process can feed the view, so Feeds must be set.
	InMemory bool
	// Store names the store that must answer before the view can be read, and Reason says that it does not answer. Both
	// are empty if there is no such store.
	Store, Reason string
	// Outdated returns why the view has to be rebuilt though it follows the log; nil if it need not be. It is nil for a
	// view that never has to be.
	Outdated func(context.Context) error
	// Letters bounds the dead letters of a partition; beyond it the oldest are removed. 0: no bound.
	Letters int
	runner.Feeding
	// Final returns the position up to which what was deleted does not come back; nil: what is applied does not.
	Final func(ctx context.Context, partition int) (events.Position, error)
	// Close closes the connections to the view's store; nil: there are none.
	Close func()
}

// Fleet is the views of one process, with the effects that are listed beside them. All views are added before Run.
// After that it is safe for concurrent use.
type Fleet struct {
	cfg   Config
	desk  *desk.Desk
	views []*ManagedView
	// feeds, letters and places are in the order in which they were added, and include the effects beside the views.
	feeds         []feed
	letters       []projections.DeadLetterQueue
	places        []Place
	workers       []string
	begunRebuilds chan *rebuild.Rebuild
}

// feed is a runner of this process. Its view is nil if it feeds an effect or a task.
type feed struct {
	*runner.Runner
	view *ManagedView
}

// New makes an empty fleet; it does no I/O.
func New(cfg Config) *Fleet {
	return &Fleet{cfg: cfg, desk: desk.Of(cfg.Log), begunRebuilds: make(chan *rebuild.Rebuild)}
}

// Desk returns the desk that keeps the dead letters of views and effects whose stores outlive the process.
func (f *Fleet) Desk() *desk.Desk { return f.desk }

// Add adds a view. It tries the view's store once: if the store answers, the view serves from the first request on. It
// returns only errors that a retry can't mend.
func (f *Fleet) Add(ctx context.Context, e Entry) (*ManagedView, error) {
	if e.InMemory && !e.Feeds {
		return nil, fmt.Errorf("the view %s is in memory, so this process must feed it: set Feeds", e.View.Name())
	}
	m := &ManagedView{Entry: e, fleet: f, desk: f.desk.Bounded(e.Letters)}
	if e.InMemory {
		m.desk = desk.InMemory()
	}
	letters := m.desk.Queue(source{e.View, m}, f.cfg.Log, f.cfg.Rules)
	f.views = append(f.views, m)
	f.places = append(f.places, Place{f.cfg.Log, e.View.Name(), m.final})
	f.letters = append(f.letters, letters)
	if !e.Feeds && !e.Reads {
		return m, nil
	}
	if e.Feeds {
		m.feed = runner.New(f.cfg.Log, e.View, m.feeding())
		f.feeds = append(f.feeds, feed{m.feed, m})
	}
	if err := m.tryOpen(ctx); err != nil && !errors.Is(err, projections.ErrUnavailable) {
		return nil, err
	}
	return m, nil
}

// DeadLetters returns the queues of all views, and of the effects beside them.
func (f *Fleet) DeadLetters() []projections.DeadLetterQueue { return f.letters }

// source is a view whose dead letters can be listed once the view is open.
type source struct {
	projections.View
	managed *ManagedView
}

// Served implements desk.Source.
func (s source) Served(ctx context.Context) (projections.Served, error) {
	if err := s.managed.open(); err != nil {
		return projections.Served{}, err
	}
	return s.View.Served(ctx)
}

// Worker is an effect or a task: it follows the log and is no view. Each field but Name may be nil.
type Worker struct {
	Name    string
	Runner  *runner.Runner
	Letters projections.DeadLetterQueue
	// Applied makes the worker a place that erasures reach.
	Applied func(ctx context.Context, partition int) (events.Position, error)
}

// AddWorker lists a worker beside the views.
func (f *Fleet) AddWorker(other Worker) {
	f.workers = append(f.workers, other.Name)
	if other.Runner != nil {
		f.feeds = append(f.feeds, feed{Runner: other.Runner})
	}
	if other.Letters != nil {
		f.letters = append(f.letters, other.Letters)
	}
	if other.Applied != nil {
		f.places = append(f.places, Place{f.cfg.Log, other.Name, other.Applied})
	}
}

// Run feeds the views until ctx ends. Workers run by themselves.
func (f *Fleet) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, m := range f.views {
		if m.Feeds || m.Reads {
			g.Go(func() error { return m.run(ctx) })
		}
	}
	g.Go(func() error { return f.runRebuilds(ctx) })
	return g.Wait()
}

// Close closes the views.
func (f *Fleet) Close() {
	for _, m := range f.views {
		if m.Close != nil {
			m.Close()
		}
	}
}

func (f *Fleet) view(name string) *ManagedView {
	for _, m := range f.views {
		if m.View.Name() == name {
			return m
		}
	}
	return nil
}
