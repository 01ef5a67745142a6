package search

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/google/uuid"
	"golang.org/x/text/unicode/norm"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/services"
)

const (
	// firstLook is how many turns the index is asked for at first, and for a first page, which is mostly all that is
	// asked for, spare ones more than it shows. A look that does not fill the page asks for four times as many, up to
	// mostLooked. Each turn costs the index and the tables more than the search for it.
	firstLook  = 50
	spare      = 5
	mostLooked = 3200
	// fused is how many hits of each mode a hybrid search fuses, and so how many it shows at most.
	fused = 100
)

// found is the turns that are nearest to a query, as they are now, nearest first.
type found struct {
	hits []projections.Hit
	true map[uuid.UUID]services.TrueTurn
	at   []events.Position
	// looked are the hits of the index that were compared with the truth, and settled the turns whose half is chosen.
	looked  map[hit]bool
	settled map[uuid.UUID]bool
}

// hit is a half of a turn.
type hit struct {
	turn uuid.UUID
	half projections.Half
}

// among says which of the turns with the same score are found, where a look of the index ends between them.
type among bool

const (
	// anyAlike: some of them.
	anyAlike among = false
	// firstAlike: those with the first ids. The page behind begins there.
	firstAlike among = true
)

// nearest returns the first hits behind a place that match a filter, up to a limit. One more than the limit says that
// there is more.
func (s *Searcher) nearest(
	ctx context.Context, vector []float32, f projections.SearchFilter, behind rank, limit int, alike among,
) (out found, err error) {
	out.true, out.looked = map[uuid.UUID]services.TrueTurn{}, map[hit]bool{}
	out.settled = map[uuid.UUID]bool{}
	look := max(firstLook, limit+1)
	if behind == firstRank {
		look = limit + spare
	}
	for ; ; look *= 4 {
		near, floor, at, err := s.look(ctx, f, vector, min(look, mostLooked))
		if err != nil {
			return out, unavailable(err)
		}
		out.at = at
		last := look >= mostLooked || math.IsInf(floor, -1)
		fresh := slices.DeleteFunc(near, func(n projections.Hit) bool {
			// Of which half a turn is a hit in a language only the truth tells, also of the pages before.
			return out.looked[hit{n.TurnID, n.Half}] || score(n) < f.MinScore ||
				f.Language == "" && !behind.admits(n) || alike == firstAlike && n.Score <= floor && !last
		})
		for len(fresh) > 0 && len(out.hits) <= limit {
			n := min(len(fresh), max(firstLook, limit+spare))
			if err := s.confirm(ctx, fresh[:n], f, behind, &out); err != nil {
				return out, err
			}
			fresh = fresh[n:]
		}
		if len(out.hits) > limit || last {
			break
		}
	}
	slices.SortFunc(out.hits, byRank)
	return out, nil
}

// ranked returns the turns found, and hits by words, with those in front of both that say just what is asked: words
// rank the newest matches only, and a turn with a translation may stand far from its own question. A query that leaves
// words out asks for no text verbatim.
func (f *found) ranked(asked string, byWords []projections.Hit) (near, words []projections.Hit) {
	wanted := wordsOf(asked)
	if len(wanted) == 0 || strings.Contains(" "+asked, " -") {
		return f.hits, byWords
	}
	says := func(text string) bool {
		return len(text) < 2*len(asked)+snippetChars && slices.EqualFunc(wordsOf(text), wanted, strings.EqualFold)
	}
	var first []projections.Hit
	isFirst := map[uuid.UUID]bool{}
	for _, h := range slices.Concat(f.hits, byWords) {
		t, near := f.true[h.TurnID]
		texts := []string{textOf(&t, h.Half, "neutral"), textOf(&t, h.Half, "translated")}
		if !near {
			texts = []string{h.Snippet}
		}
		if !isFirst[h.TurnID] && slices.ContainsFunc(texts, says) {
			isFirst[h.TurnID], first = true, append(first, h)
		}
	}
	behind := func(hits []projections.Hit) []projections.Hit {
		return append(slices.Clone(first), slices.DeleteFunc(slices.Clone(hits), func(h projections.Hit) bool {
			return isFirst[h.TurnID]
		})...)
	}
	return behind(f.hits), behind(byWords)
}

// wordsOf divides a text at everything but letters, the marks on them, and digits.
func wordsOf(text string) []string {
	return strings.FieldsFunc(norm.NFKC.String(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r)
	})
}

// look asks the index. It may have more hits with the score floor or a lower one; -Inf: these are all. If the language
// matters, both halves of a turn are returned, since the nearer one may lack it.
func (s *Searcher) look(
	ctx context.Context, f projections.SearchFilter, vector []float32, limit int,
) (near []projections.Hit, floor float64, at []events.Position, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Patience)
	defer cancel()
	halves := []projections.Half{f.In}
	if f.Language != "" && f.In == "" {
		halves = []projections.Half{projections.QuestionHalf, projections.AnswerHalf}
	}
	floor = math.Inf(-1)
	for _, half := range halves {
		hits, applied, err := s.cfg.Index.Nearest(ctx, half, index.Near{
			Vector: vector, Limit: limit,
			Filter: index.Filter{IdentityID: f.IdentityID, SessionID: f.SessionID, Period: f.Period},
		})
		if err != nil {
			return nil, 0, nil, err
		}
		near = append(near, hits...)
		if len(hits) >= limit {
			floor = max(floor, hits[len(hits)-1].Score)
		}
		if at == nil {
			at = applied
		}
	}
	// What is farther than the floor may have a nearer half that is not among these.
	near = slices.DeleteFunc(near, func(n projections.Hit) bool { return n.Score < floor })
	slices.SortFunc(near, byRank)
	return near, floor, at, nil
}

// confirm adds the turns that are as the index and the filter say, and behind a place.
func (s *Searcher) confirm(
	ctx context.Context, fresh []projections.Hit, f projections.SearchFilter, behind rank, out *found,
) error {
	refs := make([]services.TurnRef, 0, len(fresh))
	for _, n := range fresh {
		out.looked[hit{n.TurnID, n.Half}] = true
		refs = append(refs, services.TurnRef{SessionID: n.SessionID, IdentityID: n.IdentityID, TurnID: n.TurnID})
	}
	if len(refs) == 0 {
		return nil
	}
	turns, err := s.cfg.Turns.FindTurns(ctx, refs)
	if err != nil {
		return err
	}
	for _, n := range fresh {
		t, there := turns[n.TurnID]
		text := textOf(&t, n.Half, f.Language)
		switch {
		case out.settled[n.TurnID]:
			continue
		case !there:
			out.settled[n.TurnID] = true
			s.takenBack.Inc()
			continue
		case f.IdentityID != "" && t.IdentityID != f.IdentityID, f.SessionID != "" && t.SessionID != f.SessionID,
			t.CreatedAt.Before(f.Since), !f.Until.IsZero() && !t.CreatedAt.Before(f.Until),
			text == "" && f.Language != "":
			continue
		}
		if out.settled[n.TurnID] = true; !behind.admits(n) {
			continue
		}
		out.true[n.TurnID] = t
		out.hits = append(out.hits, projections.Hit{
			SessionID: t.SessionID, IdentityID: t.IdentityID, TurnID: t.ID, Half: n.Half, CreatedAt: t.CreatedAt,
			Position: t.Position, Score: n.Score, Snippet: snippet(text),
		})
	}
	return nil
}

// score of a neighbour as it is shown, between 0 and 1.
func score(n projections.Hit) float64 { return min(max(n.Score, 0), 1) }

// textOf returns the text of a half in a language: the neutral one if none is asked for and there is one.
func textOf(t *services.TrueTurn, half projections.Half, language string) string {
	var neutral, translated string
	switch {
	case half == projections.QuestionHalf && t.Question != nil:
		neutral, translated = t.Question.QuestionNeutral, t.Question.QuestionTranslated
	case half == projections.AnswerHalf && t.Answer != nil:
		neutral, translated = t.Answer.AnswerNeutral, t.Answer.AnswerTranslated
	}
	switch language {
	case "neutral":
		return neutral
	case "translated":
		return translated
	default:
		return cmp.Or(neutral, translated)
	}
}

// snippetChars bounds the characters of a snippet.
const snippetChars = 200

// snippet is the beginning of a text.
func snippet(text string) string {
	n := 0
	for i := range text {
		if n++; n > snippetChars {
			return text[:i]
		}
	}
	return text
}

// byRank orders hits: the best first, then by the turn's id, then the question before the answer.
func byRank(a, b projections.Hit) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), slices.Compare(a.TurnID[:], b.TurnID[:]), cmp.Compare(b.Half, a.Half))
}

// fuse fuses lists of hits by rank. Of a turn in several lists it returns the hit of the first one.
func fuse(lists ...[]projections.Hit) (out []projections.Hit) {
	ids := make([][]uuid.UUID, len(lists))
	for i, list := range lists {
		for _, h := range list {
			ids[i] = append(ids[i], h.TurnID)
		}
	}
	scores := projections.FusedScores(ids...)
	seen := map[uuid.UUID]bool{}
	for _, h := range slices.Concat(lists...) {
		if !seen[h.TurnID] {
			seen[h.TurnID], h.Score = true, scores[h.TurnID]
			out = append(out, h)
		}
	}
	slices.SortFunc(out, byRank)
	return out
}
