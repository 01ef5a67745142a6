package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections/fleet"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/projections/index/weaviate"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/model/embeddings"
	"github.com/turnledger/turnledger/services/read/search"
)

// meanings are the index of a process, and what makes vectors for it.
type meanings struct {
	*fleet.ManagedView
	view     *index.View
	embedder *embeddings.Client
	scrub    index.Scrub
}

// placeFiles is the place of receipts that says that no file of the index holds what was erased.
const placeFiles = "index-files"

const (
	// indexBatch bounds the events of one batch, since their texts are embedded within the time of a batch.
	indexBatch = 1000
	// indexLag is how long a turn may wait for the index while the processors are taken: less than a search waits for
	// its min_position.
	indexLag = 2 * time.Second
)

func (a *app) openIndex(ctx context.Context) error {
	if a.cfg.WeaviateURL == "" {
		return nil
	}
	at := a.cfg.Weaviate()
	store, err := weaviate.New(at)
	if err != nil {
		return err
	}
	notes, err := a.store.Log.Notes(ctx)
	if err != nil {
		return err
	}
	c := a.cfg.Embeddings()
	c.Registry = a.registry
	m := &meanings{embedder: embeddings.New(c)}
	m.view = index.New(index.Config{
		Store: store.Store(), Embedder: m.embedder, Notes: notes, Log: a.store.Log,
		Partitions: a.store.Log.Partitions(), Rules: a.cfg.Rules(), Anonymous: a.cfg.IndexAnonymous,
		WithoutTexts: at.WithoutTexts, MaxChars: a.cfg.EmbedMaxChars, Registry: a.registry, Logger: a.logger,
		Erased: func(ctx context.Context, partition int) (events.Position, error) {
			return eraser.Forgotten(ctx, a.store.Log, notes, partition)
		},
	})
	entry := fleet.Entry{
		View: m.view, Rebuildable: m.view, Open: m.view.Look, Close: store.Close,
		Feeding: runner.Feeding{
			MaxBatch: indexBatch, Rest: auditRest, Lag: indexLag, Busy: (&runner.Processors{}).Taken,
		},
		Feeds: a.roles.has(roleIndex), Reads: a.reads(),
		Outdated: m.view.Outdated, Final: m.view.Settled, Store: "weaviate",
		Reason: "Weaviate does not answer, or holds no index yet",
	}
	if entry.Feeds {
		entry.Open = func(ctx context.Context) error {
			err := m.view.Prepare(ctx)
			if index.WaitsForOperator(err) {
				return nil // the runner says so, and the view can be rebuilt
			}
			return err
		}
	}
	m.scrub = index.Scrub{View: m.view, After: a.cfg.IndexScrub, Rebuild: func(ctx context.Context) error {
		_, err := a.views.Rebuild(ctx, index.Name)
		return err
	}}
	if m.ManagedView, err = a.views.Add(ctx, entry); err != nil {
		return err
	}
	a.views.AddWorker(fleet.Worker{Name: placeFiles, Applied: m.view.Files})
	a.views.index = m
	return nil
}

// run keeps the index clean until ctx ends.
func (m *meanings) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.view.Run(ctx) })
	if m.scrub.After > 0 {
		g.Go(func() error { return m.scrub.Run(ctx) })
	}
	return g.Wait()
}

// readsIndex reports whether an index is configured, and this process opens it.
func (a *app) readsIndex() bool {
	m := a.views.index
	return m != nil && (m.Feeds || m.Reads)
}

// openSearcher makes what finds turns by words in the audit tables, and by meaning in the index.
func (a *app) openSearcher() {
	c := search.Config{Words: a.lists, Turns: a.lists, Log: a.store.Log, Registry: a.registry}
	if m := a.views.index; a.readsIndex() {
		c.Index, c.Embedder, c.Readable, c.Cut = m.view, m.embedder, m.Readable, m.view.Query
	}
	a.searcher = search.New(c)
}

// steppedSearcher is the searcher of the API.
func (a *app) steppedSearcher() search.Stepped {
	usual := services.SearchWords
	if a.readsIndex() {
		usual = services.SearchHybrid
	}
	return search.Stepped{Searcher: a.searcher, SimilarTurns: a.searcher, Usual: usual}
}
