package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// SearchQuery asks for turns. Mode is words, meaning or hybrid; empty is hybrid where the server's index answers, else
// words. By words, all of Query must be in one half of a turn, words in quotation marks are a phrase, and -word leaves
// turns out. In is question, answer or both; Language is neutral or translated. Since and
// Until bound the start of turns. Zero values are no bounds, or the server's defaults.
type SearchQuery struct {
	Query      string    `json:"query"`
	Mode       string    `json:"mode,omitempty"`
	In         string    `json:"in,omitempty"`
	IdentityID string    `json:"identity_id,omitempty"`
	SessionID  string    `json:"session_id,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	Until      time.Time `json:"until,omitzero"`
	Language   string    `json:"language,omitempty"`
	Limit      int       `json:"limit,omitempty"`
	MinScore   float64   `json:"min_score,omitempty"`
	Cursor     string    `json:"cursor,omitempty"`
}

// SearchPage is a page of hits. The next page may be empty; NextCursor is empty at the end.
type SearchPage struct {
	Hits       []Hit  `json:"hits"`
	Mode       string `json:"mode"`
	Position   string `json:"position"`
	LagEvents  uint64 `json:"lag_events"`
	NextCursor string `json:"next_cursor"`
}

// Hit is a turn that a search has found, with the text around the match in its Half.
type Hit struct {
	SessionID  string    `json:"session_id"`
	TurnID     string    `json:"turn_id"`
	IdentityID string    `json:"identity_id"`
	Half       string    `json:"half"`
	CreatedAt  time.Time `json:"created_at"`
	Position   string    `json:"position"`
	Score      float64   `json:"score"`
	Snippet    string    `json:"snippet"`
}

// Search finds turns: of one identity, or of all, which a key needs events:read for.
func (c *Client) Search(ctx context.Context, q SearchQuery) (SearchPage, error) {
	r := get("search", "/search", "min_position", c.seen.all())
	r.method, r.body = http.MethodPost, q
	return call[SearchPage](ctx, c, r)
}

// HitHeading is the heading of a table of hits, of which Cells are the rows.
const HitHeading = "SCORE\tSESSION\tTURN\tCREATED\tHALF\tTEXT"

// Cells are the cells of a hit in a table.
func (h Hit) Cells() []any {
	return []any{fmt.Sprintf("%.2f", h.Score), h.SessionID, h.TurnID, shownTime(h.CreatedAt), h.Half,
		oneLine(h.Snippet, 100)}
}

// SimilarQuery asks for finalized turns whose question is near in meaning to Question.
type SimilarQuery struct {
	Question   string  `json:"question"`
	IdentityID string  `json:"identity_id,omitempty"`
	Limit      int     `json:"limit,omitempty"`
	MinScore   float64 `json:"min_score,omitempty"`
}

// SimilarPage is what Similar has found, the nearest first.
type SimilarPage struct {
	Hits []SimilarHit `json:"hits"`
}

// SimilarHit is a turn with a similar question.
type SimilarHit struct {
	Hit
	QuestionNeutral string `json:"question_neutral"`
	AnswerNeutral   string `json:"answer_neutral"`
}

// Similar finds turns with a similar question: of one identity, or of all, which a key needs events:read for.
func (c *Client) Similar(ctx context.Context, q SimilarQuery) (SimilarPage, error) {
	r := get("find similar turns", "/similar", "min_position", c.seen.all())
	r.method, r.body = http.MethodPost, q
	return call[SimilarPage](ctx, c, r)
}

// SimilarHeading is the heading of a table of similar turns, of which Cells are the rows.
const SimilarHeading = "SCORE\tSESSION\tTURN\tQUESTION\tANSWER"

// Cells are the cells of a similar turn in a table.
func (h SimilarHit) Cells() []any {
	return []any{fmt.Sprintf("%.2f", h.Score), h.SessionID, h.TurnID, oneLine(h.QuestionNeutral, 60),
		oneLine(h.AnswerNeutral, 60)}
}
