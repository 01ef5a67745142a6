package v1

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

type searchIn struct {
	MinPosition positions `query:"min_position" doc:"The answer is at least that new"`
	Body        searchQuery
}

type searchQuery struct {
	Query      string   `json:"query" doc:"Words, of which all must be in one half of a turn, phrases in quotation marks, -word leaves out; or a question, with meaning"`
	Mode       string   `json:"mode,omitempty" enum:"words,meaning,hybrid" doc:"words: exact; meaning: nearest first; hybrid: both, fused by rank. Left out: hybrid where the index answers, else words"`
	In         string   `json:"in,omitempty" enum:"question,answer,both" doc:"both by default"`
	IdentityID id       `json:"identity_id,omitempty" doc:"Turns of its sessions; left out: all, which needs events:read"`
	SessionID  id       `json:"session_id,omitempty" doc:"Turns of this session"`
	Since      moment   `json:"since,omitzero" doc:"Turns that started at or after that time"`
	Until      moment   `json:"until,omitzero" doc:"Turns that started before that time"`
	Language   string   `json:"language,omitempty" enum:"neutral,translated" doc:"Both if left out"`
	Limit      count    `json:"limit,omitempty" doc:"At most so many hits; 10 by default, clamped to 100"`
	MinScore   *float64 `json:"min_score,omitempty" doc:"Hits with at least that score"`
	Cursor     string   `json:"cursor,omitempty" doc:"next_cursor of the page before"`
}

type searchJSON struct {
	Hits       []hitJSON `json:"hits" nullable:"false" doc:"The best first; with words, among the newest 200 matching turns, then among the 200 before them, and so on"`
	Mode       string    `json:"mode" enum:"words,meaning,hybrid"`
	Position   string    `json:"position" doc:"One of each partition: what was searched" example:"0:42,1:17"`
	LagEvents  uint64    `json:"lag_events" doc:"How many events of the log the index has not applied yet; 0 with words"`
	NextCursor *string   `json:"next_cursor" doc:"For the next page, which may be empty; null at the end"`
}

type hitJSON struct {
	SessionID  string          `json:"session_id"`
	TurnID     uuid.UUID       `json:"turn_id"`
	IdentityID *string         `json:"identity_id" doc:"null: of an anonymous session"`
	Half       string          `json:"half" enum:"question,answer" doc:"The one that matches better"`
	CreatedAt  time.Time       `json:"created_at"`
	Position   events.Position `json:"position" doc:"Of the turn's start"`
	Score      float64         `json:"score" doc:"Between 0 and 1: with words, of the query and the text alone; with meaning, the cosine; with hybrid, of the ranks in both"`
	Snippet    string          `json:"snippet" doc:"The text around the match, at most 200 characters"`
}

// Bounds of a page of hits.
const (
	defaultHits = 10
	maxHits     = 100
)

// hitsOf returns how many hits a caller gets.
func hitsOf(limit count) int {
	if limit <= 0 {
		return defaultHits
	}
	return min(int(limit), maxHits)
}

// search finds turns by their words or their meaning.
func (a *surface) search(ctx context.Context, in *searchIn) (out searchJSON, err error) {
	identity, err := services.Across(ctx, in.Body.IdentityID.text())
	if err != nil {
		return out, err
	}
	f, err := searchFilter(&in.Body)
	if err != nil {
		return out, err
	}
	f.IdentityID = identity
	if a.cfg.Search == nil {
		return out, projections.ErrUnavailable
	}
	page, err := a.cfg.Search.Search(ctx, services.SearchAsk{
		SearchFilter: f, Mode: services.SearchMode(in.Body.Mode), Limit: hitsOf(in.Body.Limit),
		Cursor: in.Body.Cursor, MinPosition: in.MinPosition,
	})
	if err != nil {
		return out, acrossError(err)
	}
	noteTurns(ctx, len(page.Hits))
	return searchJSON{
		mapped(page.Hits, newHitJSON), string(page.Mode), events.NewCursor(page.Positions...).String(), page.Lag,
		optional(&page.NextCursor),
	}, nil
}

func searchFilter(q *searchQuery) (f projections.SearchFilter, err error) {
	f = projections.SearchFilter{
		Query: q.Query, Language: q.Language, SessionID: q.SessionID.text(),
		Period: projections.Period{Since: q.Since.Time, Until: q.Until.Time},
	}
	if q.MinScore != nil {
		f.MinScore = *q.MinScore
	}
	if q.Query == "" {
		return f, invalid("query", "must have a word to search for")
	}
	switch q.In {
	case "", "both":
	case string(projections.QuestionHalf), string(projections.AnswerHalf):
		f.In = projections.Half(q.In)
	default:
		return f, invalid("in", "must be question, answer or both")
	}
	switch q.Mode {
	case "", "words", "meaning", "hybrid":
	default:
		return f, invalid("mode", "must be words, meaning or hybrid")
	}
	switch q.Language {
	case "", "neutral", "translated":
	default:
		return f, invalid("language", "must be neutral or translated")
	}
	return f, nil
}

func newHitJSON(h *projections.Hit) hitJSON {
	return hitJSON{
		h.SessionID, h.TurnID, optional(&h.IdentityID), string(h.Half), h.CreatedAt, h.Position, h.Score, h.Snippet,
	}
}

type similarIn struct {
	MinPosition positions `query:"min_position" doc:"The answer is at least that new"`
	Body        similarQuery
}

type similarQuery struct {
	Question   string   `json:"question" doc:"Compared with the questions of finalized turns"`
	IdentityID id       `json:"identity_id,omitempty" doc:"Turns of its sessions; left out: all, which needs events:read"`
	Limit      count    `json:"limit,omitempty" doc:"At most so many hits; 10 by default, clamped to 100"`
	MinScore   *float64 `json:"min_score,omitempty" doc:"Hits with at least that cosine"`
}

type similarJSON struct {
	Hits []similarHitJSON `json:"hits" nullable:"false" doc:"The nearest first"`
}

type similarHitJSON struct {
	hitJSON
	QuestionNeutral string `json:"question_neutral"`
	AnswerNeutral   string `json:"answer_neutral"`
}

// similar finds turns with a similar question.
func (a *surface) similar(ctx context.Context, in *similarIn) (out similarJSON, err error) {
	identity, err := services.Across(ctx, in.Body.IdentityID.text())
	if err != nil {
		return out, err
	}
	if in.Body.Question == "" {
		return out, invalid("question", "must not be empty")
	}
	if a.cfg.Similar == nil {
		return out, fmt.Errorf("%w: %w", services.ErrIndex, services.ErrNoIndex)
	}
	ask := services.SimilarAsk{
		Question: in.Body.Question, IdentityID: identity, Limit: hitsOf(in.Body.Limit), MinPosition: in.MinPosition,
	}
	if in.Body.MinScore != nil {
		ask.MinScore = *in.Body.MinScore
	}
	hits, err := a.cfg.Similar.Similar(ctx, ask)
	if err != nil {
		return out, acrossError(err)
	}
	noteTurns(ctx, len(hits))
	return similarJSON{mapped(hits, func(h *services.SimilarHit) similarHitJSON {
		return similarHitJSON{newHitJSON(&h.Hit), h.Question, h.Answer}
	})}, nil
}
