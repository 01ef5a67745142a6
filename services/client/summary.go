package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Summarize is a summary of a session's turns, from the first visible one through ThroughTurnID.
type Summarize struct {
	SessionID         string `json:"-"`
	RequestID         string `json:"request_id"`
	ThroughTurnID     string `json:"through_turn_id"`
	SummaryNeutral    string `json:"summary_neutral"`
	SummaryTranslated string `json:"summary_translated,omitempty"`
	Model             string `json:"model,omitempty"`
}

// Summary is a summary as the log has it.
type Summary struct {
	SummaryID         string    `json:"summary_id"`
	SessionID         string    `json:"session_id"`
	FromTurnID        string    `json:"from_turn_id"`
	ThroughTurnID     string    `json:"through_turn_id"`
	Turns             int       `json:"turns"`
	SummaryNeutral    string    `json:"summary_neutral"`
	SummaryTranslated string    `json:"summary_translated"`
	Model             string    `json:"model"`
	CreatedAt         time.Time `json:"created_at"`
	Position          string    `json:"position"`
	Duplicate         bool      `json:"duplicate"`
}

// ShownSummary names the summary in a context.
type ShownSummary struct {
	SummaryID     string `json:"summary_id"`
	ThroughTurnID string `json:"through_turn_id"`
	Turns         int    `json:"turns"`
}

// Summarize records a summary. The same request again is answered with the first one.
func (c *Client) Summarize(ctx context.Context, m Summarize) (Summary, error) {
	path := "/sessions/" + escape(m.SessionID) + "/summaries"
	s, err := call[Summary](ctx, c, request{"summarize session", http.MethodPost, path, m, repeatable})
	c.saw(m.SessionID, s.Position)
	return s, err
}

// Summaries lists the summaries of a session that are valid, newest last.
func (c *Client) Summaries(ctx context.Context, sessionID string) ([]Summary, error) {
	return callField[[]Summary](ctx, c, "summaries", c.read("list summaries", sessionID, "/summaries"))
}

func (s Summary) String() string {
	return fmt.Sprintf("summary      %s\nsession      %s\nturns        %d, from %s through %s\nposition     %s",
		s.SummaryID, s.SessionID, s.Turns, s.FromTurnID, s.ThroughTurnID, s.Position)
}
