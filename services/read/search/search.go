package search

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

// meaning searches by meaning alone.
func (s *Searcher) meaning(ctx context.Context, ask services.SearchAsk) (page services.SearchPage, err error) {
	behind, err := parseRank(ask.Cursor, meaningMark)
	if err != nil {
		return page, err
	}
	vector, err := s.embed(ctx, ask.Query, ask.MinPosition)
	if err != nil {
		return page, err
	}
	out, err := s.nearest(ctx, vector, ask.SearchFilter, behind, ask.Limit, firstAlike)
	if err != nil {
		return page, err
	}
	return s.page(ctx, services.SearchMeaning, out.hits, out.at, ask.Limit, meaningMark)
}

// page cuts hits to a page.
func (s *Searcher) page(
	ctx context.Context, mode services.SearchMode, hits []projections.Hit, at []events.Position, limit int, mark byte,
) (page services.SearchPage, err error) {
	page = services.SearchPage{Mode: mode, Hits: hits, Positions: at}
	if len(hits) > limit {
		page.Hits = hits[:limit]
		last := page.Hits[limit-1]
		page.NextCursor = rank{last.Score, last.TurnID}.cursor(mark)
	}
	for i := range page.Hits {
		page.Hits[i].Score = score(page.Hits[i])
	}
	page.Lag, err = s.lag(ctx, at)
	return page, err
}

// hybrid fuses the first hits by words and by meaning.
func (s *Searcher) hybrid(ctx context.Context, ask services.SearchAsk) (page services.SearchPage, err error) {
	behind, err := parseRank(ask.Cursor, hybridMark)
	if err != nil {
		return page, err
	}
	vector, err := s.embed(ctx, ask.Query, ask.MinPosition)
	if err != nil {
		return page, err
	}
	var near found
	var words services.SearchPage
	mode, least := services.SearchHybrid, ask.MinScore
	ask.MinScore, ask.Cursor = 0, ""
	g, searching := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		near, err = s.nearest(searching, vector, ask.SearchFilter, firstRank, fused, anyAlike)
		return err
	})
	g.Go(func() (err error) {
		byWords := ask
		byWords.Limit = fused
		words, err = s.cfg.Words.Search(searching, byWords)
		switch { // what leaves the meaning
		case errors.Is(err, decide.ErrInvalid): // a query of a language without words that can be told apart
			err = nil
		case errors.Is(err, projections.ErrUnavailable): // tables that don't answer
			mode, err = services.SearchMeaning, nil
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return page, err
	}
	near.hits = near.hits[:min(len(near.hits), fused)]
	hits := slices.DeleteFunc(fuse(near.ranked(ask.Query, words.Hits)), func(h projections.Hit) bool {
		return h.Score < least || !behind.before(h.Score, h.TurnID)
	})
	return s.page(ctx, mode, hits, near.at, ask.Limit, hybridMark)
}

// Similar implements services.SimilarTurns.
func (s *Searcher) Similar(ctx context.Context, ask services.SimilarAsk) ([]services.SimilarHit, error) {
	return s.similar(ctx, ask, projections.QuestionHalf)
}

// Neighbours returns the turns of an identity whose question or answer is nearest to a text, at most limit.
func (s *Searcher) Neighbours(
	ctx context.Context, identityID, text string, limit int,
) ([]services.SimilarHit, error) {
	return s.similar(ctx, services.SimilarAsk{Question: text, IdentityID: identityID, Limit: limit}, "")
}

func (s *Searcher) similar(
	ctx context.Context, ask services.SimilarAsk, in projections.Half,
) (hits []services.SimilarHit, err error) {
	vector, err := s.embed(ctx, ask.Question, ask.MinPosition)
	if err != nil {
		return nil, err
	}
	f := projections.SearchFilter{In: in, IdentityID: ask.IdentityID, MinScore: ask.MinScore}
	out, err := s.nearest(ctx, vector, f, firstRank, ask.Limit, anyAlike)
	if err != nil {
		return nil, err
	}
	for _, h := range out.hits[:min(len(out.hits), ask.Limit)] {
		t := out.true[h.TurnID]
		h.Score = score(h)
		hits = append(hits, services.SimilarHit{
			Hit: h, Question: textOf(&t, projections.QuestionHalf, ""), Answer: textOf(&t, projections.AnswerHalf, ""),
		})
	}
	return hits, nil
}

// rank is the place of a hit in an order: by score, then by id.
type rank struct {
	score float64
	turn  uuid.UUID
}

// firstRank is before all hits.
var firstRank = rank{score: math.Inf(1)}

// before reports whether a hit comes behind the rank.
func (r rank) before(score float64, turn uuid.UUID) bool {
	return score < r.score || score == r.score && slices.Compare(turn[:], r.turn[:]) > 0
}

func (r rank) admits(n projections.Hit) bool { return r.before(n.Score, n.TurnID) }

// The marks of the cursors of both modes. A cursor of words has another form.
const (
	meaningMark = 'm'
	hybridMark  = 'h'
)

func (r rank) cursor(mark byte) string {
	raw := binary.BigEndian.AppendUint64([]byte{mark}, math.Float64bits(r.score))
	return base64.RawURLEncoding.EncodeToString(append(raw, r.turn[:]...))
}

var errCursor error = &decide.Invalid{Field: "cursor", Why: "must be the next_cursor of the page before"}

func parseRank(cursor string, mark byte) (rank, error) {
	if cursor == "" {
		return firstRank, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) != 1+8+16 || raw[0] != mark {
		return rank{}, errCursor
	}
	r := rank{score: math.Float64frombits(binary.BigEndian.Uint64(raw[1:]))}
	copy(r.turn[:], raw[9:])
	return r, nil
}

// isWordsCursor reports whether a cursor comes from a search by words, which a search without a mode goes on with.
func isWordsCursor(cursor string) bool {
	if cursor == "" {
		return false
	}
	_, err := parseRank(cursor, hybridMark)
	return err != nil
}
