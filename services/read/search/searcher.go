// Package search finds turns by their meaning, by their words, or by both. The index of meanings says which turns are
// near; whether a turn may be shown, and its text, comes from the tables or the log (services.TurnFinder). So what was
// redacted before a search is never in its answer, whatever the index still holds.
package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/read"
)

// Index is what searches need of the index of meanings; *index.View implements it.
type Index interface {
	Nearest(ctx context.Context, half projections.Half, n index.Near) (
		[]projections.Hit, []events.Position, error)
	At(ctx context.Context) ([]events.Position, error)
}

// Log returns how far the log is, and whether it has no event after a sequence up to another.
type Log interface {
	read.Ends
	read.Gaps
}

// Config of a Searcher.
type Config struct {
	// Words searches by words. It returns projections.ErrUnavailable where there are no tables.
	Words services.Searcher
	// Turns are the truth of what the index has found.
	Turns services.TurnFinder
	// Index and Embedder are nil where no index is configured. Readable returns why the index may not be read.
	Index    Index
	Embedder index.Embedder
	Readable func() error
	// Patience bounds each call of the index and of the embedder, so that a search that names no mode still has time to
	// go by words; 3 s by default.
	Patience time.Duration
	// Cut cuts a question to what is embedded of it; nil: it is embedded whole.
	Cut func(string) string
	Log Log
	// Registry takes the metrics; nil: none.
	Registry prometheus.Registerer
}

const defaultPatience = 3 * time.Second

// Searcher implements services.Searcher and services.SimilarTurns. Safe for concurrent use.
type Searcher struct {
	cfg       Config
	takenBack prometheus.Counter
}

var (
	_ services.Searcher     = (*Searcher)(nil)
	_ services.SimilarTurns = (*Searcher)(nil)
)

// New makes a searcher; it does no I/O.
func New(cfg Config) *Searcher {
	s := &Searcher{cfg, prometheus.NewCounter(prometheus.CounterOpts{
		Name: "turnledger_index_hits_taken_back_total",
		Help: "Turns that the index found and that the tables or the log no longer show.",
	})}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(s.takenBack)
	}
	s.cfg.Patience = cmp.Or(cfg.Patience, defaultPatience)
	if s.cfg.Cut == nil {
		s.cfg.Cut = func(text string) string { return text }
	}
	return s
}

// Search implements services.Searcher. A search that names no mode falls back to words where the index does not answer.
func (s *Searcher) Search(ctx context.Context, ask services.SearchAsk) (services.SearchPage, error) {
	switch ask.Mode {
	case services.SearchWords:
		return s.cfg.Words.Search(ctx, ask)
	case services.SearchMeaning:
		return s.meaning(ctx, ask)
	case services.SearchHybrid:
		return s.hybrid(ctx, ask)
	case services.AnyMode:
	}
	if isWordsCursor(ask.Cursor) {
		return s.cfg.Words.Search(ctx, ask)
	}
	page, err := s.hybrid(ctx, ask)
	// What a later page of a hybrid search goes on with is no page of a search by words: its caller begins again.
	if errors.Is(err, services.ErrIndex) && ask.Cursor == "" {
		return s.cfg.Words.Search(ctx, ask)
	}
	return page, err
}

// ready returns why the index can't be asked.
func (s *Searcher) ready() error {
	if s.cfg.Index == nil {
		return services.ErrNoIndex
	}
	return s.cfg.Readable()
}

// unavailable marks an error of the index or the embedder.
func unavailable(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", services.ErrIndex, err)
}

// embed returns the vector of a query, once the index has applied these positions.
func (s *Searcher) embed(ctx context.Context, query string, least []events.Position) ([]float32, error) {
	if err := s.ready(); err != nil {
		return nil, unavailable(err)
	}
	if err := s.reached(ctx, least); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Patience)
	defer cancel()
	vectors, err := s.cfg.Embedder.Embed(ctx, []string{s.cfg.Cut(query)})
	if err == nil && vectors[0] == nil {
		err = fmt.Errorf("%w: it makes no vector of the query", projections.ErrEmbedder)
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return vectors[0], nil
}

// reached waits until the log and the index hold positions.
func (s *Searcher) reached(ctx context.Context, least []events.Position) error {
	waiting, cancel := context.WithTimeout(ctx, s.cfg.Patience)
	defer cancel()
	if err := read.Reached(ctx, waiting, s.cfg.Log, least); err != nil || len(least) == 0 {
		return err
	}
	for {
		at, err := s.cfg.Index.At(waiting)
		if err != nil {
			return unavailable(err)
		}
		behind := read.Behind(waiting, s.cfg.Log, at, least)
		if behind == nil {
			return nil
		}
		if !pause.For(waiting, read.PollPause) {
			return unavailable(fmt.Errorf("it has not applied %s yet", behind))
		}
	}
}

// lag returns how many events of the log the index has not applied yet.
func (s *Searcher) lag(ctx context.Context, at []events.Position) (behind uint64, err error) {
	heads := make([]events.Position, len(at))
	g, asking := errgroup.WithContext(ctx)
	for i, p := range at {
		g.Go(func() (err error) {
			heads[i], err = s.cfg.Log.Head(asking, p.Partition)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	for i, p := range at {
		behind += max(heads[i].Seq, p.Seq) - p.Seq
	}
	return behind, nil
}
