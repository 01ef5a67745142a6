// Package fleet runs the views of one process: it feeds them, keeps readers from those that may not be read, rebuilds
// and verifies them, and reports their status. It knows no view by name: it treats all alike.
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
	// Config is how views are fed, but for what their entries say.
	runner.Config
	Log *jetlog.Log
	// Known are the names of views that another process may feed and this one not. A question for such a view is
	// answered by projections.ErrNotFed.
	Known []string
}

// Entry is a view as it joins a fleet.
type Entry struct {
	View projections.View
	// Generations of the view; nil where nothing is served from it, so that nothing is to be rebuilt.
	Generations projections.Rebuildable
	// Open makes the view's store ready, and is tried again while its error is projections.ErrUnavailable; nil:
	// the store is ready.
	Open func(context.Context) error
	// Feeds and Reads say what this process does with the view. With neither it only reports the view's status.
	Feeds, Reads bool
	// InMemory: the rows end with the process, and so do the dead letters. This process must feed the view (Feeds);
	// no other can.
	InMemory bool
	// Store names what must answer for the view to be read, and Reason says that it does not; both are empty
	// where nothing has to.
	Store, Reason string
	// Start, MaxBatch and Carry are described at runner.Config.
	Start    func(ctx context.Context, partition int) (uint64, error)
	MaxBatch int
	Carry    func(ctx context.Context, partition int, keep projections.Keep) error
	// Close ends the connections to the view's store; nil: there are none.
	Close func()
}

// Fleet is the views of one process, and the effects that are listed beside them. Views are added before Run. Safe for
// concurrent use from then on.
type Fleet struct {
	cfg   Config
	desk  *desk.Desk
	views []*Member
	// feeds, letters and places are in the order in which they were added, those beside the views among them.
	feeds   []feed
	letters []projections.DeadLetterQueue
	places  []Place
	begun   chan *rebuild.Rebuild
}

// feed is a runner that this process runs; its view is nil where it feeds an effect or a task.
type feed struct {
	*runner.Runner
	view *Member
}

// New makes an empty fleet; it does no I/O.
func New(cfg Config) *Fleet {
	return &Fleet{cfg: cfg, desk: desk.Of(cfg.Log), begun: make(chan *rebuild.Rebuild)}
}

// Desk returns the desk that keeps the dead letters of views and effects whose stores outlive the process.
func (f *Fleet) Desk() *desk.Desk { return f.desk }

// Add takes a view in. It tries the view's store once: if the store answers, the view serves from the first request on.
// It returns only errors that a retry can't mend.
func (f *Fleet) Add(ctx context.Context, e Entry) (*Member, error) {
	if e.InMemory && !e.Feeds {
		return nil, fmt.Errorf("the view %s is in memory, so this process must feed it: set Feeds", e.View.Name())
	}
	m := &Member{Entry: e, fleet: f, desk: f.desk}
	if e.InMemory {
		m.desk = desk.InMemory()
	}
	letters := m.desk.Queue(source{e.View, m}, f.cfg.Log, f.cfg.Rules)
	f.views = append(f.views, m)
	f.places = append(f.places, Place{f.cfg.Log, e.View.Name(), m.Applied})
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

// source is a view whose dead letters can be asked for once it is open.
type source struct {
	projections.View
	member *Member
}

// Served implements desk.Source.
func (s source) Served(ctx context.Context) (projections.Served, error) {
	if err := s.member.open(); err != nil {
		return projections.Served{}, err
	}
	return s.View.Served(ctx)
}

// Beside lists what follows the log and is no view: its runner, its dead letters, and as a place that erasures
// reach, what it has applied. Each may be nil.
func (f *Fleet) Beside(name string, r *runner.Runner, letters projections.DeadLetterQueue,
	applied func(context.Context, int) (events.Position, error),
) {
	if r != nil {
		f.feeds = append(f.feeds, feed{Runner: r})
	}
	if letters != nil {
		f.letters = append(f.letters, letters)
	}
	if applied != nil {
		f.places = append(f.places, Place{f.cfg.Log, name, applied})
	}
}

// Run feeds the views until ctx ends. The effects that Beside has added run by themselves.
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

func (f *Fleet) view(name string) *Member {
	for _, m := range f.views {
		if m.View.Name() == name {
			return m
		}
	}
	return nil
}
