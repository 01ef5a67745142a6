package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/follower"
)

// Name of the view.
const Name = "index"

// Config of a View.
type Config struct {
	Store    Store
	Embedder Embedder
	// Notes keep the checkpoints.
	Notes desk.Notes
	// Log is read where a batch does not hold all of a turn, and as a whole to compare the index with it.
	Log        Log
	Partitions int
	Rules      session.Rules
	// Anonymous: turns of sessions without an identity are in the index, too.
	Anonymous bool
	// WithoutTexts: the store keeps no texts of turns.
	WithoutTexts bool
	// MaxChars bounds the characters of a half that its vector is made of; 8,000 by default.
	MaxChars int
	// Erased returns the position up to which the log itself has forgotten what was erased. A generation that begins
	// there holds no text that was erased before. nil: nothing is known.
	Erased func(ctx context.Context, partition int) (events.Position, error)
	// Registry takes the metrics; nil: none.
	Registry prometheus.Registerer
	Logger   *slog.Logger
	// Now is the clock by which pauses end; time.Now by default.
	Now func() time.Time
}

// Log is what an index reads. A jetlog.Log is one.
type Log interface {
	projections.LogReader
	follower.Log
}

const defaultMaxChars = 8000

// View is the index of one log. Safe for concurrent use.
type View struct {
	cfg     Config
	metrics *metrics
	mu      sync.Mutex
	// claims are the partitions that this process has claimed last.
	claims map[int]*claim
	// embedAgain is when the embedder is asked again after it failed.
	embedAgain time.Time
	// compareAgain is when the lengths of vectors are compared again, and otherLength the generation whose vectors had
	// another length than the embedder's; 0: none.
	compareAgain time.Time
	otherLength  uint64
	// found is when the store was last seen to look at the vectors that it holds.
	found time.Time

	// sweeping is held by a sweep. It folds the log into what the store has to hold, by partitions, and keeps that for
	// the next one. deleted says that a batch has deleted objects.
	sweeping sync.Mutex
	passes   uint32
	folds    map[int]*fold
	reader   *follower.Follower
	deleted  chan struct{}
}

var (
	_ projections.View        = (*View)(nil)
	_ projections.Rebuildable = (*View)(nil)
)

// New makes a view; it does no I/O.
func New(cfg Config) *View {
	cfg.MaxChars = cmp.Or(cfg.MaxChars, defaultMaxChars)
	cfg.Rules.Slim = false
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &View{
		cfg: cfg, metrics: newMetrics(cfg.Registry), claims: map[int]*claim{}, folds: map[int]*fold{}, passes: 1,
		deleted: make(chan struct{}, 1),
		reader:  follower.Alone(cfg.Log, follower.Config{Rules: cfg.Rules, Bytes: foldBytes, Loads: 1}),
	}
}

// Name implements projections.View.
func (v *View) Name() string { return Name }

// Prepare makes the first generation if there is none, for a process that feeds the view.
func (v *View) Prepare(ctx context.Context) error {
	p, _, err := v.ensure(ctx, whereItIs)
	if err == nil && p.Model != v.cfg.Embedder.Model() {
		v.cfg.Logger.Warn("searches by meaning are refused, and new turns are indexed without vectors",
			"filled_by", p.Model, "configured", v.cfg.Embedder.Model(), "err", projections.ErrOtherModel)
	}
	if err == nil && p.Anonymous == some {
		v.cfg.Logger.Warn("searches by meaning across identities are refused", "err", projections.ErrSomeAnonymous)
	}
	if err == nil && p.Texts == some {
		v.cfg.Logger.Warn("readers of the store find texts of some turns", "err", projections.ErrSomeTexts)
	}
	return err
}

// Outdated returns why the view has to be rebuilt though it follows the log, as far as a process that feeds it knows;
// nil if it need not be.
func (v *View) Outdated(ctx context.Context) error {
	p, _, err := v.pointer(ctx, v.cfg.Notes)
	if err != nil || p.Generation == 0 {
		return nil //nolint:nilerr // nothing is known
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case p.Model != v.cfg.Embedder.Model(), p.Generation == v.otherLength:
		return projections.ErrOtherModel
	case p.Anonymous == some:
		return projections.ErrSomeAnonymous
	case p.Texts == some:
		return projections.ErrSomeTexts
	}
	return nil
}

// Look fails while there is no generation to read, for a process that only reads.
func (v *View) Look(ctx context.Context) error {
	p, _, err := v.served(ctx)
	if err != nil {
		return err
	}
	there, err := v.holds(ctx, p)
	if err == nil && !there {
		err = projections.Unavailable(errNone)
	}
	return err
}

// Served implements projections.View.
func (v *View) Served(ctx context.Context) (projections.Served, error) {
	notes := v.cfg.Notes
	p, _, err := v.pointer(ctx, notes)
	if err != nil || p.Generation == 0 {
		return projections.Served{}, err
	}
	out := projections.Served{Store: p.Store, Generation: p.Generation}
	for k := range v.cfg.Partitions {
		var at place
		revision, err := notes.Read(ctx, p.key("at", k), &at)
		if err != nil {
			return out, err
		}
		if revision != 0 {
			out.At = append(out.At, at.checkpoint(p, k, 0))
		}
	}
	return out, nil
}

// Applied implements projections.Projection. A store that has lost the collection has applied nothing.
func (v *View) Applied(ctx context.Context, partition int) (events.Position, error) {
	out := events.Position{Partition: partition}
	p, notes, err := v.served(ctx)
	if err != nil {
		return out, err
	}
	if there, err := v.holds(ctx, p); err != nil || !there {
		return out, err
	}
	var at place
	if _, err := notes.Read(ctx, p.key("at", partition), &at); err != nil {
		return out, err
	}
	out.Seq = at.Seq
	return out, nil
}

// Settled returns the position up to which nothing that was deleted is found any more, whoever may still write: behind
// the last deletion a pass has compared the store with the log, when no request of a runner that was taken over could
// arrive any more.
func (v *View) Settled(ctx context.Context, partition int) (events.Position, error) {
	out := events.Position{Partition: partition}
	p, notes, err := v.served(ctx)
	if err != nil {
		return out, err
	}
	if there, err := v.holds(ctx, p); err != nil || !there {
		return out, err
	}
	var at place
	_, err = notes.Read(ctx, p.key("at", partition), &at)
	if out.Seq = at.Settled; at.Settled >= at.Deleted {
		out.Seq = at.Seq
	}
	return out, err
}

// served returns the pointer to the served generation. It fails with ErrUnavailable while there is none.
func (v *View) served(ctx context.Context) (pointer, desk.Notes, error) {
	notes := v.cfg.Notes
	p, _, err := v.pointer(ctx, notes)
	if err == nil && p.Generation == 0 {
		err = projections.Unavailable(errNone)
	}
	return p, notes, err
}

var (
	errNone = errors.New("no process with the role index has made the index yet")
	errLost = errors.New("the store has lost the index")
	// errElsewhere: a store has an index that was served before the one that is served in another store.
	errElsewhere = errors.New("the one that is served is in another store")
	errAnother   = errors.New("the index of another log")
)

// WaitsForOperator reports whether an error of Prepare says that the store has an index which only an operator can tell
// to be unused. A rebuild puts the log's index in its place.
func WaitsForOperator(err error) bool {
	return errors.Is(err, errElsewhere) || errors.Is(err, errAnother)
}

// holds reports whether the store has the collection of a generation, and not one that it made by itself. It fails if
// the store lacks it and has one that was served before it: then another process uses another store.
func (v *View) holds(ctx context.Context, p pointer) (bool, error) {
	all, err := v.cfg.Store.List(ctx)
	if err != nil || slices.Contains(all, p.collection()) {
		return err == nil, err
	}
	for _, c := range all {
		if slices.ContainsFunc(p.Former, func(id string) bool { return strings.HasPrefix(c.Mark, markBegins+id) }) {
			return false, projections.Unavailable(fmt.Errorf(
				"this store has an index of the log (%s), but %w: all processes need the same "+
					"TURNLEDGER_WEAVIATE_URL. If the index has to be in this store, since it was put back to an older "+
					"copy, say, run turnledger projections rebuild index", c.Name, errElsewhere))
		}
	}
	return false, nil
}

func failed(err error, attempted string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("index: %s: %w", fmt.Sprintf(attempted, args...), err)
}
