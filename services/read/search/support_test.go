package search_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/read/search"
)

// world is an index, tables and a log that hold what a test says. The index is right about nothing but the order:
// what may be shown is in turns.
type world struct {
	t *testing.T
	// near are the hits of the index, the nearest first, and at its positions.
	near []projections.Hit
	at   []events.Position
	// shuffled: hits with the same score come in another order at each call.
	shuffled bool
	// turns are the truth.
	turns map[uuid.UUID]services.TrueTurn
	words services.SearchPage
	heads []events.Position
	// still: the log has no event between what the index has and its heads.
	still bool
	// grow, where not nil, is what becomes of the log and the index by the next look at either.
	grow func()

	// The errors of the index, the embedder, the tables' words, the tables' turns, and of opening the index.
	index, embedder, wordly, finder, closed error
	// What hangs answers when its caller gives up.
	indexHangs, embedderHangs bool

	mu       sync.Mutex
	asked    []index.Near
	embedded []string
	byWords  []services.SearchAsk
	registry *prometheus.Registry
}

func newWorld(t *testing.T) *world {
	return &world{
		t: t, turns: map[uuid.UUID]services.TrueTurn{}, registry: prometheus.NewRegistry(),
		words: services.SearchPage{Mode: services.SearchWords},
		heads: []events.Position{{Partition: 0, Seq: 10}, {Partition: 1, Seq: 20}},
		at:    []events.Position{{Partition: 0, Seq: 10}, {Partition: 1, Seq: 20}},
	}
}

// searcher makes a searcher with the world's registry.
func (w *world) searcher() *search.Searcher { return w.with(w.registry) }

// another makes a searcher with a registry of its own.
func (w *world) another() *search.Searcher { return w.with(prometheus.NewRegistry()) }

// bare makes a searcher where no index is configured.
func (w *world) bare() *search.Searcher {
	return search.New(search.Config{Words: worldWords{w}, Turns: worldTurns{w}, Log: worldLog{w}})
}

func (w *world) with(registry *prometheus.Registry) *search.Searcher {
	return search.New(search.Config{
		Words: worldWords{w}, Turns: worldTurns{w}, Index: worldIndex{w}, Embedder: worldEmbedder{w},
		Readable: func() error { return w.closed }, Log: worldLog{w}, Registry: registry,
		Patience: 50 * time.Millisecond,
		Cut:      func(text string) string { return text[:min(len(text), 20)] },
	})
}

func id(n int) uuid.UUID {
	var out uuid.UUID
	binary.BigEndian.PutUint32(out[12:], uint32(n))
	return out
}

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// add adds a turn to the truth, and to the end of what the index finds.
func (w *world) add(n int, score float64, half projections.Half) {
	w.near = append(w.near, projections.Hit{
		TurnID: id(n), SessionID: "s", IdentityID: "ada", Half: half, Score: score,
	})
	w.turns[id(n)] = services.TrueTurn{
		Turn: session.Turn{
			ID: id(n), CreatedAt: began.Add(time.Duration(n) * time.Second),
			Question: &events.Question{QuestionNeutral: fmt.Sprint("question ", n)},
			Answer: &events.Answer{
				AnswerNeutral: fmt.Sprint("answer ", n), AnswerTranslated: fmt.Sprint("réponse ", n),
			},
		},
		SessionID: "s", IdentityID: "ada", Position: events.Position{Seq: uint64(n)},
	}
}

type worldIndex struct{ *world }

// Nearest implements search.Index.
func (w worldIndex) Nearest(ctx context.Context, half projections.Half, n index.Near) (
	[]projections.Hit, []events.Position, error,
) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n.Half = half
	w.asked = append(w.asked, n)
	if w.indexHangs {
		<-ctx.Done()
		return nil, nil, projections.Unavailable(ctx.Err())
	}
	if w.index != nil {
		return nil, nil, w.index
	}
	near := slices.DeleteFunc(slices.Clone(w.near), func(h projections.Hit) bool {
		return half != "" && h.Half != half
	})
	if w.shuffled {
		rand.Shuffle(len(near), func(i, j int) { near[i], near[j] = near[j], near[i] })
		slices.SortStableFunc(near, func(a, b projections.Hit) int { return cmp.Compare(b.Score, a.Score) })
	}
	return near[:min(n.Limit, len(near))], w.at, nil
}

// At implements search.Index.
func (w worldIndex) At(context.Context) ([]events.Position, error) {
	w.look()
	return w.at, w.index
}

type worldEmbedder struct{ *world }

// Embed implements index.Embedder.
func (w worldEmbedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.embedded = append(w.embedded, texts...)
	if w.embedderHangs {
		<-ctx.Done()
		return nil, errors.Join(projections.ErrEmbedder, ctx.Err())
	}
	return [][]float32{{1}}, w.embedder
}

// Model implements index.Embedder.
func (worldEmbedder) Model() string { return "m" }

// Dimensions implements index.Embedder.
func (worldEmbedder) Dimensions(context.Context) (int, error) { return 1, nil }

type worldTurns struct{ *world }

// FindTurns implements services.TurnFinder.
func (w worldTurns) FindTurns(
	_ context.Context, refs []services.TurnRef,
) (map[uuid.UUID]services.TrueTurn, error) {
	out := map[uuid.UUID]services.TrueTurn{}
	for _, r := range refs {
		if t, ok := w.turns[r.TurnID]; ok {
			out[r.TurnID] = t
		}
	}
	return out, w.finder
}

type worldWords struct{ *world }

// Search implements services.Searcher.
func (w worldWords) Search(_ context.Context, ask services.SearchAsk) (services.SearchPage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byWords = append(w.byWords, ask)
	return w.words, w.wordly
}

type worldLog struct{ *world }

// Partitions implements search.Log.
func (w worldLog) Partitions() int { return len(w.heads) }

// Head implements search.Log.
func (w worldLog) Head(_ context.Context, partition int) (events.Position, error) {
	w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heads[partition], nil
}

// Still implements search.Log.
func (w worldLog) Still(context.Context, int, uint64, uint64) (bool, error) { return w.still, nil }

func (w *world) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.grow != nil {
		w.grow()
	}
}

// turnsOf returns the numbers of the turns of hits.
func turnsOf(hits []projections.Hit) (out []int) {
	for _, h := range hits {
		out = append(out, int(binary.BigEndian.Uint32(h.TurnID[12:])))
	}
	return out
}
